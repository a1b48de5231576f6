"""A difference between two plans is said once, with the nodes it is about, and plans that do the same have none."""

from dataclasses import replace

from muster.planner.diff import diff, diff_lines
from muster.planner.propose import propose
from tests.support.planning import fleet, given, policy, pool

BEFORE = propose(given(*fleet(["good"] * 8)))


def test_the_same_plan_made_later_has_no_difference() -> None:
    assert diff(BEFORE, replace(BEFORE, created_at="later", facts_revision="other")) == ()
    assert diff_lines(BEFORE, BEFORE)[0].endswith("no difference in what is done")


def test_nodes_that_come_go_and_move_are_named_with_what_becomes_of_them() -> None:
    after = propose(given(*fleet(["held", *["good"] * 7, "good", "busy"])))
    changes = {change.says: change.nodes for change in diff(BEFORE, after)}
    assert changes["left out now: is held by ops@a for no rollout"] == ("n00",)
    added = {node for says, nodes in changes.items() if says.startswith("added, in stage") for node in nodes}
    assert added == {"n08", "n09"}
    back = {change.says: change.nodes for change in diff(after, BEFORE)}
    assert sorted(back["left out now: no longer in the inventory"]) == ["n08", "n09"]


def test_limits_targets_and_steps_are_compared() -> None:
    other = propose(given(*fleet(["good"] * 8), policy(pool("train", want="580.95.05", away="3"), pool("dev"))))
    says = [change.says for change in diff(BEFORE, other)]
    assert any(each.startswith("target: 580.126.20 -> ") for each in says)
    assert "pool train: unavailable 2 -> 3" in says
    assert any("is now 570.195.03 -> 580.95.05" in each for each in says)
    assert len(says) == len(set(says))


def test_a_node_that_stays_out_for_another_reason_is_said() -> None:
    before, after = propose(given(*fleet(["held", "good"]))), propose(given(*fleet(["image-booted", "good"])))
    (change,) = [each for each in diff(before, after) if each.says.startswith("still left out")]
    assert change.nodes == ("n00",)
    assert "boots from an image" in change.says
    assert any(line.startswith("  n00 still left out") for line in diff_lines(before, after))
