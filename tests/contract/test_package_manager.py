"""The contract of `ports.PackageManager`: what its texts promise, run by a real sh against a real package database in a node's folder.

A package manager that has no node to run on yet brings one (`tests/support/package_nodes.py`) before it is taken in.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.control.bootstrap import package_managers
from muster.loopback.observe import observe
from muster.model.fact import NodeFacts
from muster.model.stack import PackagePin, pins_from
from muster.ports import PackageManager
from tests.support.package_nodes import (
    BAD,
    DNF_PROGRAMS,
    KEEP,
    NEW,
    OLD,
    PackageNode,
    Said,
    State,
    apt_nodes,
    dnf_fleet,
    facts_of,
)

CONF = "etc/modprobe.d/nvidia.conf"
MANAGERS = package_managers()
NODES = 14
NEEDS: Mapping[str, tuple[pytest.MarkDecorator, ...]] = {"apt": (), "dnf": (pytest.mark.lab(*DNF_PROGRAMS),)}


@dataclass(frozen=True)
class Machine:
    """One node of the test's own, on the old driver, and the manager under contract."""

    manager: PackageManager
    node: PackageNode

    @property
    def root(self) -> Path:
        return self.node.root

    def sh(self, text: str) -> Said:
        return self.node.sh(text)

    def pins(self, driver: str) -> tuple[PackagePin, ...]:
        return self.node.pins(driver)

    def facts(self) -> NodeFacts:
        return facts_of(self.node)

    def all_on(self, driver: str, *, held: bool = False) -> Mapping[str, State]:
        return {pin.name: State(pin.version, held) for pin in self.pins(driver)}

    def done(self, text: str) -> None:
        """Run a text of the manager's that must keep its promise."""
        ran = self.sh(text)
        assert ran.exit_status == 0, ran.stdout + ran.stderr

    def ready(self, wanted: str = NEW) -> None:
        """Fetched and saved."""
        self.done(self.manager.fetch(self.pins(wanted), self.pins(OLD), KEEP))
        self.done(self.manager.save(self.pins(OLD), KEEP))


@pytest.fixture(scope="module")
def makers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], PackageNode]]:
    """Makes a node for a manager; what all nodes of a manager share is made with its first."""
    with ExitStack() as stack:
        found: dict[str, Callable[[], PackageNode]] = {}

        def another(manager: str) -> PackageNode:
            if manager not in found:
                folder = tmp_path_factory.mktemp(manager)
                found[manager] = (
                    apt_nodes(folder, NODES).__next__ if manager == "apt" else stack.enter_context(dnf_fleet(folder))
                )
            return found[manager]()

        yield another


@pytest.fixture(params=[pytest.param(name, marks=NEEDS[name]) for name in MANAGERS])
def machine(
    request: pytest.FixtureRequest, makers: Callable[[str], PackageNode], covers: Callable[[str, str], None]
) -> Machine:
    covers("PackageManager", request.param)
    return Machine(MANAGERS[request.param], makers(request.param))


def test_facts_tell_what_is_installed_and_whose_node_it_is(machine: Machine) -> None:
    facts = machine.facts()
    assert [name for name, each in MANAGERS.items() if each.serves(facts)] == [machine.manager.name]
    installed = machine.manager.installed(facts)
    assert {name: installed[name] for name in machine.node.members} == {
        pin.name: pin.version for pin in machine.pins(OLD)
    }
    assert machine.manager.broken(facts) == ()


def test_versions_are_spelled_as_those_that_are_installed(machine: Machine) -> None:
    known = {pin.name: pin.version for pin in machine.pins(OLD)}
    version = machine.manager.version_text(NEW, known)
    assert version in {pin.version for pin in machine.pins(NEW)}
    assert machine.manager.version_text(f"{NEW}-2+site1", {}) == f"{NEW}-2+site1"
    assert machine.manager.spelled(NEW, pins_from(dict.fromkeys(known, version)), known) == machine.pins(NEW)


def test_preflight_passes_where_both_ways_are_complete_and_changes_nothing(machine: Machine) -> None:
    before = machine.node.files()
    ran = machine.sh(machine.manager.preflight(machine.pins(NEW), machine.pins(OLD)))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert machine.node.files() == before
    assert not list((machine.root / "tmp").iterdir())


def test_preflight_refuses_and_names_what_the_repository_lacks(machine: Machine) -> None:
    gone = machine.sh(machine.manager.preflight(machine.pins("599.10"), machine.pins(OLD)))
    assert gone.exit_status != 0
    assert "599.10-1" in gone.stdout
    no_way_back = machine.sh(machine.manager.preflight(machine.pins(NEW), machine.pins("560.10")))
    assert no_way_back.exit_status != 0
    assert "no way back" in no_way_back.stdout
    assert str(machine.pins("560.10")[0]) in no_way_back.stdout


def test_fetching_changes_no_package_and_keeps_the_way_back_whole(machine: Machine) -> None:
    before = machine.node.states()
    for _ in range(2):
        machine.done(machine.manager.fetch(machine.pins(NEW), machine.pins(OLD), KEEP))
    assert machine.node.states() == before
    assert sorted(machine.node.kept()) == sorted(machine.node.members)


def test_a_way_back_that_is_damaged_is_no_restore_point(machine: Machine) -> None:
    machine.done(machine.manager.fetch(machine.pins(NEW), machine.pins(OLD), KEEP))
    name, damaged = sorted(machine.node.kept().items())[0]
    damaged.write_bytes(damaged.read_bytes()[:-40])
    ran = machine.sh(machine.manager.save(machine.pins(OLD), KEEP))
    assert ran.exit_status != 0
    assert name in ran.stdout


def test_installing_brings_exactly_the_pins_in_one_transaction_and_a_second_time_does_nothing(machine: Machine) -> None:
    machine.ready()
    before = machine.node.changes()
    machine.done(machine.manager.install(machine.pins(NEW), machine.pins(OLD)))
    assert machine.node.states() == machine.all_on(NEW, held=True)
    assert machine.node.changes() == before + 1
    machine.done(machine.manager.install(machine.pins(NEW), machine.pins(OLD)))
    assert machine.node.states() == machine.all_on(NEW, held=True)
    assert machine.node.changes() == before + 1


def test_what_the_nodes_daily_jobs_do_between_fetching_and_installing_does_not_matter(machine: Machine) -> None:
    with machine.node.daily_jobs():
        machine.ready()
        machine.done(machine.manager.install(machine.pins(NEW), machine.pins(OLD)))
    assert machine.node.states() == machine.all_on(NEW, held=True)


def test_restoring_mends_what_a_failed_installation_left_and_gives_back_holds_and_configuration(
    machine: Machine,
) -> None:
    (machine.root / CONF).write_text("options nvidia NVreg_TemporaryFilePath=/tmp\n", encoding="utf-8")
    machine.node.hold(machine.node.members[1])
    before = machine.node.states()
    machine.ready(BAD)
    failed = machine.sh(machine.manager.install(machine.pins(BAD), machine.pins(OLD)))
    assert failed.exit_status != 0
    assert machine.manager.broken(machine.facts()) != ()
    for _ in range(2):
        machine.done(machine.manager.restore(machine.pins(OLD), KEEP, machine.pins(NEW)))
    assert machine.node.states() == before
    assert machine.node.audit() == ""
    assert machine.manager.broken(machine.facts()) == ()
    assert (machine.root / CONF).read_text(encoding="utf-8").startswith("options nvidia NVreg_Temp")
    assert [path.name for path in (machine.root / CONF).parent.iterdir()] == ["nvidia.conf"]


def test_restoring_needs_no_repository_and_none_of_the_nodes_own_lists_and_locks(machine: Machine) -> None:
    machine.ready()
    machine.done(machine.manager.install(machine.pins(NEW), machine.pins(OLD)))
    with machine.node.daily_jobs():
        machine.node.lose_repository()
        machine.done(machine.manager.restore(machine.pins(OLD), KEEP, machine.pins(NEW)))
    assert machine.node.states() == machine.all_on(OLD)


def test_every_text_waits_for_the_package_managers_lock(machine: Machine) -> None:
    machine.ready()
    with machine.node.busy(2):
        machine.done(machine.manager.install(machine.pins(NEW), machine.pins(OLD)))
    with machine.node.busy(2):
        machine.done(machine.manager.restore(machine.pins(OLD), KEEP, machine.pins(NEW)))
    assert machine.node.states() == machine.all_on(OLD)


@pytest.fixture
def debian(makers: Callable[[str], PackageNode]) -> Machine:
    return Machine(MANAGERS["apt"], makers("apt"))


def test_of_apts_transitions_none_is_carried_out_twice(debian: Machine) -> None:
    debian.ready(BAD)
    assert debian.sh(debian.manager.install(debian.pins(BAD), debian.pins(OLD))).exit_status != 0
    debian.done(debian.manager.restore(debian.pins(OLD), KEEP, debian.pins(NEW)))
    assert observe(debian.root).run_twice == 0
    assert not (debian.root / "usr/sbin/policy-rc.d").exists()


def test_a_policy_of_the_site_that_forbids_daemons_is_left_alone(debian: Machine) -> None:
    debian.ready()
    policy = debian.root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    policy.chmod(0o755)
    debian.done(debian.manager.install(debian.pins(NEW), debian.pins(OLD)))
    assert policy.read_text(encoding="ascii") == "#!/bin/sh\nexit 101\n"


def test_what_a_cut_off_unpacking_left_behind_goes_on_the_way_back_and_nothing_else(debian: Machine) -> None:
    """dpkg lays the new files down before it writes down that they are there: a power cut in between leaves files that no package has."""
    debian.ready()
    (library,) = debian.root.glob(f"usr/lib/*/libcuda.so.{OLD}")
    left = library.with_name(f"libcuda.so.{NEW}")
    half = library.with_name(f"libcuda.so.{NEW}.dpkg-new")
    others = library.with_name(f"libsite.so.{NEW}")
    for file in (left, half, others):
        file.write_bytes(b"cut")
    debian.done(debian.manager.restore(debian.pins(OLD), KEEP, debian.pins(NEW)))
    assert (left.exists(), half.exists(), others.exists(), library.exists()) == (False, False, True, True)
    debian.done(debian.manager.install(debian.pins(NEW), debian.pins(OLD)))
    assert left.exists()
