"""What is different between two plans, in the terms of a person who knows the first. Pure."""

from collections.abc import Iterator, Mapping

from muster.model.frozen import dataclass
from muster.model.plan import NodePlan, Plan
from muster.planner.folding import folded

_HEAD = ("fleet", "target", "flavour", "policy_revision", "knowledge_revision", "approvals", "control", "parent")
_SHORT = 12
"""Digits of a revision that are shown."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: `what` it is about (`plan`, `pool`, `bound`, `node`), its words, and the nodes it is about."""

    what: str
    says: str
    nodes: tuple[str, ...] = ()


def diff(before: Plan, after: Plan) -> tuple[Change, ...]:
    """All differences that matter to what happens, the widest first; none for plans that do the same."""
    return (*_head(before, after), *_limits(before, after), *_nodes(before, after), *_left(before, after))


def diff_lines(before: Plan, after: Plan, *, wide: bool = False) -> tuple[str, ...]:
    """The differences in lines."""
    changes = diff(before, after)
    said = [
        f"{before.id} -> {after.id}: {'no difference in what is done' if not changes else f'{len(changes)} differences'}"
    ]
    for change in changes:
        names = f"{folded(change.nodes, 0 if wide else 4)} " if change.nodes else ""
        said.append(f"  {names}{change.says}")
    return tuple(said)


def _head(before: Plan, after: Plan) -> Iterator[Change]:
    for what in _HEAD:
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            short = _SHORT if what.endswith("revision") else None
            yield Change("plan", f"{what.replace('_', ' ')}: {_shown(old, short)} -> {_shown(new, short)}")
    for line in after.because:
        if line not in before.because:
            yield Change("plan", f"now: {line}")
    for line in before.because:
        if line not in after.because:
            yield Change("plan", f"no more: {line}")


def _shown(value: object, short: int | None) -> str:
    return str(value)[:short] if value not in (None, "") else "none"


def _limits(before: Plan, after: Plan) -> Iterator[Change]:
    old, new = {each.pool: each for each in before.pools}, {each.pool: each for each in after.pools}
    for pool in dict.fromkeys((*old, *new)):
        if pool not in new:
            yield Change("pool", f"pool {pool} is changed no more")
        elif pool not in old:
            yield Change(
                "pool",
                f"pool {pool} is changed too, at most {new[pool].unavailable} of {new[pool].nodes} nodes at once",
            )
        else:
            for what in ("unavailable", "nodes", "drain_policy", "drain_limit_s", "tier"):
                was, now = getattr(old[pool], what), getattr(new[pool], what)
                if was != now:
                    yield Change("pool", f"pool {pool}: {what.replace('_', ' ')} {was} -> {now}")
            if old[pool].windows != new[pool].windows:
                yield Change("pool", f"pool {pool}: other windows")
    was_bound = {(each.kind, each.name): each.unavailable for each in before.bounds}
    is_bound = {(each.kind, each.name): each.unavailable for each in after.bounds}
    for kind, name in dict.fromkeys((*was_bound, *is_bound)):
        lost, now = was_bound.get((kind, name)), is_bound.get((kind, name))
        if lost != now:
            yield Change("bound", f"{kind} {name}: at most {_shown(lost, None)} -> {_shown(now, None)} away at once")


def _nodes(before: Plan, after: Plan) -> Iterator[Change]:
    old, new = {part.node: part for part in before.nodes}, {part.node: part for part in after.nodes}
    why = {left.subject: left.detail for left in after.left_out}
    was, now = _stage_of(before), _stage_of(after)
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys((*old, *new)):
        if name not in new:
            groups.setdefault(f"left out now: {why.get(name, 'no longer in the inventory')}", []).append(name)
        elif name not in old:
            groups.setdefault(f"added, in stage {now.get(name, '-')}", []).append(name)
        else:
            for words in _moved(old[name], new[name], was.get(name, "-"), now.get(name, "-")):
                groups.setdefault(words, []).append(name)
    for words, names in groups.items():
        yield Change("node", words, tuple(names))


def _moved(old: NodePlan, new: NodePlan, was: str, now: str) -> Iterator[str]:
    if was != now:
        yield f"stage {was} -> {now}"
    if old.step != new.step:
        restart = f", by {new.step.restart}" if old.step.restart != new.step.restart else ""
        yield f"step {old.step.from_driver} -> {old.step.to_driver} is now {new.step.from_driver} -> {new.step.to_driver}{_kernel(new)}{restart}"
    for what in ("pool", "rack", "zone", "tenant", "domain", "stratum", "drain"):
        before, after = getattr(old, what), getattr(new, what)
        if before != after:
            yield f"{what} {before or 'none'} -> {after or 'none'}"
    if old.idle != new.idle:
        yield "idle -> busy" if old.idle else "busy -> idle"


def _kernel(part: NodePlan) -> str:
    return f" with kernel {part.step.kernel.to_kernel}" if part.step.kernel is not None else ""


def _stage_of(plan: Plan) -> Mapping[str, str]:
    return {node: stage.name for stage in plan.stages for node in stage.nodes}


def _left(before: Plan, after: Plan) -> Iterator[Change]:
    """Nodes that neither plan changes, and of which the reason is another one."""
    old = {left.subject: left.detail for left in before.left_out}
    groups: dict[str, list[str]] = {}
    for left in after.left_out:
        if left.subject in old and old[left.subject] != left.detail:
            groups.setdefault(f"still left out, now because: {left.detail}", []).append(left.subject)
    for words, names in groups.items():
        yield Change("node", words, tuple(names))
