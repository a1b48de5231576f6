"""One node for each package manager under contract, on the old driver, and the same questions of all: what is there, held, kept, logged.

apt's is a node of the loopback fleet, dnf's a root of its own over this machine's programs (see `rpm_nodes`).
"""

import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from muster.control.bootstrap import fact_specs
from muster.loopback import packages as debs
from muster.loopback.fleet import LoopbackFleet
from muster.model.fact import Fact, NodeFacts, RawOutput
from muster.model.stack import PackagePin
from tests.support import rpm_nodes, rpms

OLD, BAD, NEW = "570.195.03", "580.119.02", "580.126.20"
KEEP = "/var/lib/muster/node/restore/run-1"


class Said(Protocol):
    """What a text said on a node."""

    @property
    def exit_status(self) -> int: ...
    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...


@dataclass(frozen=True)
class State:
    """One package: its version, whether it is held, and whether the database has it as whole."""

    version: str
    held: bool
    whole: bool = True


class PackageNode(Protocol):
    """A node as the contract sees it."""

    members: tuple[str, ...]
    """The names of its stack, sorted."""

    @property
    def root(self) -> Path: ...
    def sh(self, text: str) -> Said: ...
    def pins(self, driver: str) -> tuple[PackagePin, ...]: ...
    def states(self) -> Mapping[str, State]: ...
    def files(self) -> Mapping[str, float]:
        """What the package manager keeps about itself: its files with their times."""
        ...

    def changes(self) -> int:
        """How many transactions the package manager's own log has."""
        ...

    def audit(self) -> str:
        """What the package manager finds wrong with the node; nothing where all is whole."""
        ...

    def kept(self) -> Mapping[str, Path]:
        """The files of the way back, by package."""
        ...

    def hold(self, name: str) -> None: ...
    def busy(self, seconds: float) -> AbstractContextManager[None]:
        """Another program holds the package database for so long, and is over at the end."""
        ...

    def daily_jobs(self) -> AbstractContextManager[None]:
        """The node's own jobs renew lists and clean caches meanwhile: what they had is gone, and their locks are held."""
        ...

    def lose_repository(self) -> None:
        """No repository, no list and no cache is left, not even Muster's own."""
        ...


def facts_of(node: PackageNode, *sources: str) -> NodeFacts:
    """What the commands of these sources of facts tell of the node; without one, that for packages."""
    at = datetime(2026, 3, 1, tzinfo=UTC)
    found: dict[str, Fact] = {}
    for spec in (each for each in fact_specs() if each.name in (sources or ("dpkg",))):
        ran = node.sh(spec.command)
        values = spec.parse(RawOutput(ran.exit_status, ran.stdout.encode()))
        found |= {path: Fact(path, value, spec.name, at) for path, value in values.items()}
    return NodeFacts("node", at, found)


def _times(root: Path, places: tuple[str, ...]) -> Mapping[str, float]:
    found = (path for place in places for path in (root / place).rglob("*"))
    return {
        str(path): path.stat().st_mtime for path in found if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


@dataclass(frozen=True)
class AptNode:
    fleet: LoopbackFleet
    name: str
    members: tuple[str, ...] = (*sorted(debs.MEMBERS),)

    @property
    def root(self) -> Path:
        return self.fleet.node_root(self.name)

    def sh(self, text: str) -> Said:
        return self.fleet.run(self.name, "sh -s", stdin=text)

    def pins(self, driver: str) -> tuple[PackagePin, ...]:
        return tuple(PackagePin(member, f"{driver}-1") for member in self.members)

    def states(self) -> Mapping[str, State]:
        shown = self.sh(r"dpkg-query -W -f '${Package} ${db:Status-Abbrev} ${Version}\n'").stdout
        rows = (line.split() for line in shown.splitlines())
        return {name: State(version, letters[0] == "h", letters[1:] == "i") for name, letters, version in rows}

    def files(self) -> Mapping[str, float]:
        return _times(self.root, ("var/lib/dpkg", "var/lib/apt", "var/cache/apt", "etc"))

    def changes(self) -> int:
        log = self.root / "var/log/apt/history.log"
        return log.read_text(encoding="utf-8").count("Start-Date:") if log.exists() else 0

    def audit(self) -> str:
        return self.sh("dpkg --audit").stdout

    def kept(self) -> Mapping[str, Path]:
        return {path.name.partition("_")[0]: path for path in (self.root / KEEP.lstrip("/")).glob("*.deb")}

    def hold(self, name: str) -> None:
        self.sh(f"apt-mark hold {name}")

    @contextmanager
    def busy(self, seconds: float) -> Iterator[None]:
        self.fleet.hold_dpkg_lock(self.name, seconds)
        yield

    @contextmanager
    def daily_jobs(self) -> Iterator[None]:
        places = [self.root / "var/lib/apt/lists/lock", self.root / "var/cache/apt/archives/lock"]
        with places[0].open("a") as lists, places[1].open("a") as archives:
            for lock in (lists, archives):
                fcntl.lockf(lock, fcntl.LOCK_EX)
            self.sh("rm -rf var/lib/apt/lists/*Packages* var/cache/apt/archives/*.deb")
            yield

    def lose_repository(self) -> None:
        self.sh(
            "rm -rf var/lib/apt/lists/* var/cache/apt/archives/*.deb var/lib/muster/node/apt; : >etc/apt/sources.list"
        )


def apt_nodes(folder: Path, number: int) -> Iterator[AptNode]:
    names = [f"gpu{each:02d}" for each in range(1, number + 1)]
    fleet = LoopbackFleet.create(folder / "fleet", nodes=number, initial=dict.fromkeys(names, OLD))
    yield from (AptNode(fleet, name) for name in fleet.names)


_HOLD_LOCK = """
import fcntl, os, sys, time
lock = open('/var/lib/rpm/.rpm.lock', 'a')
fcntl.lockf(lock, fcntl.LOCK_EX)
print('held', flush=True)
time.sleep(float(sys.argv[1]))
"""

_TRANSACTIONS = """
import sqlite3
print(sqlite3.connect("/var/lib/dnf/history.sqlite").execute("select count(*) from trans").fetchone()[0])
"""


@dataclass(frozen=True)
class DnfNode:
    nodes: rpm_nodes.RpmNodes
    name: str
    members: tuple[str, ...] = rpms.MEMBERS

    @property
    def root(self) -> Path:
        return self.nodes.root(self.name)

    def sh(self, text: str) -> rpm_nodes.Said:
        return self.nodes.run(self.name, text)

    def pins(self, driver: str) -> tuple[PackagePin, ...]:
        return tuple(PackagePin(member, rpms.version_of(member, driver)) for member in self.members)

    def states(self) -> Mapping[str, State]:
        shown = self.sh(r"rpm -qa --qf '%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n'").stdout
        locks = self.locks()
        found: dict[str, State] = {}
        for name, version in (line.split() for line in shown.splitlines()):
            if name in self.members or "nvidia" in name:
                lock = f"{name}-{version if ':' in version else f'0:{version}'}.*"
                found[name] = State(version, lock in locks, name not in found)
        return found

    def locks(self) -> tuple[str, ...]:
        text = (self.root / "etc/dnf/plugins/versionlock.list").read_text(encoding="utf-8")
        return tuple(line for line in text.splitlines() if line and not line.startswith("#"))

    def files(self) -> Mapping[str, float]:
        return _times(self.root, ("var/lib/rpm", "var/lib/dnf", "var/cache/dnf", "var/lib/muster", "var/log", "etc"))

    def changes(self) -> int:
        return int(self.sh(f"python3 -c '{_TRANSACTIONS}'").stdout)

    def audit(self) -> str:
        return self.sh("rpm -qa 'nvidia*' '*nvidia*' | xargs rpm -V | grep -v ' c '").stdout

    def kept(self) -> Mapping[str, Path]:
        found = (self.root / KEEP.lstrip("/")).glob("*.rpm")
        return {path.name.rsplit("-", 2)[0]: path for path in found}

    def hold(self, name: str) -> None:
        said = self.sh(f"dnf versionlock add {name}")
        assert said.exit_status == 0, said.stdout + said.stderr

    @contextmanager
    def busy(self, seconds: float) -> Iterator[None]:
        with self.nodes.begin(self.name, ["python3", "-c", _HOLD_LOCK, str(seconds)]) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            yield

    @contextmanager
    def daily_jobs(self) -> Iterator[None]:
        self.sh(
            "rm -rf /var/cache/dnf/*; for lock in metadata download; do echo 1 >/var/cache/dnf/${lock}_lock.pid; done"
        )
        yield
        self.sh("rm -f /var/cache/dnf/*_lock.pid")

    def lose_repository(self) -> None:
        self.sh("rm -rf /etc/yum.repos.d/* /var/cache/dnf/* /var/lib/muster/node/dnf")


@contextmanager
def dnf_fleet(folder: Path) -> Iterator[Callable[[], DnfNode]]:
    """Makes nodes, one at each call; their repository is served as long as the context lasts."""
    made, repository, place = rpms.workshop(folder / "workshop"), folder / "repository", folder / "nodes"
    rpms.build(made, repository, (rpms.Release(OLD), rpms.Release(BAD, builds=False), rpms.Release(NEW)))
    rpms.index(made, repository)
    (repository / "key.asc").write_bytes(made.key.read_bytes())
    place.mkdir()
    with rpms.served(repository) as url, rpm_nodes.rpm_nodes(place) as nodes:
        wanted = " ".join(f"{member}-{rpms.version_of(member, OLD)}" for member in rpms.MEMBERS)
        nodes.template(f"cat >/etc/yum.repos.d/cuda.repo <<'END'\n{rpms.repo_file(url)}END\ndnf -yq install {wanted}\n")
        count = iter(range(1, 1000))

        def another() -> DnfNode:
            node = DnfNode(nodes, f"el{next(count)}")
            nodes.add(node.name)
            return node

        yield another


DNF_PROGRAMS = (*rpms.PROGRAMS, *rpm_nodes.PROGRAMS)
