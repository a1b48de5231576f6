"""What a validation of a node came to, as it is kept, and the floors that its figures are held against. Values; nothing is judged here."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from types import MappingProxyType

from muster.model.frozen import dataclass
from muster.model.verdict import Verdict

_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Validated:
    """One validation of one node.

    `kind` is the class of the node, its GPUs' model; `driver` the one that was loaded; `figures` are by metric those of the worst GPU, in
    the unit that the metric's name ends with; `under` says for what it was done: a rollout, or a validation by hand.
    """

    node: str
    at: datetime
    validator: str
    kind: str
    driver: str
    verdict: Verdict
    figures: Mapping[str, float]
    under: str


@dataclass(frozen=True, slots=True)
class Learnt:
    """A floor learnt from `nodes` nodes of one kind. `minimum` is None while they are too few to learn from."""

    minimum: float | None
    median: float
    nodes: int


@dataclass(frozen=True, slots=True)
class Floors:
    """What figures must reach: `fixed` by policy; those in `learning` what the node itself reached before a change, and its kind (`learnt`,
    by kind and metric)."""

    fixed: Mapping[str, float] = field(default_factory=lambda: _NONE)
    learning: tuple[str, ...] = ()
    learnt: Mapping[tuple[str, str], Learnt] = field(default_factory=lambda: MappingProxyType({}))


NO_FLOORS = Floors()
