"""Re-checks a plan against the safety rules, written from those rules and not from the planner. Pure.

A note of severity `fatal` forbids approval and apply; `advice` is shown.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from muster.model.plan import Plan


@dataclass(frozen=True, slots=True)
class Note:
    """One finding on a plan."""

    severity: str
    subject: str
    says: str


def lint(plan: Plan) -> tuple[Note, ...]:
    """All notes on a plan, the fatal ones first; none for a plan that keeps the rules."""
    notes = [*_places(plan), *_stages(plan), *_budgets(plan), *_steps(plan)]
    return tuple(sorted(notes, key=lambda note: (note.severity != "fatal", note.subject)))


def _places(plan: Plan) -> Iterator[Note]:
    staged = Counter(node for stage in plan.stages for node in stage.nodes)
    planned = Counter(part.node for part in plan.nodes)
    for node, count in staged.items():
        if count > 1:
            yield Note("fatal", node, "stands in more than one stage")
        if node not in planned:
            yield Note("fatal", node, "is staged but has no step")
    for node, count in planned.items():
        if count > 1:
            yield Note("fatal", node, "has more than one step")
        if node not in staged:
            yield Note("fatal", node, "has a step but no stage")
    for left in plan.left_out:
        if left.subject in planned:
            yield Note("fatal", left.subject, "is left out and planned at once")


def _stages(plan: Plan) -> Iterator[Note]:
    if plan.stages and not plan.stages[0].canary:
        yield Note("fatal", plan.stages[0].name, "the first stage is not a canary stage")
    for stage in plan.stages:
        grouped = tuple(node for group in stage.groups for node in group)
        if grouped != stage.nodes:
            yield Note("fatal", stage.name, "its groups are not its nodes")
        if stage.canary and stage.groups and len(stage.groups[0]) != 1:
            yield Note("fatal", stage.name, "the first canary is not alone")


def _budgets(plan: Plan) -> Iterator[Note]:
    limits = {p.pool: p for p in plan.pools}
    for part in plan.nodes:
        if part.pool not in limits:
            yield Note("fatal", part.node, f"its pool {part.pool} has no limit")
    for limit in plan.pools:
        if limit.unavailable < 1:
            yield Note("fatal", limit.pool, "may lose no node, so nothing can be changed")
        elif limit.unavailable >= limit.nodes and limit.nodes > 1:
            yield Note("advice", limit.pool, "may lose all its nodes at once")


def _steps(plan: Plan) -> Iterator[Note]:
    for part in plan.nodes:
        step = part.step
        if not step.back or {p.name for p in step.back} < {p.name for p in step.packages}:
            yield Note("fatal", part.node, "has no whole way back")
        if not step.expects:
            yield Note("fatal", part.node, "expects nothing, so a moved node would not be noticed")
        if not step.done_when:
            yield Note("fatal", part.node, "does not say when it is done")
        if step.restart not in ("reload", "reboot"):
            yield Note("fatal", part.node, f"restarts by {step.restart!r}, which nobody knows")
        if step.packages == step.back:
            yield Note("fatal", part.node, "changes nothing")
