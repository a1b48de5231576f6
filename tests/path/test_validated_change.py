"""Laws of a change whose driver installs, loads and answers, and makes the GPUs slower: it goes back, and the node is as fast as before."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from muster.loopback.fleet import LoopbackFleet
from tests.support.desk import Desk, Said, make_fleet

OLD, NEW = "580.95.05", "580.126.20"
NAMES = ("gpu01", "gpu02")
FLOORS = "holds: {driver: true}\nvalidate: {floors: {matmul_tflops: learn}}"


@dataclass(frozen=True)
class Story:
    fleet: LoopbackFleet
    desk: Desk
    ended: Said
    kept: tuple[dict[str, str], ...]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("slower")
    fleet = make_fleet(place / "fleet", dict.fromkeys(NAMES, OLD), {"holds: {driver: true}": FLOORS})
    desk = Desk(fleet.layout.folder, place / "muster.db")
    for name in NAMES:
        fleet.set_knob(name, "gpu-slow", NEW)
    desk.ok("collect")
    ended = desk.muster("apply", desk.planned(), "--json")
    kept = desk.ok("validate", "--kept", "--json").body["validations"]
    assert isinstance(kept, list)
    yield Story(fleet, desk, ended, tuple(kept))
    fleet.stop()


def test_a_driver_under_which_the_gpus_are_slower_is_stopped_at_its_first_node_and_goes_back(story: Story) -> None:
    assert story.ended.exit_code == 6
    assert sorted(story.desk.phases().values()) == ["preflight-required", "rolled-back"]
    assert {truth.loaded for truth in story.fleet.truth()} == {OLD}
    why = json.dumps(story.ended.body)
    assert "matmul_tflops is 28.175, 30 % less than this node's own 40.25 before the change" in why


def test_every_validation_of_the_change_is_kept(story: Story) -> None:
    seen = [(each["driver"], each["verdict"]) for each in story.kept]
    assert seen == [(OLD, "Pass"), (NEW, "Fail"), (OLD, "Pass")]
    assert len({each["node"] for each in story.kept}) == 1
    assert {each["under"].partition("-")[0] for each in story.kept} == {"rollout"}
