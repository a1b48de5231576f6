"""Re-checks a plan against the safety rules, written from those rules and not from the planner. Pure.

A note of severity `fatal` forbids approval and apply; `advice` is shown.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from muster.model.plan import Plan, Stage, Step, StepKind
from muster.planner.lint_work import work_notes
from muster.planner.note import Note
from muster.solver.words import DOUBT

CANARIES_AT_MOST = (1, 1, 2, 4)
"""How many canaries may be exposed at a time, group by group."""


def lint(plan: Plan) -> tuple[Note, ...]:
    """All notes on a plan, the fatal ones first; none for a plan that keeps the rules."""
    notes = [
        *_places(plan),
        *_stages(plan),
        *_budgets(plan),
        *_bounds(plan),
        *_steps(plan),
        *_memory(plan),
        *work_notes(plan),
    ]
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
    if plan.stages and not any(stage.canary for stage in plan.stages):
        exposed = len(plan.stages[0].groups[0]) if plan.stages[0].groups else 0
        yield Note(
            "advice",
            plan.stages[0].name,
            f"has no canaries before it: a bad driver reaches up to {exposed} nodes at once",
        )
    units = {part.node: part.unit for part in plan.nodes}
    for index, stage in enumerate(plan.stages):
        grouped = tuple(node for group in stage.groups for node in group)
        if grouped != stage.nodes:
            yield Note("fatal", stage.name, "its groups are not its nodes")
        if not stage.nodes or not all(stage.groups):
            yield Note("fatal", stage.name, "holds an empty group, or nobody")
        if stage.soak_s < 0:
            yield Note("fatal", stage.name, "soaks for less than no time")
        if stage.canary:
            yield from _canaries(stage, index, units)


def _canaries(stage: Stage, index: int, units: Mapping[str, str]) -> Iterator[Note]:
    if index:
        yield Note("fatal", stage.name, "its canaries come after others")
    sizes = tuple(len({units.get(node, node) for node in group}) for group in stage.groups)
    if sizes and sizes[0] != 1:
        yield Note("fatal", stage.name, "the first canary is not alone")
    elif len(sizes) > len(CANARIES_AT_MOST) or any(
        size > most for size, most in zip(sizes, CANARIES_AT_MOST, strict=False)
    ):
        yield Note(
            "fatal", stage.name, f"its canaries go in groups of {', '.join(map(str, sizes))}, which is too many at once"
        )


def _budgets(plan: Plan) -> Iterator[Note]:
    limits = Counter(limit.pool for limit in plan.pools)
    planned = Counter(part.pool for part in plan.nodes)
    for part in plan.nodes:
        if part.pool not in limits:
            yield Note("fatal", part.node, f"its pool {part.pool} has no limit")
    for limit in plan.pools:
        if limits[limit.pool] > 1:
            yield Note("fatal", limit.pool, "has more than one limit")
        if limit.unavailable < 1:
            yield Note(
                "fatal",
                limit.pool,
                "may lose no node, so nothing can be changed",
            )
        elif limit.unavailable >= limit.nodes and limit.nodes > 1:
            yield Note("advice", limit.pool, "may lose all its nodes at once")
        if planned[limit.pool] > limit.nodes:
            yield Note(
                "fatal", limit.pool, f"has {limit.nodes} nodes, of which {planned[limit.pool]} are to be changed"
            )


def _bounds(plan: Plan) -> Iterator[Note]:
    met = Counter((bound.kind, bound.name) for bound in plan.bounds)
    planned = Counter(place for part in plan.nodes for place in (("rack", part.rack), ("tenant", part.tenant)))
    for bound in plan.bounds:
        what = f"{bound.kind} {bound.name}"
        if met[bound.kind, bound.name] > 1:
            yield Note("fatal", what, "has more than one bound")
        if bound.unavailable < 1:
            yield Note("fatal", what, "may lose no node, so nothing of it can be changed")
        if planned[bound.kind, bound.name] > bound.nodes:
            yield Note(
                "fatal", what, f"has {bound.nodes} nodes, of which {planned[bound.kind, bound.name]} are planned"
            )


def _steps(plan: Plan) -> Iterator[Note]:
    repaired = [part.node for part in plan.nodes if part.step.kind is StepKind.REPAIR]
    if len(repaired) > 1:
        yield Note("fatal", repaired[1], "is repaired together with others: a repair is of one node")
    if repaired and plan.approvals < 1:
        yield Note("fatal", repaired[0], "is repaired without anybody's approval, and has no way back")
    # Nodes that are alike share the very step, and there are dozens of steps for thousands of nodes.
    found: dict[int, tuple[tuple[str, str], ...]] = {}
    for part in plan.nodes:
        if id(part.step) not in found:
            found[id(part.step)] = tuple(_step(part.step))
        yield from (Note(severity, part.node, says) for severity, says in found[id(part.step)])


def _step(step: Step) -> Iterator[tuple[str, str]]:
    way = {StepKind.REPAIR: _repair, StepKind.INSTALL: _first}.get(step.kind, _way)(step)
    yield from (("fatal", says) for says in (*way, *_proof(step)))
    if step.restart not in ("reload", "reboot"):
        yield "fatal", f"restarts by {step.restart!r}, which nobody knows"
    if step.kind is StepKind.HOLD:
        if step.packages != step.back or set(step.expects) != set(step.done_when):
            yield "fatal", "is to be held only, and would change"
    elif not step.packages or set(step.expects) == set(step.done_when):
        yield "fatal", "changes nothing"
    expected = {each.path: each.value for each in step.expects}
    loaded, disk = expected.get("module.nvidia.loaded_version"), expected.get("module.nvidia.disk_version")
    if step.kind is StepKind.REPAIR:
        yield "advice", "has no way back from its repair: where that fails, it stays out of service for a person"
    elif loaded != disk:
        yield "advice", f"runs {loaded} with {disk} on disk: a failed change ends in quarantine, not in {loaded}"


def _way(step: Step) -> Iterator[str]:
    """The way back brings every package to where it is now; names may change on the way there."""
    now = {each.path: each.value for each in step.expects if each.path.startswith("package[")}
    if not step.back or {f"package[{pin.name}].version": pin.version for pin in step.back} != now:
        yield "has no whole way back"
    expected = {each.path: each.value for each in step.expects}
    if not expected:
        yield "expects nothing, so a moved node would not be noticed"
    elif any(expected.get(f"package[{pin.name}].version") != pin.version for pin in step.back):
        yield "goes back to packages that it is not expected to have"


def _repair(step: Step) -> Iterator[str]:
    """What lies there is expected as it was seen, each package with its version and its state: there is no way back to it."""
    expected = {each.path: each.value for each in step.expects}
    if not expected:
        yield "expects nothing, so a moved node would not be noticed"
    elif any(
        expected.get(f"package[{pin.name}].version") != pin.version or f"package[{pin.name}].state" not in expected
        for pin in step.back
    ):
        yield "repairs packages that it is not expected to have"


def _first(step: Step) -> Iterator[str]:
    """On a bare node there is nothing to go back to but that it has no driver."""
    if step.back:
        yield "installs a first driver over packages that are there"
    if not step.expects:
        yield "expects nothing, so a moved node would not be noticed"


def _proof(step: Step) -> Iterator[str]:
    """What is called done is that the new driver is loaded and every package is the one that was meant."""
    done = {each.path: each.value for each in step.done_when}
    if not done:
        yield "does not say when it is done"
    elif done.get("module.nvidia.loaded_version") != step.to_driver.partition("-")[0]:
        yield f"is called done without {step.to_driver} loaded"
    elif any(done.get(f"package[{pin.name}].version") != pin.version for pin in step.packages):
        yield "is called done with other packages than it installs"


def _memory(plan: Plan) -> Iterator[Note]:
    """What rests on memory needs a person's word."""
    doubts = [line for line in plan.because if DOUBT in line]
    if doubts and plan.nodes:
        if plan.approvals < 1:
            yield Note("fatal", plan.target, f"needs an approval: {doubts[0]}")
        else:
            yield Note("advice", plan.target, f"whoever approves it vouches for this: {doubts[0]}")
