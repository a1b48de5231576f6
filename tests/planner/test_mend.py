"""Laws of a repair's plan: what it comes to, what it expects, and which nodes it leaves alone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from muster.backends.packages.apt import BACKEND as APT
from muster.knowledge.loader import load
from muster.model.fact import Fact, FactValue, NodeFacts, Unknown
from muster.model.plan import Plan, StepKind, WaitingOn, plan_body
from muster.model.plan_form import plan_from_body
from muster.planner.lint import lint
from muster.planner.mend import Mender, last_whole, remembered, troubles
from muster.planner.propose import propose
from muster.planner.words import lines
from muster.planner.work import Work
from muster.solver.carried import same_names
from tests.support.planning import NEW, OLD, PACKAGES, answer, carrying, given, node, policy, seen
from tests.support.values import T0

DRIVERS = frozenset(version.text for version in load().releases)
LOST = Unknown("Failed to initialize NVML: Driver/library version mismatch")
BROKEN: Mapping[str, FactValue | None] = {
    "package[libcuda1].version": f"{NEW}-1", "package[nvidia-driver].version": f"{NEW}-1", "package[nvidia-driver].state": "half-configured",
    "library.libcuda.version": NEW, "gpu.product": LOST, "gpu.count": LOST, "holder.pids": LOST,
}  # fmt: skip
"""Half of NEW over a whole OLD, with a driver that does not answer."""


def history(*looks: NodeFacts) -> tuple[Fact, ...]:
    """The changes that a store would keep of these looks."""
    last: dict[str, FactValue] = {}
    found: list[Fact] = []
    for look in looks:
        for path, fact in look.facts.items():
            if last.get(path) != fact.value:
                last[path] = fact.value
                found.append(fact)
    return tuple(found)


WHOLE, NOW = seen("n1", {}, age_s=7200), seen("n1", BROKEN)
PAST = history(WHOLE, NOW)


def mended(
    facts: NodeFacts,
    past: tuple[Fact, ...] = PAST,
    *,
    wanted: str | None = None,
    ours: str = "",
    work: Work | None = None,
) -> Plan:
    wish = policy()
    mender = Mender(
        {pool.name: pool for pool in wish.pools},
        (APT,),
        answer,
        same_names,
        last_whole(past, APT),
        DRIVERS,
        wanted,
        ours,
    )
    nodes = (node("n1"),)
    known = {"n1": remembered(facts, past)}
    return propose(replace(given(nodes, known, wish, work=work or Work()), judge=mender))


def test_a_repair_comes_to_what_the_node_had_when_it_was_last_whole_and_not_to_what_the_pool_wants() -> None:
    plan = mended(NOW)
    (part,) = plan.nodes
    assert (plan.target, part.step.kind, part.gpus) == (OLD, StepKind.REPAIR, 8)
    assert {(pin.name, pin.version) for pin in part.step.packages} == {(name, f"{OLD}-1") for name in PACKAGES}
    assert {pin.name: pin.version for pin in part.step.back}["libcuda1"] == f"{NEW}-1"
    expected = {each.path: each.value for each in part.step.expects}
    assert expected["package[nvidia-driver].state"] == "half-configured"
    assert [note for note in lint(plan) if note.severity == "fatal"] == []


def test_the_flavour_is_that_of_the_whole_stack_whatever_half_of_another_is_loaded() -> None:
    now = seen("n1", {**BROKEN, "module.nvidia.flavour": "proprietary"})
    (part,) = mended(now, history(WHOLE, now)).nodes
    assert part.step.flavour == "open"
    assert ("module.nvidia.flavour", "open") in [(each.path, each.value) for each in part.step.done_when]


def test_another_driver_may_be_named_and_the_pool_speaks_for_a_node_that_was_never_seen_whole() -> None:
    assert mended(NOW, wanted="580.95.05").target == "580.95.05"
    seen_broken = replace(
        NOW, facts={**NOW.facts, **{path: WHOLE.facts[path] for path in ("gpu.product", "gpu.count")}}
    )
    assert mended(seen_broken, ()).target == NEW


def test_a_whole_node_is_none_of_its_business_unless_a_quarantined_run_still_holds_it() -> None:
    held: Mapping[str, FactValue] = {"lease.held": True, "lease.holder": "ops@a", "lease.rollout_id": "rollout-1"}
    fresh = seen("n1", {})
    assert mended(fresh, history(fresh)).left_out[0].on is WaitingOn.NOTHING_TO_DO
    ours = seen("n1", held)
    (part,) = mended(ours, history(fresh, ours), ours="rollout-1").nodes
    assert ("lease.rollout_id", "rollout-1") in [(each.path, each.value) for each in part.step.expects]
    (left,) = mended(ours, history(fresh, ours), ours="rollout-2").left_out
    assert left.on is WaitingOn.OWNED_BY_HUMAN


@pytest.mark.parametrize(
    ("changes", "on"),
    [
        ({"lease.held": True, "lease.holder": "ops@a"}, WaitingOn.OWNED_BY_HUMAN),
        ({"root_fs.kind": "overlay"}, WaitingOn.NO_SOLUTION),
        ({"runfile.installed": True}, WaitingOn.NO_SOLUTION),
        ({"kernel.running": LOST}, WaitingOn.UNKNOWN_HEALTH),
    ],
)
def test_a_node_that_no_package_mends_or_that_somebody_holds_is_left(
    changes: Mapping[str, FactValue], on: WaitingOn
) -> None:
    plan = mended(seen("n1", {**BROKEN, **changes}))
    assert [left.on for left in plan.left_out] == [on]


def test_a_node_that_a_person_drained_is_left_to_them() -> None:
    plan = mended(NOW, work=Work(owned={"n1": "is drained in slurm by ops: fans"}, told=frozenset({"n1"})))
    assert [(left.on, left.detail) for left in plan.left_out] == [
        (WaitingOn.OWNED_BY_HUMAN, "is drained in slurm by ops: fans")
    ]


def test_the_plan_says_each_package_and_its_state() -> None:
    said = lines(mended(NOW), (), 0)
    assert f"  repairs: nvidia-driver {NEW}-1 (half-configured) -> {OLD}-1" in said
    assert any(line.startswith("  repairs: the loaded module is 570.195.03;") for line in said)


def test_a_plan_of_a_repair_is_read_back_as_it_was() -> None:
    plan = mended(NOW)
    assert plan_from_body(plan_body(plan)).id == plan.id
    body = dict(plan_body(plan))
    steps = body["steps"]
    assert isinstance(steps, list)
    with pytest.raises(ValueError, match="is no kind of step"):
        plan_from_body({**body, "steps": [{**steps[0], "kind": "luck"}]})


def test_lint_wants_an_approval_one_node_and_what_was_seen() -> None:
    plan = mended(NOW)
    (part,) = plan.nodes
    blind = replace(part, step=replace(part.step, expects=part.step.expects[:1]))
    for damaged, words in (
        (replace(plan, approvals=0), "without anybody's approval"),
        (replace(plan, nodes=(part, replace(part, node="n2"))), "a repair is of one node"),
        (replace(plan, nodes=(blind,)), "not expected to have"),
    ):
        assert any(words in note.says for note in lint(damaged) if note.severity == "fatal")


def test_what_keeps_a_stack_from_being_one_whole_is_told_member_by_member() -> None:
    assert troubles(seen("n1", {}), APT, DRIVERS) == ()
    assert troubles(seen("n1", carrying(NEW)), APT, DRIVERS) == ()
    words = " / ".join(troubles(NOW, APT, DRIVERS))
    for part in (
        "nvidia-driver is half-configured",
        f"the library is {NEW}",
        f"packages of another driver than {OLD}: libcuda1 {NEW}-1",
    ):
        assert part in words


def test_the_last_whole_stack_is_found_in_the_history_and_an_older_one_is_not_taken_for_it() -> None:
    first = seen("n1", carrying("580.95.05"), age_s=9000)
    found = last_whole(history(first, WHOLE, NOW), APT)
    assert found is not None
    assert (found.driver, found.at) == (OLD, f"{T0 - timedelta(seconds=7200):%Y-%m-%d %H:%M} UTC")
    assert last_whole(history(NOW), APT) is None
