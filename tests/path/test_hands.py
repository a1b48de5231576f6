"""Laws of what people do by hand: approving, aborting, and cleaning the audit log."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.observe import Truth
from tests.support.desk import Desk, Said, make_fleet, until

OLD = "580.95.05"
BUSY, OTHER = "gpu01", "gpu02"


@dataclass(frozen=True)
class Story:
    fleet: LoopbackFleet
    desk: Desk
    approvals: Said
    aborted: Said
    ended: Said
    after: Mapping[str, Truth]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("hands")
    fleet = make_fleet(place / "fleet", dict.fromkeys((BUSY, OTHER), OLD))
    desk = Desk(fleet.layout.folder, place / "muster.db")
    for name in (BUSY, OTHER):
        fleet.start_job("long", [name], 600)
    desk.ok("collect")
    plan = desk.planned()
    approvals = desk.muster("plans", "approve", plan, "--json", LOGNAME="alice", USER="alice", USERNAME="alice")
    desk.ok("apply", plan, "--detach")
    until(lambda: "drain-required" in desk.phases().values())
    aborted = desk.muster("rollouts", "abort", "last", "--reason", "a full moon", "--json")
    ended = desk.muster("rollouts", "watch", "last", "--json")
    yield Story(fleet, desk, approvals, aborted, ended, {each.name: each for each in fleet.truth()})
    fleet.stop()


def test_a_person_counts_once_whatever_the_environment_says(story: Story) -> None:
    by = story.approvals.body["approved_by"]
    assert isinstance(by, list)
    assert len(by) == 1
    assert by[0]["by"] != "alice"


def test_an_aborted_rollout_begins_nothing_more_and_gives_back_what_it_holds(story: Story) -> None:
    assert story.aborted.exit_code == 0
    assert story.ended.exit_code == 6
    assert story.ended.body["state"] == "aborted"
    runs = story.ended.body["runs"]
    assert isinstance(runs, list)
    assert {run["phase"] for run in runs if run["released"]} == {"left-out"}
    for truth in story.after.values():
        assert truth.loaded == OLD
        assert not truth.lease
        assert [job.state for job in truth.jobs] == ["running"]


def test_an_aborted_rollout_does_not_go_on_when_it_is_applied_again(story: Story) -> None:
    again = story.desk.muster("apply", str(story.ended.body["plan_id"]), "--json")
    assert again.exit_code == 6
    assert again.body["state"] == "aborted"


def test_a_chain_that_lost_every_entry_does_not_hold(story: Story) -> None:
    copy = story.desk.store.with_name("copy.db")
    story.desk.copy_store(copy)
    with closing(sqlite3.connect(copy)) as on:
        on.execute("DELETE FROM audit")
        on.commit()
    said = story.desk.muster("audit", "verify", "last", "--store", str(copy), "--json")
    assert said.exit_code == 1
    assert said.body["entries"] == 0
