"""Laws of `muster validate`: it disturbs nobody, leaves nothing behind, learns from the fleet, and goes on where it was cut off."""

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
class Seen:
    """What a command said, and what was there when it had ended: the leases, the tasks of validations by node, the states of the jobs."""

    said: Said
    held: Sequence[str]
    tasks: Mapping[str, Sequence[Path]]
    jobs: frozenset[str]

    def of(self, name: str) -> Mapping[str, object]:
        found = self.said.body["validations"]
        assert isinstance(found, list)
        return next(each for each in found if each["node"] == name)


@dataclass
class Story:
    fleet: LoopbackFleet
    desk: Desk
    seen: dict[str, Seen] = field(default_factory=dict)

    def validate(self, key: str, *words: str) -> None:
        said = self.desk.muster("validate", *words, "--json")
        truth = self.fleet.truth()
        jobs = frozenset(job.state for each in truth for job in each.jobs)
        tasks = {name: self.tasks(name) for name in NAMES}
        self.seen[key] = Seen(said, [each.name for each in truth if each.lease], tasks, jobs)

    def tasks(self, name: str) -> Sequence[Path]:
        return sorted((self.fleet.node_root(name) / "var/lib/muster/node/tasks").glob("validation-*"))

    def told(self) -> None:
        """Everything that happens, in its order."""
        self.fleet.start_job("long", [BUSY], 3600)
        self.validate("busy", BUSY)
        self.validate("forced", BUSY, "--force")
        text = lease_take(holder="ada@ops", rollout_id="rollout-9", plan_id="plan-9", reason="a new fan", ttl_s=3600)
        assert self.fleet.run(HELD, "sh -s", stdin=text).exit_status == 0
        self.fleet.set_knob(SLOW, "unreachable")
        self.validate("many", *NAMES)
        self.fleet.set_knob(SLOW, "unreachable", None)
        self.desk.ok("lease", "release", HELD, "--reason", "the fan is in")
        self.validate("fifth", HELD)
        self.fleet.set_knob(SLOW, "gpu-slow")
        self.validate("slow", SLOW)
        self.fleet.set_knob(SLOW, "gpu-wrong", DRIVER)
        self.validate("wrong", SLOW)
        self.cut_off()

    def cut_off(self) -> None:
        """A validation whose command is killed in the middle, and asked for again."""
        before = len(self.tasks(CUT))
        self.fleet.set_knob(CUT, "slow-validation", "600")
        started = self.desk.start("validate", CUT, "--json")
        until(lambda: len(self.tasks(CUT)) > before and (self.tasks(CUT)[-1] / "pid").exists())
        started.send_signal(signal.SIGKILL)
        started.communicate()
        self.fleet.set_knob(CUT, "slow-validation", None)
        self.validate("again", CUT)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("validate")
    fleet = make_fleet(place / "fleet", dict.fromkeys(NAMES, DRIVER), {"holds: {driver: true}": FLOORS})
    story = Story(fleet, Desk(fleet.layout.folder, place / "muster.db"))
    story.told()
    yield story
    fleet.stop()


def test_a_node_that_a_job_uses_is_refused_and_the_job_goes_on(story: Story) -> None:
    seen = story.seen["busy"]
    assert seen.said.exit_code == 4
    assert "in use" in seen.said.err
    assert "--force" in seen.said.err
    assert (seen.tasks[BUSY], seen.held, seen.jobs) == ([], [], {"running"})


def test_force_validates_a_busy_node_all_the_same(story: Story) -> None:
    seen = story.seen["forced"]
    assert (seen.said.exit_code, seen.of(BUSY)["verdict"]) == (0, "Pass")


def test_many_nodes_are_validated_together_and_each_for_itself(story: Story) -> None:
    seen = story.seen["many"]
    assert seen.said.exit_code == 4  # one is in use, one is held
    assert {seen.of(name)["verdict"] for name in NAMES[2:5]} == {"Pass"}
    not_validated = seen.said.body["not_validated"]
    assert isinstance(not_validated, dict)
    assert set(not_validated) == {BUSY, HELD, SLOW}
    assert f"{HELD} is held by ada@ops" in not_validated[HELD]
    assert "refused" in not_validated[SLOW]
    assert (seen.tasks[HELD], seen.held) == ([], [HELD])


def test_a_floor_is_learnt_from_five_nodes_and_a_slow_sixth_does_not_reach_it(story: Story) -> None:
    assert "(no floor yet: 4 of 5 nodes of its kind measured)" in str(story.seen["fifth"].of(HELD)["why"])
    seen = story.seen["slow"]
    assert (seen.said.exit_code, seen.of(SLOW)["verdict"]) == (1, "Fail")
    why = "matmul_tflops is 28.175, the floor is 36.225: learnt from 5 nodes of its kind, median 40.25"
    assert seen.of(SLOW)["why"] == why


def test_gpus_that_compute_wrongly_fail(story: Story) -> None:
    seen = story.seen["wrong"]
    assert seen.said.exit_code == 1
    assert str(seen.of(SLOW)["why"]).startswith("matmul: GPU 0")


def test_a_validation_that_was_killed_goes_on_and_nothing_runs_twice(story: Story) -> None:
    seen = story.seen["again"]
    assert (seen.said.exit_code, seen.held) == (0, [])
    (task,) = set(seen.tasks[CUT]) - set(story.seen["wrong"].tasks[CUT])
    assert task.name.startswith(str(seen.of(CUT)["under"]))
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
