"""Laws of nodes that are not as the plan found them: each drops out, waits or is set aside with its reason, and the rest goes on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.observe import Truth
from muster.loopback.packages import MEMBERS
from muster.node.lease import lease_take
from tests.support.desk import LIMIT_S, Desk, Said, make_fleet, until

OLD, OTHER, GOOD = "570.195.03", "580.95.05", "580.126.20"
MOVED, CLAIMED, BUSY, PLAIN, ENDLESS, LOST, HELD = (f"gpu{number:02d}" for number in range(1, 8))
"""What happens to each node between the plan and the rollout; HELD is claimed before the plan is made."""

LONG_S = 3600


@dataclass(frozen=True)
class Story:
    fleet: LoopbackFleet
    desk: Desk
    plan: Said
    applied: Said
    after: Mapping[str, Truth]

    def run(self, node: str) -> Mapping[str, str]:
        runs = self.applied.body["runs"]
        assert isinstance(runs, list)
        return next(run for run in runs if run["node"] == node)

    def waits(self, node: str) -> str:
        """All that the node was said to wait for."""
        return " ".join(line for line in self.applied.out.splitlines() if f'"node": "{node}"' in line)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("differ")
    names = (MOVED, CLAIMED, BUSY, PLAIN, ENDLESS, LOST, HELD)
    words = {
        "max_unavailable: {pool: 50%}": "max_unavailable: {pool: 100%}",
        "limit: 5m}  # never cut a running job short": "limit: 30m}",
        "limit: 5m}": "limit: 2s}",
        "tier: critical": "tier: development",
    }
    fleet = make_fleet(place / "fleet", dict.fromkeys(names, OLD), words)
    desk = Desk(fleet.layout.folder, place / "muster.db")
    claim(fleet, HELD, "alice@desk", "rollout-of-alice")
    desk.ok("collect")
    plan = plan_with_canary(desk, PLAIN)
    plan_id = str(plan.body["id"])
    desk.ok("plans", "approve", plan_id)
    by_hand = " ".join(f"{member}={OTHER}-1" for member in MEMBERS)
    assert fleet.run(MOVED, f"apt-get install -q -y {by_hand}").exit_status == 0
    claim(fleet, CLAIMED, "bob@desk", "rollout-of-bob")
    fleet.start_job("short", [BUSY], LONG_S)
    fleet.start_job("long", [ENDLESS], LONG_S)
    fleet.set_knob(LOST, "gpu-lost")
    applying = desk.start("apply", plan_id, "--json")
    until(lambda: "on the GPUs" in desk.waiting(BUSY))
    fleet.finish_job("short", [BUSY])
    out, err = applying.communicate(timeout=LIMIT_S)
    applied = Said(applying.returncode, out, err)
    yield Story(fleet, desk, plan, applied, {each.name: each for each in fleet.truth()})
    fleet.stop()


def plan_with_canary(desk: Desk, node: str) -> Said:
    """A plan that has `node` among its canaries: a rollout whose canaries all drop out proves nothing and halts."""
    for seed in range(30):
        plan = desk.here("plan", "--seed", str(seed), "--json")
        body = plan.body["plan"]
        assert isinstance(body, dict)
        if node in body["stages"][0]["nodes"]:
            return plan
    raise AssertionError("chance never chose it")


def claim(fleet: LoopbackFleet, node: str, holder: str, rollout: str) -> None:
    text = lease_take(holder=holder, rollout_id=rollout, plan_id="plan-0", reason="memory test", ttl_s=3600)
    assert fleet.run(node, "sh -s", stdin=text).exit_status == 0


def test_the_rest_goes_on_when_some_nodes_cannot(story: Story) -> None:
    assert story.applied.exit_code == 5, story.applied.out[-3000:]
    assert story.run(PLAIN)["phase"] == "done"
    assert story.after[PLAIN].loaded == GOOD


def test_a_node_that_moved_since_the_plan_drops_out_with_the_reason(story: Story) -> None:
    assert story.run(MOVED)["phase"] == "left-out"
    assert "moved since the plan was made" in story.run(MOVED)["cause"]
    assert f"{OTHER}-1, not {OLD}-1" in story.run(MOVED)["cause"]
    assert not any(GOOD in change.new for change in story.after[MOVED].transitions)


def test_a_node_that_somebody_holds_is_left_out_of_the_plan_and_the_holder_is_named(story: Story) -> None:
    plan = story.plan.body["plan"]
    assert isinstance(plan, dict)
    left = {subject: each for each in plan["left_out"] for subject in each["subjects"]}
    assert left[HELD]["on"] == "owned-by-human"
    assert "alice@desk" in left[HELD]["detail"]
    assert HELD not in {part["node"] for part in plan["nodes"]}


def test_a_node_that_somebody_took_since_the_plan_is_left_out_and_the_holder_is_named(story: Story) -> None:
    assert story.run(CLAIMED)["phase"] == "left-out"
    assert "bob@desk" in story.run(CLAIMED)["cause"]
    assert story.after[CLAIMED].lease


def test_a_node_with_a_job_waits_for_its_end_and_then_changes(story: Story) -> None:
    assert "waits for 1 process on the GPUs: python3" in story.waits(BUSY)
    assert story.run(BUSY)["phase"] == "done"
    job = story.after[BUSY].jobs[0]
    assert job.state == "finished"
    assert job.ended_at is not None
    changes = [change for change in story.after[BUSY].transitions if GOOD in change.new]
    assert changes


def test_a_node_whose_job_outlasts_the_drain_limit_is_left_out_and_the_job_lives(story: Story) -> None:
    assert story.run(ENDLESS)["phase"] == "left-out"
    assert "not drained after 2 s" in story.run(ENDLESS)["cause"]
    assert story.after[ENDLESS].jobs[0].state == "running"
    assert not story.after[ENDLESS].lease
    assert story.after[ENDLESS].loaded == OLD


def test_no_job_was_killed(story: Story) -> None:
    assert sum(each.jobs_killed for each in story.after.values()) == 0


def test_a_node_that_was_broken_before_is_quarantined_and_not_counted_against_the_driver(story: Story) -> None:
    assert story.run(LOST)["phase"] == "quarantined"
    assert f"failed on {OLD} before anything was changed" in story.run(LOST)["cause"]
    assert story.applied.body["state"] == "done"
    assert not any(GOOD in change.new for change in story.after[LOST].transitions)


def test_left_out_nodes_are_known_without_our_lease_afterwards(story: Story) -> None:
    shown = story.desk.ok("nodes", "show", ENDLESS, "--json")
    facts = shown.body["facts"]
    assert isinstance(facts, list)
    assert next(fact["value"] for fact in facts if fact["path"] == "lease.held") is False
