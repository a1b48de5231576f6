"""What the solver is asked and what it answers, as values."""

from typing import TypeAlias

from muster.knowledge.schema import KnowledgeBase
from muster.model.frozen import dataclass
from muster.model.policy import DriverWish
from muster.model.stack import PackagePin
from muster.model.versions.driver import DriverVersion
from muster.solver.explain import Because, Hint, RuleSays


@dataclass(frozen=True, slots=True, order=True)
class NodeClass:
    """The facts of a node that matter to its driver; nodes that agree in all of them get one answer.

    `driver` is the version on disk, `loaded` the running one (empty when unknown); `packages` carry the driver on this class of node.
    """

    product: str
    kernel: str
    arch: str
    os: str
    flavour: str
    driver: str
    loaded: str
    manager: str
    packages: tuple[PackagePin, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pool asks of its nodes' stack: the driver wish, the flavour (None: keep), the CUDA range its users need (as written)."""

    pool: str
    wish: DriverWish
    flavour: str | None
    cuda: str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A driver that could be chosen. `driver.text` is as the policy wrote it, a site's own revision included."""

    driver: DriverVersion
    flavour: str

    @property
    def branch(self) -> str:
        """The driver's branch, such as `R580`."""
        return self.driver.branch


@dataclass(frozen=True, slots=True)
class Question:
    """One candidate on one class of nodes, under one demand, with what is known."""

    candidate: Candidate
    kind: NodeClass
    demand: Demand
    known: KnowledgeBase


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule's no: why, and apart from that what would unblock."""

    because: Because
    hints: tuple[Hint, ...] = ()


Judgement: TypeAlias = RuleSays | Refusal


@dataclass(frozen=True, slots=True)
class Solution:
    """The chosen driver with the rules that admit it, and why a reload of the module is not enough on these nodes (empty: it is)."""

    chosen: Candidate
    because: tuple[RuleSays, ...]
    reboot: tuple[RuleSays, ...] = ()


@dataclass(frozen=True, slots=True)
class NoSolution:
    """No candidate is admissible: why, and apart from that what would unblock."""

    because: Because
    hints: tuple[Hint, ...]


Answer: TypeAlias = Solution | NoSolution
