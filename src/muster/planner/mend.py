"""From a node whose stack is broken (half-configured, mixed, interrupted) to the one step that makes it whole again. Pure.

What it comes to: the stack that the node had when it was last seen whole, whatever the policy wants since then - a repair is no rollout and
has no canaries. Only where nothing whole was ever seen, or where a driver is named, the solver chooses. It does not look at jobs, drains and
leases of other rollouts beyond what the facts say; `control.repairing` does.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from muster.model.fact import Fact, FactValue, NodeFacts, Unknown
from muster.model.frozen import dataclass
from muster.model.plan import Expectation, Step, StepKind, WaitingOn
from muster.model.policy import DriverPolicy, Flavour, Permission, Pool, WantVersion
from muster.model.stack import BROKEN_STATES, PackagePin, pins_from
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.driver import DriverVersion
from muster.planner.classes import LOCKSTEP, carries, driver_packages, node_class, unknown_facts
from muster.planner.standing import Names, No, Solve, Way, domain_of, held, image_booted, stack_is, stratum
from muster.ports import PackageManager
from muster.solver.carried import NotNamed
from muster.solver.problem import NodeClass, NoSolution, Offers, Solution
from muster.solver.words import sentence

REPAIRS = "repairs:"
"""Begins a line of `Plan.because` on what a repair finds or does."""

_LOADED, _DISK, _LIBRARY = "module.nvidia.loaded_version", "module.nvidia.disk_version", "library.libcuda.version"
_MEMBERS = {_LOADED: "the loaded module", _DISK: "the module on disk", _LIBRARY: "the library"}

_LASTING = (
    "gpu.product", "gpu.vbios", "gpu.count", "gpu.confidential", "gpu.nvlink_domain", "gpu.fabric_state", "module.nvidia.flavour",
)  # fmt: skip
"""What a node with a broken driver cannot tell, and what does not change with the driver: taken from when it last could."""

_STATES = (*BROKEN_STATES, "installed")


@dataclass(frozen=True, slots=True)
class Whole:
    """A node's stack as it was when it was last seen whole, and when that was (RFC 3339 UTC)."""

    driver: str
    flavour: str
    packages: tuple[PackagePin, ...]
    at: str


def last_whole(history: Sequence[Fact], manager: PackageManager) -> Whole | None:
    """The last whole stack in a node's history, oldest first as the store gives it; None where none was seen."""
    values: dict[str, Fact] = {}
    found: Whole | None = None
    changes = [fact for fact in history if fact.path in _MEMBERS or fact.path.startswith(("package", "module.nvidia."))]
    for at, fact in enumerate(changes):
        values[fact.path] = fact
        if at + 1 < len(changes) and changes[at + 1].observed_at == fact.observed_at:
            continue
        facts = NodeFacts("", fact.observed_at, values)
        driver = facts.text(_DISK)
        if driver is None or troubles(facts, manager, (driver,)):
            continue
        pins = driver_packages(manager.installed(facts), driver)
        if pins:
            when = f"{fact.observed_at:%Y-%m-%d %H:%M} UTC"
            found = Whole(driver, facts.text("module.nvidia.flavour") or "", pins, when)
    return found


def remembered(facts: NodeFacts, history: Sequence[Fact]) -> NodeFacts:
    """The facts, with what only a working driver can tell (model, number of GPUs, flavour) as it was told last."""
    known = {fact.path: fact for fact in history if fact.path in _LASTING and not isinstance(fact.value, Unknown)}
    back = {path: fact for path, fact in known.items() if isinstance(facts.value(path), Unknown)}
    return replace(facts, facts={**{path: facts.facts[path] for path in facts.facts}, **back}) if back else facts


def troubles(facts: NodeFacts, manager: PackageManager, drivers: Container[str]) -> tuple[str, ...]:
    """What keeps the node's stack from being one whole, in words; nothing where it is. `drivers` are the versions that packages may carry."""
    return tuple(_troubles(facts, manager, drivers))


def _troubles(facts: NodeFacts, manager: PackageManager, drivers: Container[str]) -> Iterator[str]:
    why = facts.unread("package")
    if why is not None:
        yield f"the installed packages are unknown ({why})"
    for name in manager.broken(facts):
        yield f"{name} is {facts.text(f'package[{name}].state')}"
    versions = {words: facts.text(path) for path, words in _MEMBERS.items()}
    for path, words in _MEMBERS.items():
        if versions[words] is None:
            yield f"{words} is unknown ({getattr(facts.value(path), 'why', 'not a text')})"
    told = {words: version for words, version in versions.items() if version is not None}
    if len(set(told.values())) > 1:
        yield "; ".join(f"{words} is {version}" for words, version in told.items())
    disk = versions[_MEMBERS[_DISK]]
    others = [
        f"{pin.name} {pin.version}"
        for pin in there(facts, drivers)
        if disk and not carries(pin.version, disk) and not LOCKSTEP.fullmatch(pin.name)
    ]
    if others:
        yield f"packages of another driver than {disk}: {', '.join(others)}"


def there(facts: NodeFacts, drivers: Container[str]) -> tuple[PackagePin, ...]:
    """The packages of the driver that lie on the node in whatever state, whole or not."""
    found: dict[str, str] = {}
    for name in facts.members("package"):
        state, version = facts.text(f"package[{name}].state"), facts.text(f"package[{name}].version") or ""
        if state in _STATES and (_upstream(version) in drivers or LOCKSTEP.fullmatch(name)):
            found[name] = version
    return pins_from(found if any(_upstream(version) in drivers for version in found.values()) else {})


def _upstream(version: str) -> str:
    return version.rpartition(":")[2].partition("-")[0]


@dataclass(frozen=True, slots=True)
class Mender:
    """Judges the one node that is to be repaired.

    `wanted` is the driver that somebody named. `ours` is the rollout of this store whose lease the node still carries though its run has
    ended: such a lease is taken over. `drivers` are all versions that packages may carry.
    """

    pools: Mapping[str, Pool]
    managers: Sequence[PackageManager]
    solve: Solve
    carried: Names
    had: Whole | None
    drivers: Container[str]
    wanted: str | None = None
    ours: str = ""

    def __call__(self, facts: NodeFacts, pool: str) -> No | Way:
        refused = (None if self._is_ours(facts) else held(facts)) or image_booted(facts)
        if refused is not None:
            return refused
        manager = next((each for each in self.managers if each.serves(facts)), None)
        if manager is None:
            return No(WaitingOn.UNKNOWN_HEALTH, f"cannot be repaired: {', '.join(unknown_facts(facts))}")
        wrong = troubles(facts, manager, self.drivers)
        if not wrong and not self.ours:
            return No(WaitingOn.NOTHING_TO_DO, f"is whole on {facts.text(_LOADED)}: nothing to repair")
        now = there(facts, self.drivers)
        kind = self._class(facts, now)
        if isinstance(kind, No):
            return kind
        aim = self._aim(kind, self.pools[pool], now)
        return aim if isinstance(aim, No) else self._way(facts, kind, now, aim, wrong, self.pools[pool])

    def _is_ours(self, facts: NodeFacts) -> bool:
        return bool(self.ours) and facts.text("lease.rollout_id") == self.ours

    def _class(self, facts: NodeFacts, now: Sequence[PackagePin]) -> NodeClass | No:
        """The class of the node as if it were whole on what it had, or on what most of its packages carry."""
        driver = self.had.driver if self.had else _most(pin.version for pin in now)
        if driver is None:
            return No(
                WaitingOn.NO_SOLUTION, "no package of a driver lies on it: this is a first installation, not a repair"
            )
        flavour = (self.had.flavour if self.had else "") or facts.text("module.nvidia.flavour") or _flavour(now)
        pretended: dict[str, FactValue] = {_DISK: driver, "module.nvidia.flavour": flavour}
        whole = {path: Fact(path, value, "repair", facts.observed_at) for path, value in pretended.items()}
        all_of = replace(facts, facts={**{path: facts.facts[path] for path in facts.facts}, **whole})
        kind = node_class(all_of, self.managers)
        if kind is None:
            return No(WaitingOn.UNKNOWN_HEALTH, f"cannot be repaired: {', '.join(unknown_facts(all_of))}")
        packages = (
            self.had.packages
            if self.had
            else pins_from({pin.name: pin.version for pin in now if carries(pin.version, driver)})
        )
        # A repair has no way back, so what the repository has lost of today is no obstacle; what it needs, preflight asks for.
        offers = replace(kind.offers, lost=()) if isinstance(kind.offers, Offers) else kind.offers
        return replace(kind, loaded="", packages=packages, offers=offers)

    def _aim(self, kind: NodeClass, pool: Pool, now: Sequence[PackagePin]) -> "_Aim | No":
        if self.wanted is None and self.had is not None:
            # What it had, it can have: the pool's present wishes are for the next rollout.
            as_it_was = replace(pool, driver=_exactly(self.had.driver, kind.flavour), cuda=None)
            answer = self.solve(kind, as_it_was)
            whence = f"what it had when it was last whole, on {self.had.at}"
        else:
            fallback = _exactly(self.wanted or kind.driver, kind.flavour)
            named = self.wanted is not None or pool.driver is None
            answer = self.solve(kind, replace(pool, driver=fallback) if named else pool)
            whence = "as asked for" if self.wanted else f"what pool {pool.name} wants: it was never seen whole"
        if isinstance(answer, NoSolution):
            on = WaitingOn.UNKNOWN_HEALTH if answer.unknown else WaitingOn.NO_SOLUTION
            return No(on, sentence(answer.because))
        target, flavour = answer.chosen.driver.text, answer.chosen.flavour
        if target == kind.driver and flavour == kind.flavour and self.had is not None:
            return _Aim(answer, self.had.packages, whence)
        manager = next(each for each in self.managers if each.name == kind.manager)
        known = {pin.name: pin.version for pin in kind.packages}
        version = manager.version_text(target, known)
        named_by = self.carried(kind, target, flavour, version)
        return (
            No(WaitingOn.NO_SOLUTION, named_by.why)
            if isinstance(named_by, NotNamed)
            else _Aim(answer, manager.spelled(target, named_by.packages, known), whence)
        )

    def _way(
        self,
        facts: NodeFacts,
        kind: NodeClass,
        now: tuple[PackagePin, ...],
        aim: "_Aim",
        wrong: Sequence[str],
        pool: Pool,
    ) -> Way:
        target, flavour = aim.answer.chosen.driver.text, aim.answer.chosen.flavour
        reload = pool.reload is Permission.ALLOWED and not aim.answer.reboot
        upstream = target.partition("-")[0]
        wanted = {_LOADED: upstream, _DISK: upstream, _LIBRARY: upstream, "module.nvidia.flavour": flavour}
        step = Step(
            from_driver="+".join(dict.fromkeys(_upstream(pin.version) for pin in now)) or "nothing",
            to_driver=target,
            flavour=flavour,
            manager=kind.manager,
            packages=aim.packages,
            back=now,
            restart="reload" if reload else "reboot",
            expects=(*_found(facts, now), *self._lease()),
            done_when=stack_is(wanted, aim.packages),
            kind=StepKind.REPAIR,
        )
        count = facts.value("gpu.count")
        on_bus = facts.value("pci.gpus")
        gpus = count if isinstance(count, int) else on_bus if isinstance(on_bus, int) else 0
        said = (*aim.answer.because, *(aim.answer.reboot if pool.reload is Permission.ALLOWED else ()))
        because = (
            f"{REPAIRS} to {target}, {aim.whence}",
            *(f"{REPAIRS} {trouble}" for trouble in wrong),
            *(f"{REPAIRS} {line}" for line in _moves(facts, now, aim.packages)),
            *(f"{target}: {sentence(rule)}" for rule in said),
        )
        return Way(step, stratum(facts, kind), gpus, domain_of(facts), because)

    def _lease(self) -> tuple[Expectation, ...]:
        return (Expectation("lease.rollout_id", self.ours),) if self.ours else ()


@dataclass(frozen=True, slots=True)
class _Aim:
    """What the repair comes to: the answer of the solver, the packages, and in words whence."""

    answer: Solution
    packages: tuple[PackagePin, ...]
    whence: str


def _exactly(driver: str, flavour: str) -> DriverPolicy:
    return DriverPolicy(WantVersion(DriverVersion.parse(driver)), Flavour(flavour))


def _flavour(now: Iterable[PackagePin]) -> str:
    """The flavour by the names of the packages, where nothing else tells it any more."""
    names = [pin.name for pin in now if "dkms" in pin.name or "kernel" in pin.name]
    return (Flavour.OPEN if any("-open" in name for name in names) else Flavour.PROPRIETARY).value


def _most(versions: Iterable[str]) -> str | None:
    """The driver that most packages carry, the newest of several."""
    counted = Counter(_upstream(version) for version in versions)

    def order(driver: str) -> tuple[int, tuple[int, ...]]:
        try:
            return counted[driver], DriverVersion.parse(driver).numbers
        except VersionSyntaxError:
            return 0, ()

    return max(counted, key=order, default=None)


def _found(facts: NodeFacts, now: Iterable[PackagePin]) -> tuple[Expectation, ...]:
    """The packages exactly as they lie there: a node on which somebody has worked since is not the one that was planned for."""
    states = tuple((pin, facts.text(f"package[{pin.name}].state") or "") for pin in now)
    return (
        *(Expectation(f"package[{pin.name}].version", pin.version) for pin, _ in states),
        *(Expectation(f"package[{pin.name}].state", state) for pin, state in states),
    )


def _moves(facts: NodeFacts, now: Iterable[PackagePin], then: Iterable[PackagePin]) -> Iterator[str]:
    before, after = {pin.name: pin.version for pin in now}, {pin.name: pin.version for pin in then}
    for name in sorted({**before, **after}):
        state = facts.text(f"package[{name}].state")
        is_half = state not in (None, "installed")
        if before.get(name) == after.get(name) and not is_half:
            continue
        old = f"{before[name]}{f' ({state})' if is_half else ''}" if name in before else "none"
        yield f"{name} {old} -> {after.get(name, 'none')}"
