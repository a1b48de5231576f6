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
from muster.model.job import Job
from muster.model.node import Node
from muster.model.plan import UNTOLD, Plan, Span, WaitingOn, plan_body
from muster.model.plan_form import plan_from_body
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
from muster.planner.work import Work
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
    assert (again.nodes, again.stages, again.pools, again.forecast) == ((), (), (), None)
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
    plan = propose(given(nodes, facts, policy(pool("train"), pool("dev"), control=None)))
    assert {part.node for part in plan.nodes[-2:]} == {"n00", "n01"}
    assert [part.free_at for part in plan.nodes] == ["", "", "", UNTOLD, UNTOLD]


def test_what_the_policy_asks_for_and_nobody_does_is_said() -> None:
    asked = replace(
        policy(pool("train", drain=Drain(DrainPolicy.REQUEUE)), pool("dev", drain=Drain(DrainPolicy.EVICT))),
        security=Security(Severity.HIGH),
    )  # fmt: skip
    plan = propose(given([node("a")], {"a": seen("a", {})}, asked))
    assert [line.removeprefix(f"{NOT_HEEDED} ") for line in plan.because if line.startswith(NOT_HEEDED)] == [
        "security.max_open_severity",
        "pools.train.drain.policy requeue on nodes without a scheduler (processes are waited for, none is ended)",
    ]
    assert "  not heeded by this release: security.max_open_severity" in lines(plan, (), 0)
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
    assert left["c"] == (WaitingOn.OWNED_BY_HUMAN, "is in 2 pools: train, dev; narrow the match of one")
    assert set(left) == {"a", "c"}
    assert {each.subject for each in propose(given(nodes, facts, wanted, only_pool="inference")).left_out} == {"a"}


def one(bounds: MaxUnavailable | None = None, labels: Mapping[str, str] | None = None, **more: object) -> Plan:
    """The plan for one good node in one pool."""
    each = Node("a", "a", None, None, {"pool": "train", **(labels or {})}, "hosts:1")
    extra = {} if bounds is None else {"max_unavailable": bounds}
    known = {key: more.pop(key) for key in ("windows_utc", "work") if key in more}
    wanted = policy(pool("train", **extra, **more))
    found = given([each], {"a": seen("a", {})}, wanted)
    windows = known.get("windows_utc", {})
    return propose(replace(found, windows=windows, work=known.get("work", found.work)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bounds", "kind"),
    [(MaxUnavailable(rack=Amount(count=1)), "rack"), (MaxUnavailable(tenant=Amount(count=1)), "tenant")],
)
def test_a_node_whose_rack_or_tenant_nobody_named_is_not_changed_where_the_policy_bounds_by_it(
    bounds: MaxUnavailable, kind: str
) -> None:
    plan = one(bounds)
    assert plan.nodes == ()
    assert [each.on for each in plan.left_out] == [WaitingOn.BUDGET]
    assert f"bounds max_unavailable by {kind}" in plan.left_out[0].detail
    named = one(bounds, {kind: "x"})
    assert [(each.kind, each.name, each.nodes, each.unavailable) for each in named.bounds] == [(kind, "x", 1, 1)]


def test_a_pool_is_changed_in_its_windows_alone_and_not_at_all_where_none_is_long_enough() -> None:
    long = (Span(T0 + timedelta(hours=1), T0 + timedelta(hours=7)),)
    plan = one(windows=(WINDOW,), windows_utc={"train": long})
    assert [(part.node, limits.windows) for part, limits in zip(plan.nodes, plan.pools, strict=True)] == [("a", long)]
    for short in (
        (),
        (Span(T0, T0 + timedelta(minutes=59)),),
        (Span(T0 - timedelta(hours=5), T0 + timedelta(minutes=5)),),
    ):
        none = one(windows=(WINDOW,), windows_utc={"train": short})
        assert [each.on for each in none.left_out] == [WaitingOn.WINDOW]
        assert "pool train has no window in which a change" in none.left_out[0].detail


def test_a_node_that_a_person_took_out_of_service_is_left_to_them_and_uses_up_what_may_be_away() -> None:
    nodes, facts = a_fleet(4)
    owned = Work(owned={"n00": "is drained in Slurm by root: bad DIMM"}, told=frozenset(n.name for n in nodes))
    plan = propose(given(nodes, facts, policy(pool("train", away="1"), pool("dev", away="1")), work=owned))
    left = {each.subject: (each.on, each.detail) for each in plan.left_out}
    assert left["n00"] == (WaitingOn.OWNED_BY_HUMAN, "is drained in Slurm by root: bad DIMM")
    assert left["n02"] == (WaitingOn.BUDGET, "of pool train as many nodes are out of service already as may be")
    assert sorted(part.node for part in plan.nodes) == ["n01", "n03"]


def test_a_node_of_which_the_scheduler_says_nothing_is_not_planned() -> None:
    plan = one(work=Work(unknown={"a": "Slurm does not answer"}))
    assert [(each.on, each.detail) for each in plan.left_out] == [(WaitingOn.UNKNOWN_HEALTH, "Slurm does not answer")]


def running(job_id: str, nodes: Sequence[str], **more: object) -> Job:
    return Job(job_id, "x", tuple(nodes), **more)  # type: ignore[arg-type]


def working(nodes: Sequence[str], *jobs: Job) -> Work:
    on = {name: tuple(job for job in jobs if name in job.nodes) for name in nodes}
    return Work(jobs={name: found for name, found in on.items() if found}, told=frozenset(nodes))


def test_the_nodes_of_a_job_stand_in_one_stage_and_those_that_end_soon_go_first() -> None:
    nodes, facts = a_fleet(20)
    names = [each.name for each in nodes]
    soon = running("1", names[4:8], ends_at=T0 + timedelta(minutes=10))
    late = running("2", names[8:12], ends_at=T0 + timedelta(hours=10))
    endless = running("3", names[12:13])
    wanted = policy(
        pool("train", away="50%"), pool("dev", away="50%"), shares=(Amount.parse("50%"), Amount.parse("100%"))
    )
    plan = propose(given(nodes, facts, wanted, work=working(names, soon, late, endless)))
    stage_of = {node: stage.name for stage in plan.stages for node in stage.nodes}
    assert {stage_of[name] for name in names[4:8]} == {"100%"}
    assert len({stage_of[name] for name in names[8:12]}) == 1
    order = [part.node for part in plan.nodes if not part.idle and stage_of[part.node] == "100%"]
    assert order == [*names[4:8], *names[8:12], *names[12:13]]
    assert plan.node("n04").free_at == "2026-03-01T08:10:00.000Z"
    assert plan.node("n12").free_at == UNTOLD
    assert [note for note in lint(plan) if note.severity == "fatal"] == []


@pytest.mark.parametrize(("size", "requeue", "drain"), [(4, True, "requeue"), (4, False, "wait"), (11, True, "wait")])
def test_a_job_is_ended_only_where_it_can_start_again_beside_its_stage(size: int, requeue: bool, drain: str) -> None:
    names = [f"n{at:02}" for at in range(20)]
    nodes = [node(name) for name in names]
    facts = {name: seen(name, {}) for name in names}
    job = running("1", names[:size], ends_at=T0 + timedelta(hours=1), requeue=requeue)
    wanted = policy(pool("train", drain=Drain(DrainPolicy.REQUEUE)))
    plan = propose(given(nodes, facts, wanted, work=working(names, job)))
    assert {plan.node(name).drain for name in names[:size]} == {drain}
    assert [note for note in lint(plan) if note.severity == "fatal"] == []


def domain(count: int, away: str, **kinds: str) -> Plan:
    """The plan for an NVLink domain of `count` nodes beside six nodes of none; `kinds` changes the trouble of some."""
    names = [f"d{at}" for at in range(count)]
    nodes = [Node(name, name, None, None, {"pool": "train", "nvlink_domain": "d"}, "hosts:1") for name in names]
    facts = {name: seen(name, KINDS[kinds.get(name, "good")][0]) for name in names}
    others, more = a_fleet(6)
    return propose(given((*nodes, *others), {**facts, **more}, policy(pool("train", away=away), pool("dev"))))


def test_an_nvlink_domain_is_changed_whole_or_not_at_all() -> None:
    plan = domain(3, "3")
    groups = [group for stage in plan.stages for group in stage.groups if set(group) & {"d0", "d1", "d2"}]
    assert [set(group) >= {"d0", "d1", "d2"} for group in groups] == [True]
    for broken in (domain(3, "2"), domain(3, "3", d1="held"), domain(3, "3", d1="GPU unknown")):
        assert not {part.node for part in broken.nodes} & {"d0", "d1", "d2"}
        assert [note for note in lint(broken) if note.severity == "fatal"] == []
    assert "d" in domain(3, "2").left_out[0].detail
    assert {part.node for part in domain(3, "3", d1="as wanted").nodes} >= {"d0", "d2"}


def test_gpus_that_name_one_fabric_are_one_domain_without_a_label() -> None:
    nodes, facts = a_fleet(4)
    joined = {name: seen(name, {"gpu.nvlink_domain": "f00d.1"}) for name in facts}
    plan = propose(given(nodes, joined, policy(pool("train", away="4"), pool("dev", away="4"))))
    assert [len(group) for stage in plan.stages for group in stage.groups] == [4]


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
    assert len(asked) == 1  # one class, and two pools that want the same
    apart = given(nodes, facts, policy(pool("train"), pool("dev", want="580.95.05")))
    propose(replace(apart, solve=counted))
    assert len(asked) == 3


def test_a_policy_without_canaries_gives_a_plan_that_says_what_that_exposes() -> None:
    nodes, facts = a_fleet()
    notes = lint(propose(given(nodes, facts, policy(canary=False, shares=(Amount.parse("100%"),)))))
    assert [note.severity for note in notes] == ["advice"] * len(notes)
    assert any("a bad driver reaches up to 5 nodes at once" in note.says for note in notes)


def test_the_revision_of_the_facts_changes_with_a_lasting_value_and_not_with_the_time_of_a_look() -> None:
    nodes, facts = a_fleet(1)
    base = propose(given(nodes, facts)).facts_revision
    later_look = {"n00": replace(facts["n00"], observed_at=T0 - timedelta(seconds=1))}
    assert propose(given(nodes, later_look)).facts_revision == base
    warmer = Fact("temperature", 71, "test", T0, momentary=True)
    momentary = {"n00": replace(facts["n00"], facts={**facts["n00"].facts, "temperature": warmer})}
    assert propose(given(nodes, momentary)).facts_revision == base
    assert propose(given(nodes, {"n00": seen("n00", {**GOOD, "gpu.count": 7})})).facts_revision != base
