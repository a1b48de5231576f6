"""Laws of nodes that make it hard: a full disk, a busy package manager, a module that is held, a pool that forbids the reload."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.jobs import jobs_of
from muster.loopback.observe import Truth
from muster.loopback.tools import SYSTEM_PATH, spawn_detached
from tests.support.desk import LIMIT_S, Desk, Said, make_fleet, until

OLD, GOOD = "580.95.05", "580.126.20"
LOCKED, CLINGING, FULL, LATE = "gpu01", "gpu02", "gpu03", "gpu04"
FORBIDDEN, LATER = "gpu05", "gpu06"  # of the pool that forbids the reload


ALREADY = "reload|reboot|verify|validate|return|probation|done"
"""The phases of a node whose packages are installed."""


@dataclass(frozen=True)
class Story:
    applied: Said
    before: Mapping[str, Truth]
    after: Mapping[str, Truth]
    policy_files: Mapping[str, bool]

    def run(self, node: str) -> Mapping[str, str]:
        runs = self.applied.body["runs"]
        assert isinstance(runs, list)
        return next(run for run in runs if run["node"] == node)

    def said(self, node: str) -> str:
        return "\n".join(line for line in self.applied.out.splitlines() if f'"node": "{node}"' in line)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("hard")
    words = {
        "max_unavailable: {pool: 50%}": "max_unavailable: {pool: 100%}",
        "tier: standard\n": "tier: standard\n    reload: forbidden\n",
    }
    fleet = make_fleet(place / "fleet", dict.fromkeys((LOCKED, CLINGING, FORBIDDEN, FULL, LATE, LATER), OLD), words)
    desk = Desk(fleet.layout.folder, place / "muster.db")
    desk.ok("collect")
    plan = desk.planned()
    before = {each.name: each for each in fleet.truth()}
    fleet.set_knob(FULL, "disk-full", "1")
    for name in (CLINGING, LATE, LATER):
        fleet.set_knob(name, "slow-package", "600")
    fleet.hold_dpkg_lock(LOCKED, 600)
    applying = desk.start("apply", plan, "--json")
    late = {
        name: [
            ("apply-required", partial(start_late_job, fleet, name)),
            (r"\(after the drain\)", partial(fleet.finish_job, "late", [name])),
        ]
        for name in (LATE, LATER)
    }
    # Between the drain and the reload something takes hold of the module.
    clinging = [("apply-required", partial(cling, fleet, CLINGING))]
    # The lock is held when the packages are fetched, and again when they are installed.
    locked = [
        ("fetch-required", partial(release, fleet, LOCKED)),
        ("^(?!preflight|lease|fetch)", partial(fleet.hold_dpkg_lock, LOCKED, 600)),
        (f"{ALREADY}|apply", partial(fleet.release_dpkg_lock, LOCKED)),
    ]
    meddle(desk, {LOCKED: locked, CLINGING: clinging, **late})
    out, err = applying.communicate(timeout=LIMIT_S)
    policies = {name: (fleet.node_root(name) / "usr/sbin/policy-rc.d").exists() for name in fleet.names}
    yield Story(Said(applying.returncode, out, err), before, {each.name: each for each in fleet.truth()}, policies)
    fleet.stop()


def meddle(desk: Desk, deeds: Mapping[str, Sequence[tuple[str, Callable[[], None]]]]) -> None:
    """Do each node's deeds, one after another, when the pattern is found in its phase and what it waits for."""
    left = {node: list(each) for node, each in deeds.items()}

    def all_done() -> bool:
        said = {node: f"{run['phase']} {run['waiting']}" for node, run in desk.runs().items()}
        for node, todo in left.items():
            if todo and re.search(todo[0][0], said.get(node, "preflight-required")):
                todo.pop(0)[1]()
        return not any(left.values())

    until(all_done)


def release(fleet: LoopbackFleet, node: str) -> None:
    """The other holder of the dpkg lock goes when apt has been seen to wait for it."""
    tasks = fleet.node_root(node) / "var/lib/muster/node/tasks"
    until(lambda: any("Could not get lock" in each.read_text(errors="replace") for each in tasks.glob("*-fetch-*/out")))
    fleet.release_dpkg_lock(node)


def cling(fleet: LoopbackFleet, node: str) -> None:
    """A process on the node that holds the module and that a restart ends."""
    pid = fleet.run(node, "setsid sleep 3600 </dev/null >/dev/null 2>&1 & echo $!").stdout.strip()
    (fleet.node_root(node) / "loopback/held" / pid).write_text("0 1 monitor\n", encoding="ascii")
    fleet.set_knob(node, "slow-package", None)


def start_late_job(fleet: LoopbackFleet, node: str) -> None:
    """A job of somebody who does not know of leases, on a node that was drained."""
    root = fleet.node_root(node)
    spawn_detached(["/bin/sh", str(root / "loopback/job.sh"), str(root), "late", "3600", "0,1"], {"PATH": SYSTEM_PATH})
    until(lambda: bool(jobs_of(root)))
    fleet.set_knob(node, "slow-package", None)


@pytest.mark.parametrize("node", [LATE, LATER])
def test_a_job_that_came_after_the_drain_is_waited_for_and_not_ended(story: Story, node: str) -> None:
    assert "(after the drain)" in story.said(node)
    assert [job.state for job in story.after[node].jobs] == ["finished"]
    assert story.run(node)["phase"] == "done"
    assert story.after[node].loaded == GOOD


def test_a_full_disk_leaves_the_node_out_unchanged_and_says_what_is_full(story: Story) -> None:
    assert story.applied.exit_code == 5, story.applied.out[-3000:]
    assert story.run(FULL)["phase"] == "left-out"
    assert "the node could not write it down: no space left" in story.run(FULL)["cause"]
    assert story.after[FULL].transitions == story.before[FULL].transitions
    assert not story.after[FULL].lease


def test_another_holder_of_the_dpkg_lock_is_waited_for(story: Story) -> None:
    assert story.run(LOCKED)["phase"] == "done"
    assert story.after[LOCKED].loaded == GOOD
    assert story.after[LOCKED].run_twice == 0


def test_a_module_that_is_held_is_not_pulled_away_but_exchanged_by_a_restart(story: Story) -> None:
    assert "the old module is held" in story.said(CLINGING)
    assert story.run(CLINGING)["phase"] == "done"
    assert story.after[CLINGING].loaded == GOOD
    assert story.after[CLINGING].boot_id != story.before[CLINGING].boot_id


def test_a_pool_that_forbids_the_reload_is_restarted_once(story: Story) -> None:
    assert "reload-required" not in story.said(FORBIDDEN)
    assert story.run(FORBIDDEN)["phase"] == "done"
    assert story.after[FORBIDDEN].loaded == GOOD
    assert story.after[FORBIDDEN].boot_id != story.before[FORBIDDEN].boot_id


def test_the_ordinary_way_needs_no_restart(story: Story) -> None:
    assert story.after[LOCKED].boot_id == story.before[LOCKED].boot_id


def test_no_daemon_policy_of_ours_is_left(story: Story) -> None:
    assert not any(story.policy_files.values())
