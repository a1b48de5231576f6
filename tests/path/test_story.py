"""Laws of the whole path: a mixed fleet, a driver that does not build, then one that does."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.observe import Truth
from muster.loopback.packages import MEMBERS
from tests.support.desk import Desk, Said, make_fleet

OLD, OTHER, BAD, GOOD = "570.195.03", "580.95.05", "580.119.02", "580.126.20"
DRIVERS = {"gpu01": OLD, "gpu02": OLD, "gpu03": OLD, "gpu04": OTHER}
CONF = "etc/modprobe.d/nvidia.conf"
CONF_TEXT = "options nvidia NVreg_OpenRmEnableUnsupportedGpus=1\n"


@dataclass(frozen=True)
class Story:
    """What a user did with the bad driver, in order, and the nodes before and after."""

    fleet: LoopbackFleet
    desk: Desk
    status: Said
    plan: Said
    unapproved: Said
    applied: Said
    before: dict[str, Truth]
    after: dict[str, Truth]
    holds: dict[str, tuple[str, str]]

    @property
    def canary(self) -> str:
        stages = self.plan.body["plan"]
        assert isinstance(stages, dict)
        return str(stages["stages"][0]["groups"][0][0])


@dataclass(frozen=True)
class Ending:
    """What the user did with the good driver after it."""

    desk: Desk
    applied: Said
    check: Said
    plan: Said
    again: Said
    after: dict[str, Truth]


def held(fleet: LoopbackFleet, node: str) -> str:
    return fleet.run(node, "apt-mark showhold").stdout


def truth(fleet: LoopbackFleet) -> dict[str, Truth]:
    return {each.name: each for each in fleet.truth()}


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("story")
    fleet = make_fleet(place / "fleet", DRIVERS)
    desk = Desk(fleet.layout.folder, place / "muster.db")
    for node in fleet.names:
        (fleet.node_root(node) / CONF).write_text(CONF_TEXT, encoding="utf-8")
        fleet.run(node, "apt-mark hold libcuda1 nvidia-driver-cuda")
    before, holds = truth(fleet), {node: held(fleet, node) for node in fleet.names}
    desk.ok("collect", "--json")
    status = desk.ok("status", "--json")
    plan = desk.ok("plan", "--driver", BAD, "--json")
    plan_id = str(plan.body["id"])
    unapproved = desk.muster("apply", plan_id, "--json")
    desk.ok("plans", "approve", plan_id, "--json")
    applied = desk.muster("apply", plan_id, "--json")
    kept = {node: (holds[node], held(fleet, node)) for node in fleet.names}
    yield Story(fleet, desk, status, plan, unapproved, applied, before, truth(fleet), kept)
    fleet.stop()


@pytest.fixture(scope="module")
def good(bad: Story) -> Ending:
    desk = bad.desk
    plan_id = desk.planned()
    applied = desk.muster("apply", plan_id, "--json")
    after = truth(bad.fleet)
    return Ending(
        desk,
        applied,
        desk.muster("check", "--json"),
        desk.muster("plan", "--json"),
        desk.muster("apply", plan_id),
        after,
    )


def test_the_mixed_fleet_is_seen_as_it_is(bad: Story) -> None:
    groups = bad.status.body["groups"]
    assert isinstance(groups, list)
    seen = {(group["pool"], group["driver"]): group["names"] for group in groups}
    assert seen == {("train", OLD): ["gpu01", "gpu02"], ("inference", OLD): ["gpu03"], ("inference", OTHER): ["gpu04"]}


def test_a_plan_begins_with_a_canary_of_one_and_has_later_stages(bad: Story) -> None:
    plan = bad.plan.body["plan"]
    assert isinstance(plan, dict)
    first, *later = plan["stages"]
    assert first["canary"]
    assert len(first["groups"][0]) == 1
    assert later
    assert sorted(node for stage in plan["stages"] for node in stage["nodes"]) == sorted(DRIVERS)


def test_a_plan_that_nobody_approved_is_not_carried_out(bad: Story) -> None:
    assert bad.unapproved.exit_code == 4
    assert bad.unapproved.body["code"] == "MST-POLICY-002"
    assert "approve" in str(bad.unapproved.body["hint"])


def test_a_bad_driver_halts_at_the_first_canary_with_exit_code_6(bad: Story) -> None:
    assert bad.applied.exit_code == 6
    assert bad.applied.body["state"] == "halted"
    assert bad.canary in str(bad.applied.body["why"])
    assert "Bad return status for module build" in str(bad.applied.body["why"])


def test_only_the_first_canary_was_exposed_to_the_bad_driver(bad: Story) -> None:
    touched = [name for name, each in bad.after.items() if any(BAD in change.new for change in each.transitions)]
    assert touched == [bad.canary]


def test_the_canary_went_back_by_itself_to_what_it_was(bad: Story) -> None:
    before, after = bad.before[bad.canary], bad.after[bad.canary]
    assert after.is_whole
    assert (after.loaded, after.library) == (before.loaded, before.library)
    assert after.run_twice == 0
    for member in MEMBERS:
        found = bad.fleet.run(bad.canary, f"dpkg-query -W -f '${{db:Status-Abbrev}}${{Version}}' {member}").stdout
        assert found.split()[-1] == f"{DRIVERS[bad.canary]}-1"
        assert found.split()[0] in ("ii", "hi")
    assert bad.fleet.run(bad.canary, "dpkg --audit").stdout == ""


def test_holds_and_changed_configuration_are_as_before(bad: Story) -> None:
    assert all(before == after for before, after in bad.holds.values())
    for node in DRIVERS:
        conf = bad.fleet.node_root(node) / CONF
        assert conf.read_text(encoding="utf-8") == CONF_TEXT
        assert [each.name for each in conf.parent.iterdir()] == [conf.name]


def test_no_lease_is_left_after_a_halted_rollout(bad: Story) -> None:
    assert not any(each.lease for each in bad.after.values())


def test_no_daemon_policy_of_ours_is_left_on_a_node(bad: Story) -> None:
    assert not (bad.fleet.node_root(bad.canary) / "usr/sbin/policy-rc.d").exists()


def test_the_audit_log_holds_every_command_before_it_ran_and_its_chain_holds(bad: Story) -> None:
    verified = bad.desk.ok("audit", "verify", "last", "--json")
    assert verified.body["faults"] == []
    shown = bad.desk.ok("audit", "show", "last", "--json").out
    assert "--allow-downgrades" in shown


def test_a_changed_audit_row_is_found(bad: Story, tmp_path: Path) -> None:
    bad.desk.copy_store(tmp_path / "muster.db")
    with closing(sqlite3.connect(tmp_path / "muster.db")) as on, on:
        on.execute("UPDATE audit SET actor = 'nobody' WHERE seq = 3")
    verified = Desk(bad.desk.folder, tmp_path / "muster.db").muster("audit", "verify", "last", "--json")
    assert verified.exit_code == 1
    assert verified.body["faults"] == ["entry 3: its content was changed"]


def test_a_driver_that_failed_on_this_fleet_is_not_planned_again_without_a_word(bad: Story) -> None:
    again = bad.desk.muster("plan", "--driver", BAD, "--json").body["lint"]
    assert isinstance(again, list)
    assert any(note["severity"] == "advice" and "halted here" in note["says"] for note in again)


def test_a_good_driver_reaches_every_node_once(good: Ending) -> None:
    assert good.applied.exit_code == 0, good.applied.err
    assert good.applied.body["state"] == "done"
    for each in good.after.values():
        assert each.is_whole
        assert each.loaded == GOOD
        assert each.run_twice == 0
        assert not each.lease


def test_after_a_rollout_the_fleet_is_known_as_it_is_now(good: Ending) -> None:
    assert good.check.exit_code == 0, good.check.out


def test_a_second_plan_is_empty_and_says_so_with_exit_code_1(good: Ending) -> None:
    assert good.plan.exit_code == 1
    plan = good.plan.body["plan"]
    assert isinstance(plan, dict)
    assert plan["nodes"] == []
    assert {left["on"] for left in plan["left_out"]} == {"nothing-to-do"}


def test_a_plan_that_was_carried_out_is_not_carried_out_again(good: Ending) -> None:
    assert good.again.exit_code == 0
    assert "carried out already" in good.again.out
    assert good.desk.carrier() is None


def test_every_driver_package_is_held_after_a_rollout(good: Ending, bad: Story) -> None:
    for node in DRIVERS:
        assert held(bad.fleet, node).split() == sorted(MEMBERS)
