"""Laws of a repair: from whatever lies on a node to the one whole stack it had, validated and in service; never from under a job or a person."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.observe import Truth, observe
from muster.loopback.packages import MEMBERS
from tests.support.desk import Desk, Said, make_fleet

OLD, BAD, GOOD = "580.95.05", "580.119.02", "580.126.20"
NODES = tuple(f"gpu{number:02d}" for number in range(1, 9))


@dataclass(frozen=True)
class Bench:
    """A fleet in front of a terminal, each of whose nodes is one test's own."""

    fleet: LoopbackFleet
    desk: Desk

    def truth(self, node: str) -> Truth:
        return observe(self.fleet.node_root(node))

    def by_hand(self, node: str, driver: str, *members: str) -> int:
        """Somebody brings packages of another driver onto the node, past Muster."""
        pins = " ".join(f"{member}={driver}-1" for member in members or MEMBERS)
        flags = "-y --allow-downgrades --allow-change-held-packages"
        return self.fleet.run(node, f"apt-get update -q; apt-get install {flags} {pins}").exit_status

    def cut_off(self, node: str) -> None:
        """What dpkg writes before it unpacks, and what stands there when the power goes before it is done."""
        status = self.fleet.node_root(node) / "var/lib/dpkg/status"
        head, name, rest = status.read_text(encoding="utf-8").partition("Package: libcuda1\n")
        before, stands, after = rest.partition("Status: ")
        cut = "install reinstreq half-installed\n" + after.partition("\n")[2]
        status.write_text(head + name + before + stands + cut, encoding="utf-8")

    def repaired(self, node: str, *words: str) -> Said:
        return self.desk.muster("nodes", "repair", node, "--yes", *words)

    def is_whole(self, node: str, driver: str) -> None:
        """The node runs `driver`, whole, held, and nobody holds the node."""
        truth = self.truth(node)
        assert (truth.loaded, truth.library, truth.broken, truth.lease) == (driver, driver, (), False)
        shown = self.fleet.run(node, r"dpkg-query -W -f '${Package} ${db:Status-Abbrev} ${Version}\n'").stdout
        assert sorted(shown.splitlines()) == sorted(f"{member} hi  {driver}-1" for member in MEMBERS)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    place = tmp_path_factory.mktemp("repair")
    fleet = make_fleet(place / "fleet", dict.fromkeys(NODES, OLD))
    desk = Desk(fleet.layout.folder, place / "muster.db")
    try:
        desk.ok("collect")
        yield Bench(fleet, desk)
    finally:
        fleet.stop()


def test_a_half_configured_node_gets_back_what_it_had_and_a_dry_run_says_all_of_it(bench: Bench) -> None:
    assert bench.by_hand("gpu01", BAD) != 0
    broken = bench.truth("gpu01").broken
    assert broken
    said = bench.desk.ok("nodes", "repair", "gpu01")
    assert f"repairs: to {OLD}, what it had when it was last whole" in said.out
    assert f"nvidia-kernel-open-dkms {BAD}-1 (half-configured) -> {OLD}-1" in said.out
    assert "no way back from its repair" in said.out
    assert bench.truth("gpu01").broken == broken
    done = bench.repaired("gpu01")
    assert done.exit_code == 0, done.out + done.err
    bench.is_whole("gpu01", OLD)
    assert bench.desk.ok("audit", "verify", "last", "--json").body["faults"] == []


def test_a_library_that_ran_ahead_of_the_module_comes_back_to_it(bench: Bench) -> None:
    debs = " ".join(
        f"{bench.fleet.layout.repository}/{member}_{GOOD}-1_*.deb" for member in ("libcuda1", "libnvidia-ml1")
    )
    assert bench.fleet.run("gpu02", f"dpkg --force-all -i {debs}").exit_status == 0
    assert bench.truth("gpu02").library == GOOD
    done = bench.repaired("gpu02")
    assert done.exit_code == 0, done.out + done.err
    bench.is_whole("gpu02", OLD)


def test_what_was_cut_off_in_mid_unpack_and_a_module_that_is_gone_come_back(bench: Bench) -> None:
    bench.cut_off("gpu03")
    root = bench.fleet.node_root("gpu03")
    next(root.glob("lib/modules/*/updates/dkms/nvidia.ko")).unlink()
    next(root.glob("usr/lib/*/libnvidia-ml.so.5*")).unlink()
    done = bench.repaired("gpu03")
    assert done.exit_code == 0, done.out + done.err
    bench.is_whole("gpu03", OLD)
    assert next(root.glob("usr/lib/*/libnvidia-ml.so.5*")).is_file()


def test_another_driver_can_be_named_for_it(bench: Bench) -> None:
    assert bench.by_hand("gpu04", BAD) != 0
    done = bench.repaired("gpu04", "--driver", GOOD)
    assert done.exit_code == 0, done.out + done.err
    bench.is_whole("gpu04", GOOD)


def test_no_node_is_repaired_from_under_a_job(bench: Bench) -> None:
    bench.fleet.start_job("train-1", ["gpu05"], 600)
    bench.cut_off("gpu05")
    said = bench.repaired("gpu05")
    assert said.exit_code == 4, said.out + said.err
    assert "a repair waits until nobody does" in said.err
    # A driver that does not work lists nobody; the node's kernel still does.
    assert bench.by_hand("gpu05", BAD) != 0
    broken = bench.truth("gpu05").broken
    said = bench.repaired("gpu05")
    assert said.exit_code == 5, said.out + said.err
    assert "a repair takes no node from a job" in said.out
    truth = bench.truth("gpu05")
    assert (truth.broken, truth.lease) == (broken, False)
    assert [job.state for job in truth.jobs] == ["running"]


def test_a_whole_node_is_left_as_it_is(bench: Bench) -> None:
    said = bench.repaired("gpu06")
    assert said.exit_code == 1, said.out + said.err
    assert f"is whole on {OLD}: nothing to repair" in said.out


def test_a_node_in_quarantine_is_taken_over_validated_and_given_back(bench: Bench) -> None:
    bench.fleet.set_knob("gpu07", "gpu-wrong")
    bench.desk.muster("nodes", "upgrade", "gpu07", "--driver", GOOD, "--yes")
    assert bench.desk.phases() == {"gpu07": "quarantined"}
    assert bench.truth("gpu07").lease
    bench.fleet.set_knob("gpu07", "gpu-wrong", None)
    done = bench.repaired("gpu07")
    assert done.exit_code == 0, done.out + done.err
    bench.is_whole("gpu07", OLD)


def test_a_node_is_held_without_a_package_changed_or_a_job_disturbed(bench: Bench) -> None:
    bench.fleet.run("gpu08", f"apt-mark unhold {' '.join(MEMBERS)}")
    bench.fleet.start_job("train-8", ["gpu08"], 600)
    before = bench.truth("gpu08").transitions
    dry = bench.desk.ok("nodes", "hold", "gpu08")
    assert "holds: unattended-upgrades keeps away from driver and kernel" in dry.out
    assert bench.fleet.run("gpu08", "apt-mark showhold").stdout == ""
    said = bench.desk.muster("nodes", "hold", "gpu08", "--yes")
    assert said.exit_code == 0, said.out + said.err
    truth = bench.truth("gpu08")
    assert (truth.transitions, truth.lease) == (before, False)
    assert [job.state for job in truth.jobs] == ["running"]
    assert bench.fleet.run("gpu08", "apt-mark showhold").stdout.split() == sorted(MEMBERS)
    assert "Package-Blacklist" in (bench.fleet.node_root("gpu08") / "etc/apt/apt.conf.d/52muster-driver").read_text()
    assert "52muster-driver" in bench.desk.ok("audit", "show", "last", "--json").out
