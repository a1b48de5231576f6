"""One change is one package transaction, whatever is killed and when: fifty kills over rollouts to and fro, counted in dpkg.log."""

from collections.abc import Iterator

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.packages import MEMBERS
from tests.support.desk import Desk, make_fleet
from tests.support.storm import Loopback, Storm, faults

DRIVERS = ("580.95.05", "580.126.20")
NODES = ("gpu01", "gpu02", "gpu03", "gpu04")
KILLS, SEED = 50, 20261130

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoopbackFleet, Storm]]:
    place = tmp_path_factory.mktemp("storm")
    fleet = make_fleet(
        place / "fleet",
        dict.fromkeys(NODES, DRIVERS[0]),
        {"max_unavailable: {pool: 50%}": "max_unavailable: {pool: 100%}"},
    )
    found = Storm(Desk(fleet.layout.folder, place / "muster.db"), Loopback(fleet), DRIVERS, KILLS, SEED)
    try:
        found.rage()
        yield fleet, found
    finally:
        fleet.stop()


def test_under_fifty_kills_each_change_is_one_transaction(storm: tuple[LoopbackFleet, Storm]) -> None:
    _, found = storm
    assert found.delivered.total() >= KILLS
    assert set(found.delivered) == {"carrier", "wrapper", "connection"}, found.delivered
    assert len(found.rollouts) >= 2
    assert faults(found, lambda driver: dict.fromkeys(MEMBERS, f"{driver}-1")) == []


def test_after_fifty_kills_every_node_is_whole_and_nobody_holds_it(storm: tuple[LoopbackFleet, Storm]) -> None:
    fleet, found = storm
    for truth in fleet.truth():
        assert truth.is_whole, (truth.name, truth.loaded, truth.library, truth.broken)
        assert not truth.lease, truth.name
    rollouts = found.desk.ok("rollouts", "list", "--json").data
    assert isinstance(rollouts, list)
    for rollout in rollouts:
        assert found.desk.ok("audit", "verify", rollout["rollout_id"], "--json").body["faults"] == []
