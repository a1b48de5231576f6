"""What the solver is asked and what it answers, as values."""

from dataclasses import dataclass
from typing import TypeAlias

from muster.model.stack import PackagePin
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
    """What a pool asks of its nodes' stack: the driver wish as written, the flavour wanted (None: keep), the CUDA range its users need."""

    pool: str
    wish: str
    path: str
    flavour: str | None
    cuda: str | None
    cuda_path: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A driver that could be chosen."""

    driver: str
    flavour: str


@dataclass(frozen=True, slots=True)
class Solution:
    """The chosen driver with the rules that admit it."""

    chosen: Candidate
    because: tuple[RuleSays, ...]


@dataclass(frozen=True, slots=True)
class NoSolution:
    """No candidate is admissible: why, and apart from that what would unblock."""

    because: Because
    hints: tuple[Hint, ...]


Answer: TypeAlias = Solution | NoSolution
