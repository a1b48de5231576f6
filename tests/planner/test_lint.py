"""Lint finds each fault in a plan that was made by hand, and none in one that the planner made."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from muster.model.job import Job
from muster.model.node import Node
from muster.model.plan import SCHEMA_1, Expectation, Plan, Span, Step, Waiting, WaitingOn
from muster.model.policy import Drain, DrainPolicy, MaxUnavailable, Tier
from muster.model.quantities import Amount
from muster.model.stack import PackagePin
from muster.planner.lint import lint
from muster.planner.propose import propose
from muster.planner.work import Work
from tests.support.planning import WINDOW, fleet, given, node, policy, pool, seen
from tests.support.values import T0, later

NODES, FACTS = fleet(["good"] * 6)
WHOLE = propose(given(NODES, FACTS, policy(shares=(Amount.parse("50%"), Amount.parse("100%")), control=None)))


def step(**changes: object) -> Callable[[Plan], Plan]:
    """The plan with the first node's step changed."""

    def damage(plan: Plan) -> Plan:
        first, *others = plan.nodes
        return replace(plan, nodes=(replace(first, step=replace(first.step, **changes)), *others))  # type: ignore[arg-type]

    return damage


def stage(at: int, **changes: object) -> Callable[[Plan], Plan]:
    def damage(plan: Plan) -> Plan:
        stages = list(plan.stages)
        stages[at] = replace(stages[at], **changes)  # type: ignore[arg-type]
        return replace(plan, stages=tuple(stages))

    return damage


def limits(**changes: object) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, pools=(replace(plan.pools[0], **changes), *plan.pools[1:]))  # type: ignore[arg-type]


FIRST: Step = WHOLE.nodes[0].step
CANARIES, HALF, REST = WHOLE.stages
ALL = tuple(part.node for part in WHOLE.nodes)


def told(expectations: tuple[Expectation, ...], path: str, value: str) -> tuple[Expectation, ...]:
    return tuple(Expectation(each.path, value) if each.path == path else each for each in expectations)


DAMAGED: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "stands in more than one stage": (stage(2, nodes=(*REST.nodes, ALL[0]), groups=((*REST.nodes, ALL[0]),)), ALL[0]),
    "is staged but has no step": (lambda plan: replace(plan, nodes=plan.nodes[1:]), ALL[0]),
    "has more than one step": (lambda plan: replace(plan, nodes=(*plan.nodes, plan.nodes[0])), ALL[0]),
    "has a step but no stage": (stage(2, nodes=REST.nodes[:-1], groups=(REST.nodes[:-1],)), REST.nodes[-1]),
    "is left out and planned at once": (
        lambda plan: replace(plan, left_out=(Waiting(ALL[0], WaitingOn.STALE_FACTS, "old"),)), ALL[0],
    ),
    "its canaries come after others": (lambda plan: replace(plan, stages=(HALF, CANARIES, REST)), "canary"),
    "its groups are not its nodes": (stage(1, groups=((*HALF.nodes[::-1], "x"),)), HALF.name),
    "holds an empty group, or nobody": (stage(1, groups=(HALF.nodes, ())), HALF.name),
    "soaks for less than no time": (stage(1, soak_s=-1), HALF.name),
    "the first canary is not alone": (stage(0, groups=(CANARIES.nodes,)), "canary"),
    "which is too many at once": (
        lambda plan: replace(plan, stages=(replace(CANARIES, nodes=ALL, groups=(ALL[:1], ALL[1:])),)), "canary",
    ),
    "has no limit": (lambda plan: replace(plan, pools=plan.pools[1:]), next(p.node for p in WHOLE.nodes if p.pool == WHOLE.pools[0].pool)),
    "has more than one limit": (lambda plan: replace(plan, pools=(*plan.pools, plan.pools[0])), WHOLE.pools[0].pool),
    "may lose no node": (limits(unavailable=0), WHOLE.pools[0].pool),
    "of which 3 are to be changed": (limits(nodes=2), WHOLE.pools[0].pool),
    "has no whole way back": (step(back=FIRST.back[1:]), ALL[0]),
    "goes back to packages that it is not expected to have": (
        step(back=(PackagePin(FIRST.back[0].name, "1-1"), *FIRST.back[1:])), ALL[0],
    ),
    "expects nothing": (step(expects=()), ALL[0]),
    "does not say when it is done": (step(done_when=()), ALL[0]),
    "is called done without 580.126.20 loaded": (
        step(done_when=told(FIRST.done_when, "module.nvidia.loaded_version", "580.95.05")), ALL[0],
    ),
    "is called done with other packages": (step(done_when=told(FIRST.done_when, "package[libcuda1].version", "1-1")), ALL[0]),
    "restarts by 'luck'": (step(restart="luck"), ALL[0]),
    "changes nothing": (step(expects=FIRST.done_when, back=FIRST.packages), ALL[0]),
    "needs an approval": (
        lambda plan: replace(plan, approvals=0, because=("580: R580 drives it (rests on memory, a site must confirm it: x)",)),
        WHOLE.target,
    ),
}  # fmt: skip


# A plan of all that the rules on jobs, strata, canaries and windows are about: 20 nodes of one kind and 2 of another, in 5 racks, with a job of
# two nodes and one of a single node, an NVLink domain of two nodes, a control, a bound by rack and a window.
def _busy_plan() -> Plan:
    names = [f"n{at:02}" for at in range(22)]
    kinds = {name: ({"gpu.vbios": ("other",)} if name in ("n20", "n21") else {}) for name in names}
    labels = {
        name: {"pool": "dev" if at < 4 else "train", "rack": f"r{at % 5}"}
        | ({"nvlink_domain": "d1"} if at in (8, 9) else {})
        for at, name in enumerate(names)
    }
    nodes = [Node(name, name, None, None, labels[name], "hosts:1") for name in names]
    facts = {name: seen(name, kinds[name]) for name in names}
    pair = Job("7", "train", ("n10", "n11"), ends_at=later(3600))
    alone = Job("8", "eval", ("n12",), ends_at=later(600))
    work = Work(jobs={"n10": (pair,), "n11": (pair,), "n12": (alone,)}, told=frozenset(names))
    bounds = MaxUnavailable(Amount.parse("4"), rack=Amount.parse("2"))
    wanted = policy(
        pool("train", max_unavailable=bounds, tier=Tier.CRITICAL, windows=(WINDOW,), drain=Drain(DrainPolicy.REQUEUE)),
        pool("dev", max_unavailable=replace(bounds, pool=Amount.parse("3")), tier=Tier.DEVELOPMENT),
        shares=(Amount.parse("40%"), Amount.parse("100%")),
    )
    windows = {"train": (Span(T0, later(48 * 3600)),)}
    return propose(given(nodes, facts, wanted, work=work, windows=windows))


BUSY = _busy_plan()
BY_STAGE = {stage.name: stage for stage in BUSY.stages}


def part_of(plan: Plan, name: str, **changes: object) -> Plan:
    return replace(plan, nodes=tuple(replace(p, **changes) if p.node == name else p for p in plan.nodes))  # type: ignore[arg-type]


def moved(name: str, to: str) -> Callable[[Plan], Plan]:
    """The plan with a node in another stage, at its end."""

    def damage(plan: Plan) -> Plan:
        stages = []
        for each in plan.stages:
            groups = tuple(tuple(n for n in group if n != name) for group in each.groups)
            groups = (*groups[:-1], (*groups[-1], name)) if each.name == to else groups
            groups = tuple(group for group in groups if group)
            stages.append(replace(each, groups=groups, nodes=tuple(n for group in groups for n in group)))
        return replace(plan, stages=tuple(stages))

    return damage


def swapped(one: str, other: str) -> Callable[[Plan], Plan]:
    """The plan with two nodes in each other's places."""
    names = {one: other, other: one}

    def damage(plan: Plan) -> Plan:
        stages = tuple(
            replace(
                each,
                nodes=tuple(names.get(n, n) for n in each.nodes),
                groups=tuple(tuple(names.get(n, n) for n in group) for group in each.groups),
            )
            for each in plan.stages
        )
        return replace(plan, stages=stages)

    return damage


def pool_of(name: str, **changes: object) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, pools=tuple(replace(p, **changes) if p.pool == name else p for p in plan.pools))  # type: ignore[arg-type]


def bound_of(**changes: object) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, bounds=(replace(plan.bounds[0], **changes), *plan.bounds[1:]))  # type: ignore[arg-type]


CANARY = [node for node in BY_STAGE["canary"].nodes if BUSY.node(node).rack]
FIRST_LATER = BUSY.stages[1]
IDLE_DEV = next(n for n in FIRST_LATER.nodes if BUSY.node(n).pool == "dev")
ONE_RACK = [part.node for part in BUSY.nodes if part.rack == BUSY.node(CANARY[0]).rack]
KIND = BUSY.node("n05").stratum
OTHER_KIND = BUSY.node("n20").stratum
CONTROL = next(node for node in BY_STAGE["control"].nodes)


def one_rack(plan: Plan) -> Plan:
    """All canaries in one rack, and every other node in another."""
    rack = dict.fromkeys(CANARY, "full")
    return replace(plan, bounds=(), nodes=tuple(replace(p, rack=rack.get(p.node, "free")) for p in plan.nodes))


DAMAGED_WORK: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "is called idle, and job 8 runs on it": (lambda plan: part_of(plan, "n12", free_at=""), "n12"),
    "is drained by 'force', which nobody knows": (lambda plan: part_of(plan, "n12", drain="force"), "n12"),
    "is released apart from others of its NVLink domain d1": (moved("n09", "control"), "n08"),
    "and what goes with it are 2 nodes of pool train, which can spare 1": (pool_of("train", unavailable=1), "n08"),
    "runs job 7, whose nodes stand in the stages 100% and control": (moved("n11", "control"), "n11"),
    "is idle, and goes after": (swapped("n12", FIRST_LATER.nodes[-1]), FIRST_LATER.nodes[-1]),
    "whose pool is more critical": (swapped(IDLE_DEV, BY_STAGE["100%"].nodes[0]), IDLE_DEV),
    "is a busy canary, and": (swapped(CANARY[-1], "n12") if BUSY.node(CANARY[-1]).stratum == KIND else swapped(CANARY[0], "n12"), "n12"),
    "has no canary, and another stratum has two": (
        lambda plan: replace(plan, nodes=tuple(replace(p, stratum=KIND if p.node in CANARY else p.stratum) for p in plan.nodes)),
        OTHER_KIND,
    ),
    "holds 2 of 2 canaries: its own faults would look like the driver's": (one_rack, "rack full"),
    "is held back for comparison, and others come after it": (
        lambda plan: replace(plan, stages=(*plan.stages[:-2], plan.stages[-1], plan.stages[-2])), "control",
    ),
    "has 0 of 19 units held back for comparison, and 1 are asked for": (moved(CONTROL, "100%"), KIND),
    "is said to have 18 units, and has 19": (
        lambda plan: replace(plan, strata=tuple(replace(s, units=s.units - 1) if s.name == KIND else s for s in plan.strata)), KIND,
    ),
    "units and so no statistical gate": (lambda plan: replace(plan, approvals=0), OTHER_KIND),
    "has a window that closes before it opens": (pool_of("train", windows=(Span(later(60), T0),)), "train"),
    "has no window of at least 60 minutes": (pool_of("train", windows=(Span(T0, later(600)),)), "train"),
    "would end job 7 of 2 nodes, and 1 remain in pool train for it": (
        lambda plan: pool_of("train", nodes=1 + sum(plan.node(n).pool == "train" for n in BY_STAGE["100%"].nodes))(
            part_of(plan, "n10", drain="requeue")
        ),
        "n10",
    ),
    "has more than one bound": (lambda plan: replace(plan, bounds=(*plan.bounds, plan.bounds[0])), "rack r0"),
    "may lose no node, so nothing of it": (bound_of(unavailable=0), "rack r0"),
    "of which 5 are planned": (bound_of(nodes=1), "rack r0"),
}  # fmt: skip
"""For each rule on jobs, strata, canaries, controls, windows and bounds one plan that breaks it, and who is named."""


def test_a_plan_with_jobs_domains_windows_and_bounds_breaks_no_rule() -> None:
    assert [stage.name for stage in BUSY.stages] == ["canary", "40%", "100%", "control"]
    assert len(BUSY.nodes) == 22
    assert [note for note in lint(BUSY) if note.severity == "fatal"] == []
    assert [note.says for note in lint(BUSY)] == [
        "has 2 units and so no statistical gate: whoever approves answers for it"
    ]


@pytest.mark.parametrize("says", DAMAGED_WORK)
def test_one_fault_of_work_is_found_and_named(says: str) -> None:
    damage, subject = DAMAGED_WORK[says]
    found = [note for note in lint(damage(BUSY)) if says in note.says]
    assert {note.severity for note in found} == {"fatal"}
    assert subject in {note.subject for note in found}


def test_a_rack_that_holds_all_idle_nodes_is_pointed_out_and_forbids_nothing() -> None:
    plan = replace(BUSY, bounds=(), nodes=tuple(replace(p, rack="only") for p in BUSY.nodes))
    (note,) = [note for note in lint(plan) if "canaries" in note.says]
    assert (note.severity, note.subject) == ("advice", "rack only")
    assert note.says.endswith("and no others are idle")


def test_a_stratum_beyond_the_canaries_is_pointed_out() -> None:
    many = {f"n{at:02}": seen(f"n{at:02}", {"gpu.vbios": (str(at % 9),)}) for at in range(27)}
    notes = lint(propose(given([node(name) for name in many], many)))
    assert [note.severity for note in notes if "has no canary" in note.says] == ["advice"]


def test_a_drain_that_may_outlast_its_windows_is_pointed_out() -> None:
    notes = lint(pool_of("train", windows=(Span(T0, later(7200)),))(BUSY))
    assert [(note.severity, note.subject) for note in notes if "drains for up to" in note.says] == [("advice", "train")]


def test_a_plan_of_the_first_form_is_not_held_against_rules_that_it_cannot_answer() -> None:
    old = replace(BUSY, schema=SCHEMA_1, strata=(), control=0)
    assert not any("stratum" in note.says or "comparison" in note.says for note in lint(old))


def test_a_whole_plan_is_clean() -> None:
    assert [(stage.name, stage.canary) for stage in WHOLE.stages] == [("canary", True), ("50%", False), ("100%", False)]
    assert [note for note in lint(WHOLE) if note.severity == "fatal"] == []


@pytest.mark.parametrize("says", DAMAGED)
def test_one_fault_is_found_and_named(says: str) -> None:
    damage, subject = DAMAGED[says]
    found = [note for note in lint(damage(WHOLE)) if says in note.says]
    assert {note.severity for note in found} == {"fatal"}
    assert subject in {note.subject for note in found}


def test_a_way_back_with_other_names_is_no_way_back() -> None:
    other = (PackagePin("something-else", "1"), *FIRST.back[1:])
    assert any("has no whole way back" in note.says for note in lint(step(back=other)(WHOLE)))


def test_advice_forbids_nothing_and_comes_after_what_does() -> None:
    notes = lint(limits(unavailable=3)(step(restart="luck")(WHOLE)))
    assert [note.severity for note in notes] == sorted((note.severity for note in notes), key="fatal advice".find)
    assert {note.severity for note in notes} == {"fatal", "advice"}
    assert "may lose all its nodes at once" in {note.says for note in notes if note.severity == "advice"}


def test_a_node_that_runs_another_driver_than_lies_on_disk_is_pointed_out() -> None:
    nodes, facts = fleet(["only loads what is on disk"])
    (note,) = [note for note in lint(propose(given(nodes, facts))) if "gate" not in note.says]
    assert note.severity == "advice"
    assert note.says == "runs 570.195.03 with 580.126.20 on disk: a failed change ends in quarantine, not in 570.195.03"


def test_whoever_approves_what_rests_on_memory_is_told() -> None:
    facts = {"a": seen("a", {"gpu.product": "NVIDIA GeForce RTX 4090"})}
    plan = propose(given([node("a")], facts, policy(pool("train"))))
    assert any("vouches for this" in note.says and note.severity == "advice" for note in lint(plan))
    careless = propose(given([node("a")], facts, policy(pool("train"), approvals=0)))
    assert any("needs an approval" in note.says and note.severity == "fatal" for note in lint(careless))
