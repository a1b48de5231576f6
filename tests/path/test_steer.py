"""Pause, resume and roll back a rollout by hand: what stands still, what goes on, and what comes back."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from muster.loopback.fleet import LoopbackFleet
from tests.support.desk import Desk, Said, make_fleet, until

OLD, NEW = "580.95.05", "580.126.20"
NAMES = ("gpu01", "gpu02", "gpu03")


@dataclass
class Story:
    fleet: LoopbackFleet
    paused: Said
    halted_by_pause: dict[str, str]
    """The phase of each node when the paused rollout had no carrier any more."""
    stood: dict[str, str]
    """The same, after the job that one of them waited for had ended."""
    twice: Said
    ended: Said
    after: dict[str, str]
    back: Said
    refused: Said
    went_back: Said
    at_last: dict[str, str]


def loaded(fleet: LoopbackFleet) -> dict[str, str]:
    return {truth.name: str(truth.loaded) for truth in fleet.truth()}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("steer")
    fleet = make_fleet(place / "fleet", dict.fromkeys(NAMES, OLD))
    try:
        yield told(fleet, Desk(fleet.layout.folder, place / "muster.db"))
    finally:
        fleet.stop()


def told(fleet: LoopbackFleet, desk: Desk) -> Story:
    """Everything that happens, in its order."""
    desk.ok("collect")
    plan = desk.planned("--driver", NEW)
    jobs = fleet.start_job("long", NAMES, 3600)
    desk.ok("apply", plan, "--detach")
    first = next(iter(released_first(desk)))
    until(lambda: desk.phases().get(first) == "drain-required")
    paused = desk.ok("rollouts", "pause", "last", "--reason", "a look at the racks", "--json")
    until(lambda: desk.carrier() is None)
    stood_at_once = desk.phases()
    for job in jobs:
        os.kill(job.pid, signal.SIGKILL)
    twice = desk.muster("rollouts", "pause", "last", "--reason", "again")
    carried = desk.muster("serve", "--until-done")
    assert carried.exit_code == 0, carried.err
    stood = desk.phases()
    desk.ok("rollouts", "resume", "last")
    ended = desk.muster("rollouts", "watch", "last", "--json")
    after = loaded(fleet)
    desk.ok("collect")
    back = desk.muster("rollouts", "rollback", "last", "--json")
    (proposal,) = back.data  # type: ignore[misc]
    desk.ok("plans", "approve", str(proposal["id"]))
    refused = desk.muster("rollouts", "resume", "last")
    went_back = desk.muster("apply", str(proposal["id"]), "--json")
    return Story(fleet, paused, stood_at_once, stood, twice, ended, after, back, refused, went_back, loaded(fleet))


def released_first(desk: Desk) -> list[str]:
    """The nodes that the rollout has begun with."""
    until(lambda: any(row["released"] for row in desk.runs().values()))
    return [name for name, row in desk.runs().items() if row["released"]]


def test_a_paused_rollout_lets_stand_what_it_has_not_changed(story: Story) -> None:
    assert story.paused.body["state"] == "paused"
    assert "drain-required" in story.halted_by_pause.values()
    assert story.stood == story.halted_by_pause


def test_only_a_running_rollout_pauses_and_only_a_paused_one_goes_on(story: Story) -> None:
    assert (story.twice.exit_code, story.refused.exit_code) == (4, 4)
    assert "only a running one can pause" in story.twice.err


def test_it_goes_on_where_it_stood(story: Story) -> None:
    assert story.ended.exit_code == 0, story.ended.err
    assert story.after == dict.fromkeys(NAMES, NEW)


def test_a_finished_rollout_is_taken_back_by_a_plan_of_its_own(story: Story) -> None:
    assert story.back.exit_code == 0
    (proposal,) = story.back.data  # type: ignore[misc]
    assert proposal["plan"]["target"] == OLD
    assert story.went_back.exit_code == 0, story.went_back.err
    assert story.at_last == dict.fromkeys(NAMES, OLD)
