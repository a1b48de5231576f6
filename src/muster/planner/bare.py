"""From a node without any driver to the one step that brings its first. Pure.

The solver is asked as if the packages were there already: what it says of kernels, secure boot, fabric and CUDA holds for a first driver too.
What a bare node cannot tell (its GPUs' model) somebody must say. Whether the packages can be had, preflight asks.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from muster.knowledge.schema import PackageNeed, PackageSet
from muster.model.fact import Fact, FactValue, NodeFacts, Unknown
from muster.model.frozen import dataclass
from muster.model.plan import Expectation, Step, StepKind, WaitingOn
from muster.model.policy import DriverPolicy, Flavour, Permission, Pool, WantVersion
from muster.model.stack import PackagePin, pins_from
from muster.model.versions.driver import DriverVersion
from muster.planner.classes import node_class, unknown_facts
from muster.planner.mend import there
from muster.planner.standing import No, Solve, Way, held, image_booted, stack_is, stratum
from muster.ports import PackageManager
from muster.solver.problem import NoSolution
from muster.solver.words import sentence

INSTALLS = "installs:"
"""Begins a line of `Plan.because` on what a first installation brings."""

_SAME = ("kernel.running", "arch", "os.id", "os.version")
"""What of a bare node must be as it was seen."""


@dataclass(frozen=True, slots=True)
class Installer:
    """Judges the one bare node that is to get its first driver.

    `product` is its GPUs' model or family, as somebody said it; `wanted` the driver that somebody named. `set_of` gives what carries a branch
    (number) in a flavour on the class's distribution and package architecture. `brings` are lines on what else than packages comes.
    """

    pools: Mapping[str, Pool]
    managers: Sequence[PackageManager]
    solve: Solve
    set_of: Callable[[str, str, int, str], PackageSet | None]
    product: str
    drivers: Container[str]
    brings: tuple[str, ...]
    wanted: str | None = None

    def __call__(self, facts: NodeFacts, pool_name: str) -> No | Way:
        pool = self.pools[pool_name]
        refused = held(facts) or image_booted(facts) or self._has_one(facts)
        if refused is not None:
            return refused
        driver = self._driver(pool)
        if isinstance(driver, No):
            return driver
        flavour = (
            pool.driver.flavour.value
            if pool.driver is not None and pool.driver.flavour is not None
            else Flavour.OPEN.value
        )
        packages = self._packages(facts, driver, flavour)
        if isinstance(packages, No):
            return packages
        pretended: dict[str, FactValue] = {
            "gpu.product": self.product, "module.nvidia.flavour": flavour, "module.nvidia.disk_version": driver.upstream,
            "library.libcuda.version": driver.upstream,
        }  # fmt: skip
        made = {path: Fact(path, value, "install", facts.observed_at) for path, value in pretended.items()}
        all_of = replace(facts, facts={**{path: facts.facts[path] for path in facts.facts}, **made})
        kind = node_class(all_of, self.managers)
        if kind is None:
            return No(WaitingOn.UNKNOWN_HEALTH, f"cannot be installed on: {', '.join(unknown_facts(all_of))}")
        kind = replace(
            kind, packages=packages, loaded="", offers=Unknown("the policy's repository is asked by preflight")
        )
        wish = DriverPolicy(WantVersion(driver), Flavour(flavour))
        answer = self.solve(kind, replace(pool, driver=wish))
        if isinstance(answer, NoSolution):
            return No(WaitingOn.UNKNOWN_HEALTH if answer.unknown else WaitingOn.NO_SOLUTION, sentence(answer.because))
        nouveau = facts.value("nouveau.loaded") is not False
        reload = pool.reload is Permission.ALLOWED and not answer.reboot and not nouveau
        step = Step(
            from_driver="none",
            to_driver=driver.text,
            flavour=flavour,
            manager=kind.manager,
            packages=packages,
            back=(),
            restart="reload" if reload else "reboot",
            expects=tuple(Expectation(path, facts.text(path) or "") for path in _SAME),
            done_when=stack_is({**dict.fromkeys(_STACK, driver.upstream), "module.nvidia.flavour": flavour}, packages),
            kind=StepKind.INSTALL,
        )
        because = (
            f"{INSTALLS} {driver.text} ({flavour}) on a node without a driver, for {self.product}, as was said",
            *(f"{INSTALLS} {line}" for line in self.brings),
            *((f"{INSTALLS} nouveau has the GPUs now: the node restarts",) if nouveau else ()),
            *(f"{INSTALLS} {pin}" for pin in packages),
            *(f"{driver.text}: {sentence(rule)}" for rule in answer.because),
        )
        return Way(step, stratum(all_of, kind), _gpus(facts), "", because)

    def _has_one(self, facts: NodeFacts) -> No | None:
        """A node that has a driver, whole or not, or of which that cannot be told, is no bare one."""
        names = there(facts, self.drivers)
        on_disk, loaded = facts.value("module.nvidia.on_disk"), facts.value("module.nvidia.loaded")
        if names or on_disk is True or loaded is True:
            what = names[0] if names else "a module nvidia"
            return No(
                WaitingOn.NOTHING_TO_DO, f"has a driver already ({what}): muster nodes upgrade, or muster nodes repair"
            )
        if on_disk is not False or loaded is not False:
            return No(WaitingOn.UNKNOWN_HEALTH, "whether it has a driver is unknown")
        if facts.unread("package") is not None:
            return No(WaitingOn.UNKNOWN_HEALTH, f"the installed packages are unknown ({facts.unread('package')})")
        if facts.value("runfile.installed") is not False:
            return No(
                WaitingOn.NO_SOLUTION,
                "a .run install lies on it, or that cannot be told: on the node: nvidia-uninstall",
            )
        if not _gpus(facts):
            return No(WaitingOn.NO_SOLUTION, "no GPU of NVIDIA's is on its PCI bus")
        return None

    def _driver(self, pool: Pool) -> DriverVersion | No:
        if self.wanted is not None:
            return DriverVersion.parse(self.wanted)
        if pool.driver is not None and isinstance(pool.driver.wish, WantVersion):
            return pool.driver.wish.version
        return No(WaitingOn.NO_SOLUTION, f"pool {pool.name} names no driver version: say --driver VERSION")

    def _packages(self, facts: NodeFacts, driver: DriverVersion, flavour: str) -> tuple[PackagePin, ...] | No:
        system = f"{facts.text('os.id')}{facts.text('os.version')}".replace(".", "")
        arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(facts.text("arch") or "", "")
        number = int(driver.branch[1:])
        found = self.set_of(system, arch, number, flavour)
        if found is None:
            words = f"what carries R{number} ({flavour}) on {system} {arch} is not known: no package set names it"
            return No(WaitingOn.NO_SOLUTION, words)
        members = [member for member in found.members if member.need is PackageNeed.ALWAYS]
        version = driver.text if driver.revision else None
        return pins_from({each.name_for(number): version or f"{driver.upstream}{each.revision}" for each in members})


_STACK = ("module.nvidia.loaded_version", "module.nvidia.disk_version", "library.libcuda.version")


def _gpus(facts: NodeFacts) -> int:
    counts = [facts.value("pci.gpus"), facts.value("pci.gpus_elsewhere")]
    return sum(count for count in counts if isinstance(count, int))
