"""Laws of a control plane that dies: whatever kills it, whenever, the rollout goes on where it was and nothing is done twice."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.packages import MEMBERS
from muster.model.phase import Phase
from tests.support.desk import LIMIT_S, Desk, Said, make_fleet, until

OLD, GOOD = "580.95.05", "580.126.20"
DRIVERS = dict.fromkeys(("gpu01", "gpu02", "gpu03"), OLD)
BOUNDARIES = (Phase.LEASE_REQUIRED, Phase.APPLY_REQUIRED, Phase.VERIFY_REQUIRED, Phase.RETURN_REQUIRED)
RANDOM_KILLS = 3
ENDED = {"done", "left-out", "quarantined", "rolled-back"}


@dataclass
class Killed:
    """A rollout whose carrier was killed again and again."""

    fleet: LoopbackFleet
    desk: Desk
    kills: list[str] = field(default_factory=list)
    second_carrier: Said | None = None
    nobody: Said | None = None
    interrupted: tuple[int, str] = (0, "")
    last: Said | None = None


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    place = tmp_path_factory.mktemp("kills")
    fleet = make_fleet(place / "fleet", DRIVERS, {"max_unavailable: {pool: 50%}": "max_unavailable: {pool: 100%}"})
    desk = Desk(fleet.layout.folder, place / "muster.db")
    story = Killed(fleet, desk)
    for name in fleet.names:
        fleet.set_knob(name, "slow-package", "600")
    desk.ok("collect")
    plan = desk.planned()
    desk.ok("apply", plan, "--detach")
    for phase in BOUNDARIES:
        until(lambda phase=phase: has_come_to(desk, phase))  # type: ignore[misc]
        kill(story, phase.value)
        if phase == BOUNDARIES[0]:
            story.nobody = desk.muster("rollouts", "watch", "last", "--json")
        resume(desk, plan)
        if phase == BOUNDARIES[1]:
            story.second_carrier = desk.muster("serve", "--json")
            story.interrupted = interrupt_a_watcher(desk)
            # Until now no node can have come further, however slow we are.
            for name in fleet.names:
                fleet.set_knob(name, "slow-package", None)
    chance = random.Random(20260301)
    for _ in range(RANDOM_KILLS):
        wait_s = chance.random()
        limit = time.monotonic() + wait_s
        until(lambda limit=limit: time.monotonic() > limit)  # type: ignore[misc]
        if kill(story, f"after {wait_s:.2f} s") is None:
            break
        resume(desk, plan)
    story.last = desk.muster("apply", plan, "--json")
    yield story
    fleet.stop()


def kill(story: Killed, when: str) -> int | None:
    pid = story.desk.kill_carrier()
    if pid is not None:
        story.kills.append(when)
    return pid


def resume(desk: Desk, plan: str) -> None:
    desk.ok("apply", plan, "--detach")
    until(lambda: desk.carrier() is not None or (bool(seen := set(desk.phases().values())) and seen <= ENDED))


def has_come_to(desk: Desk, phase: Phase) -> bool:
    """Whether a node is in the phase or beyond it: one that passes through it quickly is seen too."""
    order = [each.value for each in Phase]
    return any(order.index(each) >= order.index(phase.value) for each in desk.phases().values())


def interrupt_a_watcher(desk: Desk) -> tuple[int, str]:
    watcher = desk.start("rollouts", "watch", "last")
    assert watcher.stdout is not None
    watcher.stdout.readline()
    os.kill(watcher.pid, signal.SIGINT)
    try:
        _, err = watcher.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        watcher.kill()
        raise
    return watcher.returncode, err


def test_a_rollout_that_is_killed_again_and_again_comes_to_its_end(killed: Killed) -> None:
    assert len(killed.kills) >= len(BOUNDARIES), killed.kills
    assert killed.last is not None
    assert killed.last.exit_code == 0, killed.last.out[-2000:]
    assert set(killed.desk.phases().values()) == {"done"}


def test_after_kills_no_transition_was_made_twice_and_none_is_missing(killed: Killed) -> None:
    for each in killed.fleet.truth():
        changes = [
            (change.package.partition(":")[0], change.new) for change in each.transitions if change.new.startswith(GOOD)
        ]
        assert sorted(changes) == sorted((member, f"{GOOD}-1") for member in MEMBERS), each.name
        assert each.run_twice == 0
        assert each.is_whole
        assert not each.lease


def test_after_kills_the_audit_chain_holds(killed: Killed) -> None:
    assert killed.desk.ok("audit", "verify", "last", "--json").body["faults"] == []


def test_a_second_carrier_is_refused_and_the_first_one_is_named(killed: Killed) -> None:
    assert killed.second_carrier is not None
    assert killed.second_carrier.exit_code == 4
    assert "process" in str(killed.second_carrier.body["message"])


def test_a_watcher_says_when_nobody_carries_the_rollout_and_how_to_go_on(killed: Killed) -> None:
    assert killed.nobody is not None
    assert killed.nobody.exit_code == 6
    assert "no process carries" in str(killed.nobody.body["message"])
    assert "muster apply plan-" in str(killed.nobody.body["hint"])


def test_interrupting_the_watcher_ends_with_130_and_the_rollout_goes_on(killed: Killed) -> None:
    code, words = killed.interrupted
    assert code == 130
    assert "goes on" in words
    assert "Traceback" not in words
