"""The plan: every node is in it or in its report with the reason, and whatever it holds keeps the rules."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given as hypothetical
from hypothesis import settings
from hypothesis import strategies as st

from muster.model.fact import Fact, FactValue, NodeFacts
from muster.model.node import Node
from muster.model.plan import Plan, WaitingOn, plan_body, plan_from_body
from muster.model.policy import (
    Drain,
    DrainPolicy,
    Match,
    MaxUnavailable,
    Permission,
    Pool,
    Security,
    Severity,
)
from muster.model.quantities import Amount
from muster.planner.lint import lint
from muster.planner.propose import NOT_HEEDED, STALE_AFTER_S, propose
from muster.planner.words import lines
from muster.solver.problem import Answer, NodeClass
from tests.support.planning import GOOD, KINDS, NEW, OLD, WINDOW, carrying, fleet, given, node, policy, pool, seen
from tests.support.values import T0

FLEETS = st.lists(st.sampled_from(sorted(KINDS)), max_size=14)
PLANNABLE = [kind for kind, (_, on, _) in KINDS.items() if on is None]


def proposed(kinds: Sequence[str]) -> tuple[Plan, Mapping[str, NodeFacts]]:
    nodes, facts = fleet(kinds)
    return propose(given(nodes, facts)), facts


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_of_each_kind_is_planned_or_left_out_with_its_reason(kind: str) -> None:
    plan, _ = proposed([kind])
    _, on, words = KINDS[kind]
    if on is None:
        assert [part.node for part in plan.nodes] == ["n00"]
        assert plan.left_out == ()
    else:
        assert plan.nodes == ()
        assert [(each.subject, each.on) for each in plan.left_out] == [("n00", on)]
        assert re.search(words, plan.left_out[0].detail)


@hypothetical(FLEETS)
@settings(max_examples=50, deadline=None)
def test_every_node_is_either_planned_or_left_out(kinds: Sequence[str]) -> None:
    plan, _ = proposed(kinds)
    planned, left = [part.node for part in plan.nodes], [each.subject for each in plan.left_out]
    assert sorted(planned + left) == [f"n{at:02}" for at in range(len(kinds))]
    assert planned == [name for stage in plan.stages for name in stage.nodes]
    assert {int(name[1:]) for name in planned} == {at for at, kind in enumerate(kinds) if kind in PLANNABLE}


@hypothetical(FLEETS)
@settings(max_examples=50, deadline=None)
def test_a_plan_breaks_no_rule(kinds: Sequence[str]) -> None:
    plan, _ = proposed(kinds)
    assert [note for note in lint(plan) if note.severity == "fatal"] == []


@hypothetical(FLEETS)
@settings(max_examples=50, deadline=None)
def test_a_step_expects_what_its_node_shows_and_is_not_done_yet(kinds: Sequence[str]) -> None:
    plan, facts = proposed(kinds)
    for part in plan.nodes:
        shows = facts[part.node]
        assert [each for each in part.step.expects if shows.text(each.path) != each.value] == []
        assert [each for each in part.step.done_when if shows.text(each.path) != each.value] != []
        assert {pin.name: pin.version for pin in part.step.back} == {
            pin.name: shows.text(f"package[{pin.name}].version") for pin in part.step.packages
        }


@hypothetical(FLEETS)
@settings(max_examples=25, deadline=None)
def test_the_same_input_gives_the_same_plan_and_it_survives_the_store(kinds: Sequence[str]) -> None:
    plan, _ = proposed(kinds)
    assert proposed(kinds)[0].id == plan.id
    assert plan_from_body(plan_body(plan)).id == plan.id


def done(facts: Mapping[str, NodeFacts], plan: Plan) -> Mapping[str, NodeFacts]:
    """The facts once every step of the plan is done."""
    after = dict(facts)
    for part in plan.nodes:
        told = {each.path: Fact(each.path, each.value, "test", T0) for each in part.step.done_when}
        after[part.node] = replace(facts[part.node], facts={**facts[part.node].facts, **told})
    return after


@hypothetical(FLEETS)
@settings(max_examples=25, deadline=None)
def test_a_plan_over_a_fleet_whose_plan_is_done_is_empty(kinds: Sequence[str]) -> None:
    nodes, facts = fleet(kinds)
    plan = propose(given(nodes, facts))
    again = propose(given(nodes, done(facts, plan)))
    assert (again.nodes, again.stages, again.pools) == ((), (), ())
    assert sorted(each.subject for each in again.left_out) == sorted(node.name for node in nodes)


def a_fleet(count: int = 6) -> tuple[tuple[Node, ...], Mapping[str, NodeFacts]]:
    return fleet(["good"] * count)


def test_facts_of_an_hour_are_fresh_and_of_a_second_more_are_stale() -> None:
    at_bound = {"n0": seen("n0", {}, age_s=STALE_AFTER_S), "n1": seen("n1", {}, age_s=STALE_AFTER_S + 1)}
    plan = propose(given([node("n0"), node("n1")], at_bound))
    assert [part.node for part in plan.nodes] == ["n0"]
    assert [each.on for each in plan.left_out] == [WaitingOn.STALE_FACTS]


def test_facts_from_the_future_are_not_planned_on() -> None:
    ahead = {"n0": seen("n0", {}, age_s=-300), "n1": seen("n1", {}, age_s=-9 * 365 * 86400)}
    plan = propose(given([node("n0"), node("n1")], ahead))
    assert [part.node for part in plan.nodes] == ["n0"]
    assert [each.on for each in plan.left_out] == [WaitingOn.STALE_FACTS]


def test_a_node_of_which_nobody_knows_whether_a_job_runs_there_counts_as_busy() -> None:
    nodes, facts = fleet(["perhaps busy", "busy", "good", "good", "good"])
    plan = propose(given(nodes, facts))
    assert {part.node for part in plan.nodes[-2:]} == {"n00", "n01"}


def test_what_the_policy_asks_for_and_nobody_does_is_said() -> None:
    asked = replace(
        policy(pool("train", drain=Drain(DrainPolicy.REQUEUE)), pool("dev", drain=Drain(DrainPolicy.EVICT))),
        security=Security(Severity.HIGH), lines={"rollout.control": 9},
    )  # fmt: skip
    plan = propose(given([node("a")], {"a": seen("a", {})}, asked))
    assert [line.removeprefix(f"{NOT_HEEDED} ") for line in plan.because if line.startswith(NOT_HEEDED)] == [
        "rollout.control",
        "security.max_open_severity",
        "pools.train.drain.policy requeue (jobs are waited for, none is ended)",
    ]
    assert "  not heeded by this release: rollout.control" in lines(plan, (), 0)
    assert not any(NOT_HEEDED in line for line in propose(given(*fleet(["good"]))).because)


def test_chance_chooses_the_canaries_and_loses_nobody() -> None:
    nodes, facts = a_fleet()
    names = [each.name for each in nodes]
    turned = propose(given(nodes, facts, policy(pool("train"), pool("dev")), order=names[::-1]))
    assert turned.stages[0].nodes == ("n05", "n04")
    for order in (names[:2], [*names, *names], []):
        plan = propose(given(nodes, facts, order=order))
        assert sorted(part.node for part in plan.nodes) == names
        assert [note for note in lint(plan) if note.severity == "fatal"] == []


def test_a_plan_for_one_pool_reports_whoever_is_in_it_or_could_be() -> None:
    in_train = (Match("label.pool", ("train", "both")),)
    wanted = policy(pool("train"), pool("dev"), pool("inference", match=(*in_train, Match("rack", ("r1",)))))
    nodes = [node("a", "train"), node("b", "dev"), node("c", "both"), node("d", "nowhere"), node("e", "train")]
    facts = {each.name: seen(each.name, {} if each.name == "a" else {"rack": "r2"}) for each in nodes}
    of_train = propose(given(nodes, facts, wanted, only_pool="train"))
    assert [part.node for part in of_train.nodes] == ["e"]
    left = {each.subject: (each.on, each.detail) for each in of_train.left_out}
    assert left["a"][0] is WaitingOn.UNKNOWN_HEALTH
    assert "whether also in another pool cannot be told: inference: rack is unknown" in left["a"][1]
    assert left["c"] == (WaitingOn.OWNED_BY_HUMAN, "is in 2 pools: train, dev")
    assert set(left) == {"a", "c"}
    assert {each.subject for each in propose(given(nodes, facts, wanted, only_pool="inference")).left_out} == {"a"}


@pytest.mark.parametrize(
    ("bounds", "on", "words"),
    [
        ({"windows": (WINDOW,)}, WaitingOn.WINDOW, "pool train has windows, and this release cannot wait for them"),
        ({"max_unavailable": MaxUnavailable(rack=Amount(count=1))}, WaitingOn.BUDGET, "by rack, and this release"),
        ({"max_unavailable": MaxUnavailable(tenant=Amount(count=1))}, WaitingOn.BUDGET, "by tenant, and this release"),
    ],
)
def test_a_pool_with_a_bound_that_nothing_keeps_yet_is_not_changed(
    bounds: dict[str, object], on: WaitingOn, words: str
) -> None:
    plan = propose(given([node("a")], {"a": seen("a", {})}, policy(pool("train", **bounds))))  # type: ignore[arg-type]
    assert plan.nodes == ()
    assert [each.on for each in plan.left_out] == [on]
    assert words in plan.left_out[0].detail


def test_limits_are_of_the_whole_pool_and_only_of_pools_that_are_changed() -> None:
    nodes, facts = fleet(["good", "as wanted", "stale", "as wanted", "good"])
    plan = propose(given(nodes, facts, policy(pool("train", away="50%"), pool("dev", away="50%"))))
    assert [(each.pool, each.nodes, each.unavailable) for each in plan.pools] == [("train", 3, 1)]


def restart_of(values: Mapping[str, FactValue], reload: Permission = Permission.ALLOWED) -> str:
    (part,) = propose(given([node("a")], {"a": seen("a", values)}, policy(pool("train", reload=reload)))).nodes
    return part.step.restart


def test_a_node_restarts_where_its_pool_or_its_boards_forbid_a_reload() -> None:
    nvswitch: Mapping[str, FactValue] = {"gpu.product": "NVIDIA H100 80GB HBM3", "gpu.fabric_state": "Completed"}
    assert restart_of({}) == "reload"
    assert restart_of({}, Permission.FORBIDDEN) == "reboot"
    assert restart_of(nvswitch) == "reboot"
    assert restart_of({**nvswitch, **carrying("580.95.05")}) == "reload"
    plan = propose(given([node("a")], {"a": seen("a", nvswitch)}))
    assert any("NVSwitch" in line for line in plan.because)


def test_a_site_build_keeps_its_own_revision_and_is_told_by_the_version_it_is_made_from() -> None:
    (part,) = propose(given([node("a")], {"a": seen("a", {})}, policy(pool("train", want=f"{NEW}-1+site1")))).nodes
    assert {pin.version for pin in part.step.packages} == {f"{NEW}-1+site1"}
    assert {e.path: e.value for e in part.step.done_when}["module.nvidia.loaded_version"] == NEW


def test_a_node_whose_parts_disagree_moves_as_a_whole() -> None:
    (part,) = proposed(["library of another version"])[0].nodes
    assert {pin.name for pin in part.step.packages} == {"libcuda1", "nvidia-driver", "nvidia-kernel-open-dkms"}
    assert {str(pin) for pin in part.step.back} >= {f"libcuda1={NEW}-1", f"nvidia-driver={OLD}-1"}


def test_what_was_asked_of_the_solver_once_is_not_asked_again_for_a_node_of_the_same_class() -> None:
    nodes, facts = a_fleet(8)
    asked: list[NodeClass] = []
    base = given(nodes, facts)

    def counted(kind: NodeClass, each: Pool) -> Answer:
        asked.append(kind)
        return base.solve(kind, each)

    propose(replace(base, solve=counted))
    assert len(asked) == 2  # one class, two pools


def test_a_policy_without_canaries_gives_a_plan_that_says_what_that_exposes() -> None:
    nodes, facts = a_fleet()
    notes = lint(propose(given(nodes, facts, policy(canary=False, shares=(Amount.parse("100%"),)))))
    assert [note.severity for note in notes] == ["advice"] * len(notes)
    assert any("a bad driver reaches up to 6 nodes at once" in note.says for note in notes)


def test_the_revision_of_the_facts_changes_with_a_lasting_value_and_not_with_the_time_of_a_look() -> None:
    nodes, facts = a_fleet(1)
    base = propose(given(nodes, facts)).facts_revision
    later_look = {"n00": replace(facts["n00"], observed_at=T0 - timedelta(seconds=1))}
    assert propose(given(nodes, later_look)).facts_revision == base
    warmer = Fact("temperature", 71, "test", T0, momentary=True)
    momentary = {"n00": replace(facts["n00"], facts={**facts["n00"].facts, "temperature": warmer})}
    assert propose(given(nodes, momentary)).facts_revision == base
    assert propose(given(nodes, {"n00": seen("n00", {**GOOD, "gpu.count": 7})})).facts_revision != base
