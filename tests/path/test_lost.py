"""Laws of lost connections: what a node was asked to do goes on without us, and is found done."""

import os
import signal
from collections.abc import Iterator

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.observe import transitions
from tests.support.desk import Desk, make_fleet, until

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
        fleet.set_knob(node, "slow-package", "1.5")
    desk.ok("collect")
    plan = desk.planned()
    applying = desk.start("apply", plan, "--json")
    first = until_changing(fleet, [*DRIVERS])
    # The first node loses its network alone; at the second one the whole fleet's server is gone at once.
    fleet.set_knob(first, "unreachable")
    until(lambda: "unreachable" in str(desk.runs()[first]["waiting"]))
    assert desk.phases()[first] == "apply-required"
    until(lambda: changed(fleet, first))
    fleet.set_knob(first, "unreachable", None)
    second = until_changing(fleet, [node for node in DRIVERS if node != first])
    server = fleet.server_pid()
    assert server is not None
    os.kill(server, signal.SIGKILL)
    until(lambda: "unreachable" in str(desk.runs()[second]["waiting"]))
    until(lambda: changed(fleet, second))
    fleet.start()
    out, err = applying.communicate(timeout=90)
    assert applying.returncode == 0, err + out[-2000:]
    for each in fleet.truth():
        assert (each.loaded, each.is_whole, each.run_twice, each.lease) == (GOOD, True, 0, False)


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
