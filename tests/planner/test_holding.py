"""Laws of a hold's plan: nothing changes by it, and only a whole stack is held."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from muster.backends.packages.apt import BACKEND as APT
from muster.model.fact import FactValue
from muster.model.plan import Plan, StepKind, WaitingOn, plan_body
from muster.model.plan_form import plan_from_body
from muster.planner.holding import Holder
from muster.planner.lint import lint
from muster.planner.propose import propose
from muster.planner.words import lines
from tests.support.planning import NEW, OLD, PACKAGES, given, node, policy, seen


def held(changes: Mapping[str, FactValue | None]) -> Plan:
    wish = policy()
    holder = Holder({pool.name: pool for pool in wish.pools}, (APT,), ("the kernel's packages are held",))
    return propose(replace(given((node("n1"),), {"n1": seen("n1", changes)}, wish), judge=holder))


def test_a_hold_expects_what_is_there_and_is_done_when_it_still_is() -> None:
    plan = held({"holder.pids": ("77",)})
    (part,) = plan.nodes
    assert (part.step.kind, part.step.to_driver, part.gpus) == (StepKind.HOLD, OLD, 0)
    assert part.step.packages == part.step.back
    assert part.step.expects == part.step.done_when
    assert {pin.name for pin in part.step.packages} == set(PACKAGES)
    assert [note for note in lint(plan) if note.severity == "fatal"] == []
    assert "  holds: the kernel's packages are held" in lines(plan, (), 0)
    assert plan_from_body(plan_body(plan)).id == plan.id


@pytest.mark.parametrize(
    ("changes", "on"),
    [
        ({"library.libcuda.version": NEW}, WaitingOn.OWNED_BY_HUMAN),
        ({"package[libcuda1].state": "half-configured"}, WaitingOn.OWNED_BY_HUMAN),
        ({"lease.held": True, "lease.holder": "ops@a"}, WaitingOn.OWNED_BY_HUMAN),
        ({"root_fs.kind": "overlay"}, WaitingOn.NO_SOLUTION),
        ({f"package[{name}].version": "1.0-1" for name in PACKAGES}, WaitingOn.NO_SOLUTION),
    ],
)
def test_what_is_not_one_whole_stack_is_not_held(changes: Mapping[str, FactValue], on: WaitingOn) -> None:
    assert [left.on for left in held(changes).left_out] == [on]


def test_lint_lets_no_change_pass_for_a_hold() -> None:
    plan = held({})
    (part,) = plan.nodes
    damaged = replace(plan, nodes=(replace(part, step=replace(part.step, back=part.step.back[1:])),))
    assert any("is to be held only" in note.says for note in lint(damaged) if note.severity == "fatal")
