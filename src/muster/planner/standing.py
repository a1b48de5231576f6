"""What can be done on one node: its step, or why there is none. Pure, and the same for all nodes that look alike.

It knows neither jobs nor budgets nor other nodes; those are `propose`'s.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from muster.model.fact import NodeFacts, Unknown
from muster.model.frozen import dataclass
from muster.model.memo import Remembered
from muster.model.plan import Expectation, Step, WaitingOn
from muster.model.policy import Permission, Pool
from muster.model.stack import IMAGE_KINDS, PackagePin
from muster.planner.classes import node_class, unknown_facts
from muster.planner.kernels import Moved, carriers, moved, with_kernel
from muster.ports import PackageManager
from muster.solver.carried import Carried, NotNamed, same_names
from muster.solver.problem import Answer, NodeClass, NoSolution, Solution
from muster.solver.words import sentence

_STACK = (
    "library.libcuda.version", "module.nvidia.disk_version", "module.nvidia.flavour", "module.nvidia.loaded_version",
)  # fmt: skip
"""What must agree on a node, beside the packages."""

RUNNING_KERNEL = "kernel.running"
"""The kernel that runs, as a fact."""

DOMAIN_FACT = "gpu.nvlink_domain"
"""The NVLink domain (the fabric's cluster) that the node's GPUs say they belong to."""

NO_DOMAIN = "none"
"""What the fact says of a node whose NVLink goes to no other node."""


_AUDIT = {"apt": "dpkg --audit", "dnf": "dnf history info last, rpm -V PACKAGE"}
"""What shows more of packages that are not whole, by package manager."""


@dataclass(frozen=True, slots=True)
class No:
    """Nothing is to be done, or can be: what that waits for, and the words."""

    on: WaitingOn
    words: str


@dataclass(frozen=True, slots=True)
class Way:
    """What is to be done: the step, the stratum, how many GPUs stand still meanwhile, the NVLink domain, and the rules that admit the step."""

    step: Step
    stratum: str
    gpus: int
    domain: str
    because: tuple[str, ...]


Solve = Callable[[NodeClass, Pool], Answer]


@dataclass(frozen=True, slots=True)
class _Seen:
    """All of a node that its step follows from: its class, its package manager, its stack (path -> text), and what it is grouped by."""

    kind: NodeClass
    manager: PackageManager
    stack: tuple[tuple[str, str | Unknown], ...]
    stratum: str
    gpus: int
    domain: str
    kernels: tuple[PackagePin, ...] = ()
    """The packages of its kernels."""


Names: TypeAlias = Callable[[NodeClass, str, str, str], Carried | NotNamed]
"""What carries a driver on a class of nodes, given target, flavour and the package version where names stay."""


class Judge:
    """Judges nodes, each kind once. Holds no state but what it was told and what it found before."""

    def __init__(
        self, pools: Sequence[Pool], managers: Sequence[PackageManager], solve: Solve, carried: Names = same_names
    ) -> None:
        self._pools = {pool.name: pool for pool in pools}
        self._managers = tuple(managers)
        self._solve = solve
        self._carried = carried
        self._solutions: dict[tuple[NodeClass, object, object], Solution] = {}
        self._looks = Remembered[str, No | _Seen](lambda facts, _: _look(facts, self._managers))
        # By the very object, of which there is one for all nodes that are alike; it is kept beside, so that no other takes its number.
        self._found: dict[tuple[int, str], tuple[_Seen, No | Way]] = {}

    def __call__(self, facts: NodeFacts, pool: str) -> No | Way:
        """What can be done on a node with these facts, as a node of `pool`."""
        seen = self._looks(facts, "")
        if isinstance(seen, No):
            return seen
        key = (id(seen), pool)
        if key not in self._found:
            self._found[key] = (seen, self._judge(seen, self._pools[pool]))
        return self._found[key][1]

    def _judge(self, seen: _Seen, pool: Pool) -> No | Way:
        # A solution is the same for every pool that wants the same; a refusal names the pool.
        kind = with_kernel(seen.kind, pool.kernel)
        wanted = (kind, pool.driver, pool.cuda)
        answer: Answer | None = self._solutions.get(wanted)
        if answer is None:
            answer = self._solve(kind, pool)
        if isinstance(answer, NoSolution):
            return No(WaitingOn.UNKNOWN_HEALTH if answer.unknown else WaitingOn.NO_SOLUTION, sentence(answer.because))
        self._solutions[wanted] = answer
        return _change(seen, pool, answer, self._carried)


def _look(facts: NodeFacts, managers: Sequence[PackageManager]) -> No | _Seen:
    """What of the facts counts, whatever the pool; or why the node cannot be planned on in any."""
    refused = held(facts) or image_booted(facts)
    if refused is not None:
        return refused
    kind = node_class(facts, managers)
    if kind is None:
        why = ", ".join(unknown_facts(facts)) or "no package manager of this node is known"
        return No(WaitingOn.UNKNOWN_HEALTH, f"cannot be planned on: {why}")
    manager = next(m for m in managers if m.name == kind.manager)
    broken = manager.broken(facts)
    if broken:
        words = f"has packages that are half-installed: {', '.join(broken)}; on the node: {_AUDIT.get(manager.name, manager.name)}"
        return No(WaitingOn.OWNED_BY_HUMAN, words)
    stack = tuple((path, facts.text(path) or Unknown(_why(facts, path))) for path in _STACK)
    kernels = carriers(manager.installed(facts))
    return _Seen(kind, manager, stack, stratum(facts, kind), _gpus(facts), domain_of(facts), kernels)


def held(facts: NodeFacts) -> No | None:
    """A node that somebody holds, or of which that cannot be told."""
    held, holder = facts.value("lease.held"), facts.text("lease.holder")
    if holder or held is True:
        words = f"is held by {holder or 'somebody'} for {facts.text('lease.rollout_id') or 'no rollout'}"
        return No(WaitingOn.OWNED_BY_HUMAN, words)
    if held is not False:
        why = getattr(held, "why", "not a yes or no")
        return No(WaitingOn.UNKNOWN_HEALTH, f"whether somebody holds it is unknown: {why}")
    return None


def image_booted(facts: NodeFacts) -> No | None:
    """A node whose root does not outlive a restart, or of which that cannot be told."""
    kind = facts.text("root_fs.kind")
    if kind is None:
        words = f"whether it boots from an image is unknown: root_fs.kind ({_why(facts, 'root_fs.kind')})"
        return No(WaitingOn.UNKNOWN_HEALTH, words)
    if kind in IMAGE_KINDS:
        return No(WaitingOn.NO_SOLUTION, f"boots from an image (root on {kind}): a change would be lost")
    return None


def _change(node: _Seen, pool: Pool, answer: Solution, carried: Names) -> No | Way:
    target, kind = answer.chosen.driver.text, node.kind
    if not kind.packages:
        words = f"no installed package carries {kind.driver}: not installed by packages"
        return No(WaitingOn.NO_SOLUTION, words)
    unknown = [f"{path} ({value.why})" for path, value in node.stack if isinstance(value, Unknown)]
    if unknown:
        # What the way back would have to prove cannot be told either.
        return No(WaitingOn.UNKNOWN_HEALTH, f"what it runs now is unknown: {', '.join(unknown)}")
    known = {pin.name: pin.version for pin in kind.packages}
    version = node.manager.version_text(target, known)
    named = carried(kind, target, answer.chosen.flavour, version)
    if isinstance(named, NotNamed):
        return No(WaitingOn.NO_SOLUTION, named.why)
    kernel = moved(kind, node.kernels, pool.kernel)
    if isinstance(kernel, str):
        return No(WaitingOn.NO_SOLUTION, kernel)
    return _way(node, pool, answer, node.manager.spelled(target, named.packages, known), kernel)


def _way(node: _Seen, pool: Pool, answer: Solution, packages: tuple[PackagePin, ...], kernel: Moved | None) -> No | Way:
    """The step to these packages (and this kernel), or that it is made already."""
    target, kind = answer.chosen.driver.text, node.kind
    upstream = target.partition("-")[0]
    seen = {path: value for path, value in node.stack if isinstance(value, str)}
    wanted = dict.fromkeys(_STACK, upstream) | {"module.nvidia.flavour": answer.chosen.flavour}
    if packages == kind.packages and seen == wanted and kernel is None:
        return No(WaitingOn.NOTHING_TO_DO, f"already runs {target}")
    back = kind.packages
    if kernel is not None:
        packages, back = tuple(sorted((*packages, *kernel.to))), tuple(sorted((*back, *kernel.back)))
    move = kernel.move if kernel is not None else None
    by_reload = pool.reload is Permission.ALLOWED and not answer.reboot and kernel is None
    step = Step(
        from_driver=kind.driver,
        to_driver=target,
        flavour=answer.chosen.flavour,
        manager=kind.manager,
        packages=packages,
        back=back,
        restart="reload" if by_reload else "reboot",
        expects=stack_is(seen, back, move.from_kernel if move else ""),
        done_when=stack_is(wanted, (*packages, *(move.packages if move else ())), move.to_kernel if move else ""),
        kernel=move,
    )
    said = (*answer.because, *(answer.reboot if pool.reload is Permission.ALLOWED else ()))
    because = tuple(f"{target}: {sentence(rule)}" for rule in said)
    return Way(step, node.stratum, node.gpus, node.domain, because)


def stratum(facts: NodeFacts, kind: NodeClass) -> str:
    """What software can see of a node before the change: model, VBIOS, kernel, flavour."""
    vbios = facts.value("gpu.vbios")
    seen = "not known" if isinstance(vbios, Unknown) else "+".join(vbios) if isinstance(vbios, tuple) else str(vbios)
    return f"{kind.product} / VBIOS {seen} / {kind.kernel} / {kind.flavour}"


def _gpus(facts: NodeFacts) -> int:
    count = facts.value("gpu.count")
    return count if isinstance(count, int) else 0


def domain_of(facts: NodeFacts) -> str:
    named = facts.text(DOMAIN_FACT)
    return "" if named is None or named == NO_DOMAIN else named


def stack_is(values: Mapping[str, str], packages: Sequence[PackagePin], kernel: str = "") -> tuple[Expectation, ...]:
    """What a stack is by its facts. `kernel` is told only of a step that moves it: to others another kernel is no obstacle."""
    return (
        *(Expectation(f"package[{pin.name}].version", pin.version) for pin in packages),
        *(Expectation(path, values[path]) for path in _STACK),
        *((Expectation(RUNNING_KERNEL, kernel),) if kernel else ()),
    )


def _why(facts: NodeFacts, path: str) -> str:
    return getattr(facts.value(path), "why", "not a text")
