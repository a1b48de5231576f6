"""Lint finds each fault in a plan that was made by hand, and none in one that the planner made."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from muster.model.plan import Expectation, Plan, Step, Waiting, WaitingOn
from muster.model.quantities import Amount
from muster.model.stack import PackagePin
from muster.planner.lint import lint
from muster.planner.propose import propose
from tests.support.planning import fleet, given, node, policy, pool, seen

NODES, FACTS = fleet(["good"] * 6)
WHOLE = propose(given(NODES, FACTS, policy(shares=(Amount.parse("50%"), Amount.parse("100%")))))


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


def test_a_whole_plan_is_clean() -> None:
    assert [(stage.name, stage.canary) for stage in WHOLE.stages] == [("canary", True), ("50%", False), ("100%", False)]
    assert lint(WHOLE) == ()


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
    assert [note.severity for note in notes] == ["fatal", "advice"]
    assert notes[1].says == "may lose all its nodes at once"


def test_a_node_that_runs_another_driver_than_lies_on_disk_is_pointed_out() -> None:
    nodes, facts = fleet(["only loads what is on disk"])
    (note,) = lint(propose(given(nodes, facts)))
    assert note.severity == "advice"
    assert note.says == "runs 570.195.03 with 580.126.20 on disk: a failed change ends in quarantine, not in 570.195.03"


def test_whoever_approves_what_rests_on_memory_is_told() -> None:
    facts = {"a": seen("a", {"gpu.product": "NVIDIA GeForce RTX 4090"})}
    plan = propose(given([node("a")], facts, policy(pool("train"))))
    assert any("vouches for this" in note.says and note.severity == "advice" for note in lint(plan))
    careless = propose(given([node("a")], facts, policy(pool("train"), approvals=0)))
    assert any("needs an approval" in note.says and note.severity == "fatal" for note in lint(careless))
