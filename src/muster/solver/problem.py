"""What the solver is asked and what it answers, as values."""

from collections.abc import Callable
from dataclasses import field
from typing import TypeAlias

from muster.knowledge.query import ProductAnswer, branch_number, identify
from muster.knowledge.query_components import systems_of
from muster.knowledge.records import GpuSystem
from muster.knowledge.schema import CudaToolkit, KnowledgeBase
from muster.model.fact import Unknown
from muster.model.frozen import dataclass
from muster.model.policy import DriverWish
from muster.model.ranges import parse_ranges
from muster.model.stack import PackagePin
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion
from muster.solver.explain import Because, Hint, Observed, RuleSays

_NOT_SEEN = Unknown("not collected")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that the node can boot: whether its headers are there, and who signed the module on disk (`none`: nobody)."""

    name: str
    headers: bool | Unknown
    signer: str | Unknown


@dataclass(frozen=True, slots=True)
class Offers:
    """What the node's package lists offer of the packages that carry its driver.

    `whole`: the package versions that each of them is offered in; `partial`: those that some lack, with which; `lost`: the installed
    packages that are offered no more. `carries` compares a version with a driver.
    """

    whole: tuple[str, ...]
    partial: tuple[tuple[str, tuple[str, ...]], ...] = ()
    lost: tuple[PackagePin, ...] = ()


@dataclass(frozen=True, slots=True)
class Switches:
    """What the node shows of NVSwitches: its GPUs, the state they give of their fabric (empty: none given), and what manages it.

    `devices` counts the switches among its PCI devices; from the fourth generation on they are none. `manager` is the version of the fabric
    manager that is installed, empty where none is. `services` are the units that are there.
    """

    gpus: int | Unknown = _NOT_SEEN
    state: str = ""
    manager: str | Unknown = _NOT_SEEN
    services: tuple[str, ...] | Unknown = _NOT_SEEN
    devices: int | Unknown = _NOT_SEEN


@dataclass(frozen=True, slots=True)
class NodeClass:
    """The facts of a node that matter to its driver; nodes that agree in all of them get one answer.

    `driver` is the version on disk, `loaded` the running one (empty when unknown); `packages` carry the driver on this class of node, the
    fabric manager and IMEX among them whatever their version. `root` is the kind of the root file system of a node that boots from an
    image, else empty; `toolkits` are the CUDA releases and `compat` the forward-compatibility packages that lie on the node; `prebuilt` the
    packages that bring kernel modules ready built. `enrolled` are the keys of the machine's owner, `kernel_keys` those that the kernel is
    seen to hold.
    What could not be seen says why, and is never compatible.
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
    root: str | Unknown = _NOT_SEEN
    kernels: tuple[Kernel, ...] | Unknown = _NOT_SEEN
    secure_boot: bool | Unknown = _NOT_SEEN
    enrolled: tuple[str, ...] | Unknown = _NOT_SEEN
    kernel_keys: tuple[str, ...] = ()
    runfile: bool | Unknown = _NOT_SEEN
    offers: Offers | Unknown = _NOT_SEEN
    switches: Switches = field(default_factory=Switches)
    toolkits: tuple[str, ...] = ()
    compat: tuple[PackagePin, ...] = ()
    prebuilt: tuple[str, ...] = ()
    confidential: bool | Unknown = _NOT_SEEN

    @property
    def products(self) -> tuple[str, ...]:
        """The kinds of GPU in the node: mostly one."""
        return tuple(self.product.split(", "))


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

    @property
    def number(self) -> int:
        """The branch's number."""
        return branch_number(self.driver.branch)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU of the class, what is known of it (None: nothing), and the machines with NVSwitches that it is sold in."""

    name: str
    known: ProductAnswer | None
    systems: tuple[GpuSystem, ...] = ()

    @property
    def seen(self) -> Observed:
        """Where its name comes from."""
        return Observed("gpu.product", self.name)


@dataclass(frozen=True, slots=True)
class Question:
    """One candidate on one class of nodes, under one demand, with what is known.

    `gpus` and `asked` (the known CUDA releases of the pool's range, all of them where it asks for none) are looked up once for all candidates.
    """

    candidate: Candidate
    kind: NodeClass
    demand: Demand
    known: KnowledgeBase
    gpus: tuple[Gpu, ...]
    asked: tuple[CudaToolkit, ...]


def gpus_of(kind: NodeClass, base: KnowledgeBase) -> tuple[Gpu, ...]:
    """The kinds of GPU of a class."""
    return tuple(Gpu(name, identify(base, name), systems_of(base, name)) for name in kind.products)


def asked_of(demand: Demand, base: KnowledgeBase) -> tuple[CudaToolkit, ...]:
    """The known CUDA releases of a pool's range."""
    if demand.cuda is None:
        return tuple(base.toolkits.values())
    ranges = parse_ranges(demand.cuda, CudaVersion)
    return tuple(toolkit for version, toolkit in base.toolkits.items() if version in ranges)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule's no: why, and apart from that what would unblock. `unknown`: it is a no because something could not be seen."""

    because: Because
    hints: tuple[Hint, ...] = ()
    unknown: bool = False


Judgement: TypeAlias = tuple[RuleSays, ...] | Refusal
"""What a rule says for a candidate (nothing where it does not apply), or its no."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its name, by which refusals are told apart and tests take it away, and the judgement."""

    name: str
    judge: Callable[[Question], Judgement]


@dataclass(frozen=True, slots=True)
class Solution:
    """The chosen driver with the rules that admit it, and why a reload of the module is not enough on these nodes (empty: it is)."""

    chosen: Candidate
    because: tuple[RuleSays, ...]
    reboot: tuple[RuleSays, ...] = ()


@dataclass(frozen=True, slots=True)
class NoSolution:
    """No candidate is admissible: why, and apart from that what would unblock.

    `rules` names the rules that refused, most basic first; `unknown`: some candidate was refused only because something could not be seen.
    """

    because: Because
    hints: tuple[Hint, ...]
    rules: tuple[str, ...] = ()
    unknown: bool = False


Answer: TypeAlias = Solution | NoSolution
