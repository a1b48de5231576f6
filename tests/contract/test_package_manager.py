"""The contract of `ports.PackageManager`: what its texts promise, run by a real sh against a real package database in a node's folder.

A package manager that has no loopback node to run on yet brings one before it is taken in.
"""

import fcntl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from muster.control.bootstrap import fact_specs, package_managers
from muster.loopback.fleet import LoopbackFleet
from muster.loopback.nodes import Ran
from muster.loopback.observe import observe
from muster.loopback.packages import MEMBERS
from muster.model.fact import Fact, NodeFacts, RawOutput
from muster.model.stack import PackagePin
from muster.ports import PackageManager

OLD, BAD, NEW = "570.195.03", "580.119.02", "580.126.20"
KEEP = "/var/lib/muster/node/restore/run-1"
CONF = "etc/modprobe.d/nvidia.conf"
MANAGERS = package_managers()
NODES = 11


def pins(version: str) -> tuple[PackagePin, ...]:
    return tuple(PackagePin(member, f"{version}-1") for member in MEMBERS)


@dataclass(frozen=True)
class Machine:
    """One node of the test's own, on the old driver, and the manager under contract."""

    manager: PackageManager
    fleet: LoopbackFleet
    node: str

    @property
    def root(self) -> Path:
        return self.fleet.node_root(self.node)

    def sh(self, text: str) -> Ran:
        return self.fleet.run(self.node, "sh -s", stdin=text)

    def facts(self) -> NodeFacts:
        at = datetime(2026, 3, 1, tzinfo=UTC)
        found: dict[str, Fact] = {}
        for spec in fact_specs():
            ran = self.sh(spec.command)
            values = spec.parse(RawOutput(ran.exit_status, ran.stdout.encode()))
            found |= {path: Fact(path, value, spec.name, at) for path, value in values.items()}
        return NodeFacts(self.node, at, found)

    def states(self) -> Mapping[str, str]:
        """Package -> dpkg's three letters and the version."""
        shown = self.sh(r"dpkg-query -W -f '${Package} ${db:Status-Abbrev} ${Version}\n'").stdout
        return {line.split()[0]: " ".join(line.split()[1:]) for line in shown.splitlines()}

    def files(self) -> Mapping[str, float]:
        """What the package manager keeps about itself: its files with their times."""
        places = ("var/lib/dpkg", "var/lib/apt", "var/cache/apt", "etc")
        found = (path for place in places for path in (self.root / place).rglob("*"))
        return {str(path): path.stat().st_mtime for path in found if path.is_file()}

    def ready(self, wanted: str = NEW) -> None:
        """Fetched and saved."""
        assert self.sh(self.manager.fetch(pins(wanted), pins(OLD), KEEP)).exit_status == 0
        assert self.sh(self.manager.save(pins(OLD), KEEP)).exit_status == 0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> LoopbackFleet:
    names = [f"gpu{number:02d}" for number in range(1, NODES + 1)]
    return LoopbackFleet.create(
        tmp_path_factory.mktemp("contract") / "fleet", nodes=NODES, initial=dict.fromkeys(names, OLD)
    )


@pytest.fixture(scope="module")
def unused(fleet: LoopbackFleet) -> Iterator[str]:
    return iter(fleet.names)


@pytest.fixture(params=MANAGERS)
def machine(
    request: pytest.FixtureRequest, fleet: LoopbackFleet, unused: Iterator[str], covers: Callable[[str, str], None]
) -> Machine:
    covers("PackageManager", request.param)
    return Machine(MANAGERS[request.param], fleet, next(unused))


def test_facts_tell_what_is_installed_and_whose_node_it_is(machine: Machine) -> None:
    facts = machine.facts()
    assert machine.manager.serves(facts)
    assert machine.manager.installed(facts) == {pin.name: pin.version for pin in pins(OLD)}
    assert machine.manager.broken(facts) == ()
    assert machine.manager.version_text(NEW, machine.manager.installed(facts)) == f"{NEW}-1"
    assert machine.manager.version_text(f"{NEW}-2+site1", {}) == f"{NEW}-2+site1"


def test_preflight_passes_where_both_ways_are_complete_and_changes_nothing(machine: Machine) -> None:
    before = machine.files()
    ran = machine.sh(machine.manager.preflight(pins(NEW), pins(OLD)))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert machine.files() == before
    assert not list((machine.root / "tmp").iterdir())


def test_preflight_refuses_and_names_what_the_repository_lacks(machine: Machine) -> None:
    gone = machine.sh(machine.manager.preflight(pins("599.10"), pins(OLD)))
    assert gone.exit_status != 0
    assert "599.10-1" in gone.stdout
    no_way_back = machine.sh(machine.manager.preflight(pins(NEW), pins("560.10")))
    assert no_way_back.exit_status != 0
    assert "no way back" in no_way_back.stdout
    assert "libcuda1=560.10-1" in no_way_back.stdout


def test_fetching_changes_no_package_and_keeps_the_way_back_whole(machine: Machine) -> None:
    before = machine.states()
    for _ in range(2):
        ran = machine.sh(machine.manager.fetch(pins(NEW), pins(OLD), KEEP))
        assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert machine.states() == before
    kept = [path.name for path in (machine.root / KEEP.lstrip("/")).glob("*.deb")]
    assert sorted(name.partition("_")[0] for name in kept) == sorted(MEMBERS)


def test_a_way_back_that_is_damaged_is_no_restore_point(machine: Machine) -> None:
    assert machine.sh(machine.manager.fetch(pins(NEW), pins(OLD), KEEP)).exit_status == 0
    damaged = next((machine.root / KEEP.lstrip("/")).glob("libcuda1_*.deb"))
    damaged.write_bytes(damaged.read_bytes()[:-40])
    ran = machine.sh(machine.manager.save(pins(OLD), KEEP))
    assert ran.exit_status != 0
    assert "libcuda1" in ran.stdout


def test_installing_brings_exactly_the_pins_and_holds_them_and_a_second_time_does_nothing(machine: Machine) -> None:
    machine.ready()
    first = machine.sh(machine.manager.install(pins(NEW), pins(OLD)))
    assert first.exit_status == 0, first.stdout + first.stderr
    assert machine.states() == dict.fromkeys(MEMBERS, f"hi {NEW}-1")
    log = observe(machine.root).transitions
    assert machine.sh(machine.manager.install(pins(NEW), pins(OLD))).exit_status == 0
    assert observe(machine.root).transitions == log
    assert not (machine.root / "usr/sbin/policy-rc.d").exists()


def test_what_the_nodes_daily_jobs_do_between_fetching_and_installing_does_not_matter(machine: Machine) -> None:
    places = [machine.root / "var/lib/apt/lists/lock", machine.root / "var/cache/apt/archives/lock"]
    with places[0].open("a") as lists, places[1].open("a") as archives:
        for lock in (lists, archives):
            fcntl.lockf(lock, fcntl.LOCK_EX)
        machine.ready()
        machine.sh("rm -rf var/lib/apt/lists/*Packages* var/cache/apt/archives/*.deb")
        ran = machine.sh(machine.manager.install(pins(NEW), pins(OLD)))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert machine.states() == dict.fromkeys(MEMBERS, f"hi {NEW}-1")


def test_restoring_mends_what_a_failed_installation_left_and_gives_back_holds_and_configuration(
    machine: Machine,
) -> None:
    (machine.root / CONF).write_text("options nvidia NVreg_TemporaryFilePath=/tmp\n", encoding="utf-8")
    machine.sh("apt-mark hold libcuda1")
    before = machine.states()
    machine.ready(BAD)
    failed = machine.sh(machine.manager.install(pins(BAD), pins(OLD)))
    assert failed.exit_status != 0
    assert machine.manager.broken(machine.facts()) != ()
    for _ in range(2):
        ran = machine.sh(machine.manager.restore(pins(OLD), KEEP, pins(NEW)))
        assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert machine.states() == before
    assert machine.sh("dpkg --audit").stdout == ""
    assert (machine.root / CONF).read_text(encoding="utf-8").startswith("options nvidia NVreg_Temp")
    assert [path.name for path in (machine.root / CONF).parent.iterdir()] == ["nvidia.conf"]
    assert observe(machine.root).run_twice == 0
    assert not (machine.root / "usr/sbin/policy-rc.d").exists()


def test_restoring_needs_no_repository_and_none_of_the_nodes_own_lists_and_locks(machine: Machine) -> None:
    machine.ready()
    assert machine.sh(machine.manager.install(pins(NEW), pins(OLD))).exit_status == 0
    machine.sh("rm -rf var/lib/apt/lists/* var/cache/apt/archives/*.deb; : >etc/apt/sources.list")
    machine.sh("rm -rf var/lib/muster/node/apt")
    with (machine.root / "var/cache/apt/archives/lock").open("a") as archives:
        fcntl.lockf(archives, fcntl.LOCK_EX)
        ran = machine.sh(machine.manager.restore(pins(OLD), KEEP, pins(NEW)))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert machine.states() == dict.fromkeys(MEMBERS, f"ii {OLD}-1")


def test_a_policy_of_the_site_that_forbids_daemons_is_left_alone(machine: Machine) -> None:
    machine.ready()
    policy = machine.root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    policy.chmod(0o755)
    assert machine.sh(machine.manager.install(pins(NEW), pins(OLD))).exit_status == 0
    assert policy.read_text(encoding="ascii") == "#!/bin/sh\nexit 101\n"


def test_every_text_waits_for_the_package_managers_lock(machine: Machine) -> None:
    machine.ready()
    machine.fleet.hold_dpkg_lock(machine.node, 2)
    assert machine.sh(machine.manager.install(pins(NEW), pins(OLD))).exit_status == 0
    machine.fleet.hold_dpkg_lock(machine.node, 2)
    assert machine.sh(machine.manager.restore(pins(OLD), KEEP, pins(NEW))).exit_status == 0
    assert machine.states() == dict.fromkeys(MEMBERS, f"ii {OLD}-1")
