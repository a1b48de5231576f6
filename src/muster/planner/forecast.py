"""What a rollout costs if all goes well: simple arithmetic over the plan, with every assumption in sight. Pure.

It knows no failures, no nodes that come or go, and no jobs that begin later.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from muster.model.plan import Forecast, NodePlan, PoolLimits, Span, Stage
from muster.model.policy import DrainPolicy

CHANGE_TAKES_S = 1800
"""Half an hour for packages, a restart and the validation of one node. An assumption: the first canary shows what it is here."""

_WAIT = DrainPolicy.WAIT.value


def forecast(
    stages: Sequence[Stage],
    parts: Mapping[str, NodePlan],
    limits: Mapping[str, PoolLimits],
    free: Mapping[str, int | None],
    now: datetime,
) -> Forecast:
    """The forecast of a plan that begins `now`; `free` says in how many seconds each node's jobs end (None: untold)."""
    ends: list[int] = []
    at: datetime | None = now
    for stage in stages:
        for group in stage.groups:
            at = _group_end([parts[node] for node in group], limits, free, at, now)
        if at is None:
            break
        ends.append(int((at - now).total_seconds()))
        at += timedelta(seconds=stage.soak_s)
    drain = sum(_drain_s(part, limits, free) for part in parts.values())
    lost = sum(part.gpus * CHANGE_TAKES_S for part in parts.values())
    untold = sum(free[node] is None for node in parts)
    return Forecast(ends[-1] if ends else 0, drain, lost, tuple(ends), untold)


def _drain_s(part: NodePlan, limits: Mapping[str, PoolLimits], free: Mapping[str, int | None]) -> int:
    """How long a node takes no new work before its change: until its jobs end, at most as long as its pool's drain may last. A job that may
    be interrupted has its time for a checkpoint."""
    if part.idle:
        return 0
    most, left = limits[part.pool].drain_limit_s, free[part.node]
    if part.drain != _WAIT:
        most = limits[part.pool].checkpoint_wait_s
    return most if left is None else min(left, most)


def _group_end(
    parts: Sequence[NodePlan],
    limits: Mapping[str, PoolLimits],
    free: Mapping[str, int | None],
    at: datetime | None,
    now: datetime,
) -> datetime | None:
    """When the last node of a group is through, beginning at `at`; None when its windows do not reach so far."""
    pools: dict[str, list[NodePlan]] = {}
    for part in parts:
        pools.setdefault(part.pool, []).append(part)
    last = at
    for name, members in pools.items():
        if at is None or last is None:
            return None
        waits = max(_drain_s(part, limits, free) for part in members)
        passed = int((at - now).total_seconds())
        # Jobs go on ending while earlier stages are at work; what was to end by then has ended.
        waits = max(0, waits - passed) if all(free[part.node] is not None for part in members) else waits
        waves = -(-len(members) // max(1, limits[name].unavailable))
        end = _within(limits[name].windows, at, waits + waves * CHANGE_TAKES_S)
        if end is None:
            return None
        last = max(last, end)
    return last


def _within(windows: Sequence[Span], at: datetime, needed_s: int) -> datetime | None:
    """When work that takes so long has ended, if it goes on in windows alone; None when they do not suffice."""
    if not windows:
        return at + timedelta(seconds=needed_s)
    for span in windows:
        begin = max(at, span.opens)
        if not span.takes(begin):
            continue
        room = int((span.closes - begin).total_seconds())
        if needed_s <= room:
            return begin + timedelta(seconds=needed_s)
        needed_s -= room
    return None
