"""What sources say there is, and where they disagree. How nodes are told apart and put together is `control.inventory`'s."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from muster.model.fact import NodeFacts
from muster.model.frozen import dataclass
from muster.model.node import Node


@dataclass(frozen=True, slots=True)
class Listing:
    """What one source says: its nodes, and what in it could not be used, each warning with file and line. No two nodes share a name."""

    source: str
    nodes: tuple[Node, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that one source says; `source` has file and line where it has any."""

    source: str
    value: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Sources disagree over `what` (`address`, `label role`, ...) of a node. The first one counts."""

    node: str
    what: str
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """All nodes of a site by name, under which names which sources know each (its own name first), conflicts, and what was not used."""

    nodes: tuple[Node, ...] = ()
    names: Mapping[str, tuple[Said, ...]] = field(default_factory=lambda: MappingProxyType({}))
    conflicts: tuple[Conflict, ...] = ()
    warnings: tuple[str, ...] = ()

    def other_names(self, node: str) -> tuple[str, ...]:
        """The names of a node beside its own."""
        told = self.names.get(node, ())
        if len(told) == 1 and told[0].value == node:
            return ()
        found = dict.fromkeys(said.value for said in told)
        return tuple(name for name in found if name != node)


@dataclass(frozen=True, slots=True)
class Carried:
    """What a folder of carried outputs says of its nodes, each under the folder's name for it, and what in it could not be used."""

    facts: tuple[NodeFacts, ...]
    warnings: tuple[str, ...] = ()
