"""Nodes that somebody else broke come back whole by `muster nodes repair`, on real apt and dpkg; what the archive lost is kept all the same."""

from collections.abc import Callable, Sequence

import pytest

from lab import repository
from lab.node import until
from lab.packages import OPEN, RELEASES, Package, names
from lab.tools import PROGRAMS
from tests.nspawn.conftest import OLD, Bench
from tests.support.desk import Said

NEW, BAD = "595.71.05", "595.58.03"
SOURCES = {release.version: release for release in RELEASES}
EXCLUSION = "etc/apt/apt.conf.d/52muster-driver"
LIMIT_S = 180.0

pytestmark = [pytest.mark.slow, pytest.mark.lab(*PROGRAMS), pytest.mark.xdist_group("nspawn")]


def by_hand(driver: str) -> str:
    """Somebody's own upgrade, past Muster."""
    release = SOURCES[driver]
    pins = " ".join(f"{name}={release.package_version}" for name in names(release, OPEN).all)
    freed = "apt-mark unhold $(apt-mark showhold) >/dev/null; apt-get -q update"
    return f"{freed} && DEBIAN_FRONTEND=noninteractive apt-get -q -y install {pins}"


def repaired(bench: Bench, *words: str) -> Said:
    return bench.desk.muster("nodes", "repair", bench.node.name, "--yes", *words)


def is_whole_on(bench: Bench, driver: str) -> None:
    truth = bench.node.truth()
    wanted = names(SOURCES[driver], OPEN).all
    assert {truth["loaded"], truth["library"], truth["disk"]} == {driver}, truth
    assert truth["packages"].split() == [f"{name}={SOURCES[driver].package_version}" for name in wanted]
    assert (truth["audit"], truth["lease"]) == ("", "")
    assert set(wanted) <= set(truth["holds"].split())


def lose(bench: Bench, driver: str) -> None:
    """The archive loses a driver's packages, as NVIDIA's did more than once."""
    for deb in (bench.lab.folder / "apt/pool").glob(f"*_{SOURCES[driver].package_version}_*.deb"):
        deb.unlink()
    repository.index(bench.lab.folder / "apt")


def test_an_upgrade_by_hand_that_lost_power_in_mid_unpack_is_undone(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.desk.ok("collect")
    bench.node.set_knob("slow-unpack", "30")
    bench.node.ok(f"systemd-run --quiet --unit=upgrade sh -c '{by_hand(NEW)}'")
    until(lambda: bench.node.sh("pgrep -fx 'sleep 30'").exit_status == 0, "the unpacking", LIMIT_S)
    bench.node.set_knob("slow-unpack", None)
    bench.node.power_cut()
    assert bench.node.truth()["audit"] != ""
    said = repaired(bench)
    assert said.exit_code == 0, said.out + said.err
    is_whole_on(bench, OLD)


def test_half_of_another_drivers_names_go_and_a_driver_can_be_named(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.desk.ok("collect")
    assert bench.node.sh(by_hand(BAD)).exit_status != 0
    assert bench.node.truth()["audit"] != ""
    dry = bench.desk.ok("nodes", "repair", bench.node.name)
    assert "nvidia-dkms-open 595.58.03-1ubuntu1 (half-configured) -> none" in dry.out
    said = repaired(bench)
    assert said.exit_code == 0, said.out + said.err
    is_whole_on(bench, OLD)
    left = bench.node.ok("dpkg-query -W -f '${Package} ${db:Status-Status}\\n' '*nvidia*' | grep config-files || true")
    assert left == ""
    # The archive loses what the node had: it is on the node, kept by the repair, and serves the next one.
    lose(bench, OLD)
    assert bench.node.sh(by_hand(BAD)).exit_status != 0
    said = repaired(bench)
    assert said.exit_code == 0, said.out + said.err
    is_whole_on(bench, OLD)
    bench.node.ok("rm -rf /var/lib/muster/node/restore/*")
    assert bench.node.sh(by_hand(BAD)).exit_status != 0
    said = repaired(bench)
    assert said.exit_code == 5, said.out + said.err
    assert "cannot be had" in said.out
    said = repaired(bench, "--driver", NEW)
    assert said.exit_code == 0, said.out + said.err
    is_whole_on(bench, NEW)


def test_what_the_archive_lost_is_packed_again_from_the_node_and_is_its_way_back(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    lose(bench, OLD)
    # Lists of yesterday still offer it: the node's own, by which a plan is made.
    said = bench.change(BAD)
    assert bench.phase() == "rolled-back", said.out + said.err
    assert "packed again from the node" in said.out
    is_whole_on(bench, OLD)


def test_kernel_and_automatic_upgrades_are_held_with_a_change_and_as_before_after_a_way_back(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    kernel: Sequence[str] = ("linux-image-6.8.0-41-generic", "linux-image-generic")
    repository.add(bench.lab.folder / "apt", [Package(name, "6.8.0-41.41", {"Source": "linux"}) for name in kernel])
    bench.node.ok(f"apt-get -q update && apt-get -q -y install {' '.join(kernel)}")
    assert bench.change(BAD).exit_code == 6
    assert not set(kernel) & set(bench.node.truth()["holds"].split())
    assert not (bench.node.root / EXCLUSION).exists()
    said = bench.change(NEW)
    assert said.exit_code == 0, said.out + said.err
    assert set(kernel) <= set(bench.node.truth()["holds"].split())
    listed = bench.node.ok("apt-config dump Unattended-Upgrade::Package-Blacklist")
    assert '"nvidia";' in listed
    assert '"linux-image";' in listed
    scripts = [
        line for line in bench.desk.ok("audit", "show", "last", "--json").out.splitlines() if "52muster-driver" in line
    ]
    assert any('"install-packages"' in line for line in scripts)
