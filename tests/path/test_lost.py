"""Laws of lost connections: what a node was asked to do goes on without us, and is found done."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.observe import transitions
from tests.support.desk import LIMIT_S, Desk, make_fleet, until

OLD, GOOD = "580.95.05", "580.126.20"
DRIVERS = dict.fromkeys(("gpu01", "gpu02"), OLD)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackFleet]:
    fleet = make_fleet(tmp_path_factory.mktemp("lost") / "fleet", DRIVERS)
    yield fleet
    fleet.stop()


def test_a_change_goes_on_while_the_node_cannot_be_reached_and_is_found_done(fleet: LoopbackFleet) -> None:
    desk = Desk(fleet.layout.folder, fleet.layout.folder.parent / "muster.db")
    for node in DRIVERS:
        fleet.set_knob(node, "slow-package", "600")
    desk.ok("collect")
    plan = desk.planned()
    applying = desk.start("apply", plan, "--json")
    first = until_changing(fleet, [*DRIVERS])
    # The first node loses its network alone; at the second one the whole fleet's server is gone at once.
    fleet.set_knob(first, "unreachable")
    until(lambda: "unreachable" in desk.waiting(first))
    assert desk.phases()[first] == "apply-required"
    fleet.set_knob(first, "slow-package", None)
    until(lambda: changed(fleet, first))
    fleet.set_knob(first, "unreachable", None)
    second = until_changing(fleet, [node for node in DRIVERS if node != first])
    server = fleet.server_pid()
    assert server is not None
    os.kill(server, signal.SIGKILL)
    until(lambda: fleet.server_pid() is None)
    until(lambda: "unreachable" in desk.waiting(second))
    fleet.set_knob(second, "slow-package", None)
    until(lambda: changed(fleet, second))
    fleet.start()
    out, err = applying.communicate(timeout=LIMIT_S)
    assert applying.returncode == 0, err + out[-2000:]
    for each in fleet.truth():
        assert (each.loaded, each.is_whole, each.run_twice, each.lease) == (GOOD, True, 0, False)


def test_a_node_that_loses_power_in_the_middle_of_a_change_goes_back_and_the_rollout_halts(
    tmp_path: Path,
) -> None:
    fleet = make_fleet(tmp_path / "fleet", {"gpu01": OLD})
    try:
        desk = Desk(fleet.layout.folder, tmp_path / "muster.db")
        fleet.set_knob("gpu01", "slow-package", "600")
        desk.ok("collect")
        boot_id = fleet.truth()[0].boot_id
        applying = desk.start("apply", desk.planned(), "--json")
        until_changing(fleet, ["gpu01"])
        fleet.power_cut("gpu01")
        until(lambda: fleet.truth()[0].boot_id not in ("", boot_id))
        fleet.set_knob("gpu01", "slow-package", None)
        out, err = applying.communicate(timeout=LIMIT_S)
        after = fleet.truth()[0]
    finally:
        fleet.stop()
    assert applying.returncode == 6, err + out[-2000:]
    assert "interrupted by a restart of the node" in out
    assert after.boot_id != boot_id
    assert (after.loaded, after.is_whole, after.lease) == (OLD, True, False), out[-9000:]
    # The one package that the cut left half unpacked still bears its old version, and is rightly put over itself.
    assert after.run_twice <= 1


def until_changing(fleet: LoopbackFleet, nodes: list[str]) -> str:
    """The first of `nodes` whose packages are being changed."""
    found: list[str] = []

    def looks() -> bool:
        found[:] = [node for node in nodes if any(GOOD in each.new for each in transitions(fleet.node_root(node)))]
        return bool(found)

    until(looks)
    return found[0]


def changed(fleet: LoopbackFleet, node: str) -> bool:
    log = (fleet.node_root(node) / "var/log/dpkg.log").read_text(encoding="utf-8")
    return f"status installed nvidia-driver-cuda:amd64 {GOOD}-1" in log.replace(":arm64", ":amd64")
