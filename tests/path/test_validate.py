"""Laws of `muster validate`: it disturbs nobody, leaves nothing behind, learns from the fleet, and goes on where it was cut off."""

import json
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.node.lease import lease_take
from tests.support.desk import Desk, Said, make_fleet, until

DRIVER = "580.95.05"
NAMES = tuple(f"gpu{number:02d}" for number in range(1, 7))
BUSY, HELD, CUT, SLOW = NAMES[0], NAMES[1], NAMES[2], NAMES[5]
FLOORS = "holds: {driver: true}\nvalidate: {floors: {matmul_tflops: learn}}"


@dataclass(frozen=True)
class Story:
    fleet: LoopbackFleet
    desk: Desk

    def validate(self, *words: str) -> Said:
        return self.desk.muster("validate", *words, "--json")

    def tasks(self, name: str) -> Sequence[Path]:
        return sorted((self.fleet.node_root(name) / "var/lib/muster/node/tasks").glob("validation-*"))

    def held(self) -> list[str]:
        return [truth.name for truth in self.fleet.truth() if truth.lease]


def of(said: Said) -> dict[str, dict[str, object]]:
    found = said.body["validations"]
    assert isinstance(found, list)
    return {each["node"]: each for each in found}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("validate")
    fleet = make_fleet(place / "fleet", dict.fromkeys(NAMES, DRIVER), {"holds: {driver: true}": FLOORS})
    desk = Desk(fleet.layout.folder, place / "muster.db")
    yield Story(fleet, desk)
    fleet.stop()


def test_a_node_that_a_job_uses_is_refused_and_the_job_goes_on(story: Story) -> None:
    story.fleet.start_job("long", [BUSY], 600)
    said = story.validate(BUSY)
    assert said.exit_code == 4
    assert "in use" in said.err
    assert "--force" in said.err
    assert (story.tasks(BUSY), story.held()) == ([], [])
    assert {job.state for truth in story.fleet.truth() for job in truth.jobs} == {"running"}


def test_force_validates_a_busy_node_all_the_same(story: Story) -> None:
    said = story.validate(BUSY, "--force")
    assert (said.exit_code, of(said)[BUSY]["verdict"]) == (0, "Pass")


def test_a_node_that_somebody_holds_is_refused_by_name(story: Story) -> None:
    text = lease_take(holder="ada@ops", rollout_id="rollout-9", plan_id="plan-9", reason="a new fan", ttl_s=3600)
    assert story.fleet.run(HELD, "sh -s", stdin=text).exit_status == 0
    said = story.validate(HELD)
    assert said.exit_code == 4
    assert f"{HELD} is held by ada@ops" in said.err
    assert (story.tasks(HELD), story.held()) == ([], [HELD])
    story.desk.ok("lease", "release", HELD, "--reason", "the fan is in")


def test_many_nodes_are_validated_together_and_each_for_itself(story: Story) -> None:
    story.fleet.set_knob(SLOW, "unreachable")
    said = story.validate(*NAMES)
    story.fleet.set_knob(SLOW, "unreachable", None)
    assert said.exit_code == 4  # one is in use
    assert set(of(said)) == set(NAMES) - {BUSY, SLOW}
    assert {each["verdict"] for each in of(said).values()} == {"Pass"}
    not_validated = said.body["not_validated"]
    assert isinstance(not_validated, dict)
    assert set(not_validated) == {BUSY, SLOW}
    assert story.held() == []


def test_a_floor_is_learnt_from_five_nodes_and_a_slow_sixth_does_not_reach_it(story: Story) -> None:
    assert "(floor 36.23, from 5 nodes)" in str(of(story.validate(NAMES[3]))[NAMES[3]]["why"])
    story.fleet.set_knob(SLOW, "gpu-slow")
    said = story.validate(SLOW)
    assert said.exit_code == 1
    assert of(said)[SLOW]["verdict"] == "Fail"
    why = str(of(said)[SLOW]["why"])
    assert why == "matmul_tflops is 28.175, the floor is 36.225: learnt from 5 nodes of its kind, median 40.25"


def test_gpus_that_compute_wrongly_fail(story: Story) -> None:
    story.fleet.set_knob(SLOW, "gpu-wrong", DRIVER)
    said = story.desk.muster("validate", SLOW)
    assert said.exit_code == 1
    assert f"{SLOW}: Fail: matmul: GPU 0" in said.out


def test_a_validation_that_was_killed_goes_on_and_nothing_runs_twice(story: Story) -> None:
    before = story.tasks(CUT)
    story.fleet.set_knob(CUT, "smi-hangs", "4")
    started = story.desk.start("validate", CUT, "--json")
    until(lambda: len(story.tasks(CUT)) > len(before) and (story.tasks(CUT)[-1] / "pid").exists())
    started.send_signal(signal.SIGKILL)
    started.communicate()
    assert story.held() == [CUT]
    story.fleet.set_knob(CUT, "smi-hangs", None)
    said = story.validate(CUT)
    assert (said.exit_code, story.held()) == (0, [])
    (task,) = set(story.tasks(CUT)) - set(before)
    assert task.name.startswith(str(of(said)[CUT]["under"]))
    assert json.loads((task / "record.json").read_text(encoding="utf-8"))["state"] == "done"


def test_what_is_kept_is_shown_with_what_can_be_learnt(story: Story) -> None:
    said = story.desk.here("validate", "--kept", SLOW, "--json")
    assert said.exit_code == 0
    kept = said.body["validations"]
    assert isinstance(kept, list)
    assert [(each["node"], each["verdict"]) for each in kept] == [(SLOW, "Fail"), (SLOW, "Fail")]
    learnt = said.body["learnt"]
    assert isinstance(learnt, list)
    floors = {each["metric"]: (each["minimum"], each["median"], each["nodes"]) for each in learnt}
    assert floors["matmul_tflops"] == (pytest.approx(36.225), 40.25, 5)
    assert "matmul_tflops" in story.desk.here("validate", "--kept").out


def test_without_a_node_it_is_a_fault_of_usage(story: Story) -> None:
    assert story.desk.here("validate").exit_code == 2


def test_a_name_that_nobody_bears_is_bad_input(story: Story) -> None:
    assert story.desk.here("validate", "gpu99").exit_code == 3
