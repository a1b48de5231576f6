"""What really happened on loopback nodes, read from the nodes themselves and from nothing that Muster wrote down about them."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from muster.loopback.jobs import JobRecord, jobs_of, lease_present
from muster.model.frozen import dataclass

# dpkg.log's actions that change which version of a package is on the disk. `configure` is not among them: dpkg rightly repeats it to mend a
# half-configured package.
_CHANGES = frozenset({"install", "upgrade", "remove", "purge"})


@dataclass(frozen=True, slots=True)
class Transition:
    """One line of dpkg.log that changed a package: `old` or `new` is `<none>` where there is none. A downgrade is logged as upgrade."""

    at: str
    action: str
    package: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Truth:
    """A node as it is. `loaded` is the driver of the loaded kernel module, None when none is; `broken` names packages not fully installed."""

    name: str
    loaded: str | None
    library: str | None
    boot_id: str
    lease: bool
    broken: tuple[str, ...]
    transitions: tuple[Transition, ...]
    jobs: tuple[JobRecord, ...]

    @property
    def is_whole(self) -> bool:
        """Whether GPUs can be used: a module is loaded, the library is of the same version, every package is fully installed."""
        return self.loaded is not None and self.loaded == self.library and not self.broken

    @property
    def run_twice(self) -> int:
        """How many of its transitions were carried out more than once."""
        return run_twice(self.transitions)

    @property
    def jobs_killed(self) -> int:
        """How many of its jobs did not end by themselves."""
        return sum(job.state.startswith("killed") for job in self.jobs)


def observe(root: Path) -> Truth:
    """The truth of one node now."""
    return Truth(
        name=root.name,
        loaded=_text(root / "sys/module/nvidia/version"),
        library=_library(root),
        boot_id=_text(root / "proc/sys/kernel/random/boot_id") or "",
        lease=lease_present(root),
        broken=broken(root),
        transitions=transitions(root),
        jobs=jobs_of(root),
    )


def transitions(root: Path) -> tuple[Transition, ...]:
    """Every change of a package that the node's own dpkg logged, in order."""
    log = root / "var/log/dpkg.log"
    if not log.exists():
        return ()
    found = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        part = line.split()
        if len(part) == 6 and part[2] in _CHANGES:
            found.append(Transition(f"{part[0]} {part[1]}", *part[2:]))
    return tuple(found)


def run_twice(changes: Iterable[Transition]) -> int:
    """How many changes were carried out more than once: a second identical (action, package, old, new), or a version put over itself.

    An update that went A -> B, back B -> A and on A -> C counts 0. One that goes A -> B, B -> A and A -> B again counts the last: one
    rollout never does that. Give only the changes of the time in question when two rollouts did.
    """
    seen: Counter[tuple[str, str, str, str]] = Counter()
    repeated = 0
    for change in changes:
        key = (change.action, change.package, change.old, change.new)
        repeated += seen[key] > 0 or change.old == change.new
        seen[key] += 1
    return repeated


def broken(root: Path) -> tuple[str, ...]:
    """Packages that the node's dpkg database shows as neither installed nor absent."""
    found, name = [], ""
    for line in (root / "var/lib/dpkg/status").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(": ")
        if key == "Package":
            name = value
        elif key == "Status" and value.split()[-1] not in ("installed", "not-installed", "config-files"):
            found.append(name)
    return tuple(sorted(found))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:  # a node that restarts takes its files away between any two looks
        return None


def _library(root: Path) -> str | None:
    for link in sorted(root.glob("usr/lib/*/libnvidia-ml.so.1")):
        try:
            return str(link.readlink()).removeprefix("libnvidia-ml.so.")
        except FileNotFoundError:  # dpkg replaced it since it was listed
            continue
    return None
