"""Laws of one node's change by hand: the same plan, approval, lease and audit as a fleet's, and no other node is touched."""

from collections.abc import Iterator

import pytest

from muster.loopback.fleet import LoopbackFleet
from tests.support.desk import Desk, make_fleet

OLD, GOOD = "580.95.05", "580.126.20"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoopbackFleet, Desk]]:
    place = tmp_path_factory.mktemp("one")
    fleet = make_fleet(place / "fleet", dict.fromkeys(("gpu01", "gpu02"), OLD))
    try:
        yield fleet, Desk(fleet.layout.folder, place / "muster.db")
    finally:
        fleet.stop()


def loaded(fleet: LoopbackFleet) -> dict[str, str | None]:
    return {truth.name: truth.loaded for truth in fleet.truth()}


def test_one_node_goes_up_and_back_through_plan_approval_lease_and_audit(bench: tuple[LoopbackFleet, Desk]) -> None:
    fleet, desk = bench
    nothing = desk.muster("nodes", "rollback", "gpu01")
    assert nothing.exit_code == 4
    assert "nothing to go back to" in nothing.err
    only_planned = desk.ok("nodes", "upgrade", "gpu01", "--driver", GOOD)
    assert "approvals: 0 of 1" in only_planned.out
    assert loaded(fleet) == {"gpu01": OLD, "gpu02": OLD}
    desk.ok("nodes", "upgrade", "gpu01", "--driver", GOOD, "--yes")
    assert loaded(fleet) == {"gpu01": GOOD, "gpu02": OLD}
    assert desk.ok("audit", "verify", "last").exit_code == 0
    desk.ok("nodes", "rollback", "gpu01", "--yes")
    assert loaded(fleet) == {"gpu01": OLD, "gpu02": OLD}
    assert all(not truth.lease and truth.is_whole and not truth.broken for truth in fleet.truth())
    again = desk.muster("nodes", "upgrade", "gpu01", "--driver", OLD)
    assert again.exit_code == 1
