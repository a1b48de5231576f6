"""The safety rules on jobs, strata, canaries, controls and windows, as `lint` re-checks them. Pure; it shares nothing with what makes stages.

What it reads is the plan alone: who stands where, what runs there, what may be away.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from muster.model.frozen import dataclass
from muster.model.plan import CHANGE_S, SCHEMA_1, STRATUM_AT_LEAST, NodePlan, Plan, Stage
from muster.planner.note import Note

_TIERS = {"development": 0, "standard": 1, "critical": 2}
_DRAINS = ("wait", "requeue", "evict")


@dataclass(frozen=True)
class _Seen:
    """A plan with the ways into it that the rules need. Nodes without a step, or without a stage, are other rules' business."""

    plan: Plan

    @cached_property
    def parts(self) -> Mapping[str, NodePlan]:
        return {part.node: part for part in self.plan.nodes}

    @cached_property
    def stage_of(self) -> Mapping[str, int]:
        return {node: at for at, stage in enumerate(self.plan.stages) for node in stage.nodes}

    @cached_property
    def units(self) -> Mapping[str, Sequence[NodePlan]]:
        units: dict[str, list[NodePlan]] = {}
        for part in self.plan.nodes:
            if part.node in self.stage_of:
                units.setdefault(part.unit, []).append(part)
        return units

    @staticmethod
    def stratum(members: Sequence[NodePlan]) -> str:
        return members[0].stratum if len(members) == 1 else " + ".join(sorted({each.stratum for each in members}))

    def stage(self, members: Sequence[NodePlan]) -> Stage:
        return self.plan.stages[self.stage_of[members[0].node]]


def work_notes(plan: Plan) -> Iterator[Note]:
    """The notes by these rules. Plans of the first form do not say what the rules need."""
    if plan.schema == SCHEMA_1:
        return
    seen = _Seen(plan)
    for rule in (_told, _together, _jobs, _order, _canaries, _spread, _control, _strata, _windows, _startable):
        yield from rule(seen)


def _told(seen: _Seen) -> Iterator[Note]:
    for part in seen.plan.nodes:
        if part.jobs and part.idle:
            yield Note("fatal", part.node, f"is called idle, and job {part.jobs[0]} runs on it")
        if part.drain not in _DRAINS:
            yield Note("fatal", part.node, f"is drained by {part.drain!r}, which nobody knows")


def _together(seen: _Seen) -> Iterator[Note]:
    """What is changed as one stands in one group, and fits what may be away."""
    group_of = {
        node: (at, number)
        for at, stage in enumerate(seen.plan.stages)
        for number, group in enumerate(stage.groups)
        for node in group
    }
    spare = {("pool", limits.pool): limits.unavailable for limits in seen.plan.pools}
    spare |= {(bound.kind, bound.name): bound.unavailable for bound in seen.plan.bounds}
    for members in seen.units.values():
        first = members[0]
        if len(members) == 1:
            continue  # one node is in one group, and fits whatever may lose a node at all
        if len({group_of.get(each.node) for each in members}) > 1:
            yield Note("fatal", first.node, f"is released apart from others of its NVLink domain {first.domain}")
        needed = Counter(
            place for each in members for place in (("pool", each.pool), ("rack", each.rack), ("tenant", each.tenant))
        )
        for (kind, name), count in needed.items():
            most = spare.get((kind, name))
            if most is not None and count > most > 0:
                yield Note(
                    "fatal",
                    first.node,
                    f"and what goes with it are {count} nodes of {kind} {name}, which can spare {most}",
                )


def _jobs(seen: _Seen) -> Iterator[Note]:
    """Each running job is touched by one stage alone."""
    stages: dict[str, int] = {}
    told: set[str] = set()
    for part in seen.plan.nodes:
        at = seen.stage_of.get(part.node)
        for job in part.jobs if at is not None else ():
            if stages.setdefault(job, at or 0) != at and job not in told:
                told.add(job)
                first, second = sorted((stages[job], at or 0))
                names = f"{seen.plan.stages[first].name} and {seen.plan.stages[second].name}"
                yield Note("fatal", part.node, f"runs job {job}, whose nodes stand in the stages {names}")


def _order(seen: _Seen) -> Iterator[Note]:
    """Among nodes that stand alone: development before critical, and of one tier idle before busy.

    Canaries and controls are chosen otherwise.
    """
    tiers = {limits.pool: _TIERS.get(limits.tier, 1) for limits in seen.plan.pools}
    latest_idle: dict[int, tuple[int, str]] = {}
    earliest_busy: dict[int, tuple[int, str]] = {}
    for members in seen.units.values():
        part, stage = members[0], seen.stage(members)
        if len(members) > 1 or stage.canary or stage.control or part.pool not in tiers:
            continue
        at, tier = seen.stage_of[part.node], tiers[part.pool]
        if part.idle and at > latest_idle.get(tier, (-1, ""))[0]:
            latest_idle[tier] = (at, part.node)
        if at < earliest_busy.get(tier, (len(seen.plan.stages), ""))[0] and not part.idle:
            earliest_busy[tier] = (at, part.node)
    firsts = _firsts(seen, tiers)
    for tier, (at, idle) in latest_idle.items():
        for other, (before, busy) in earliest_busy.items():
            if before < at and other >= tier:
                yield Note("fatal", idle, f"is idle, and goes after {busy}, which is busy")
        later = [(before, node) for other, (before, node) in firsts.items() if other > tier and before < at]
        if later:
            yield Note("fatal", idle, f"goes after {later[0][1]}, whose pool is more critical")


def _firsts(seen: _Seen, tiers: Mapping[str, int]) -> Mapping[int, tuple[int, str]]:
    """For each tier the earliest stage after the canaries, with a node that stands there."""
    firsts: dict[int, tuple[int, str]] = {}
    for at, stage in enumerate(seen.plan.stages):
        for node in () if stage.canary or stage.control else stage.nodes:
            if node in seen.parts and seen.parts[node].pool in tiers:
                firsts.setdefault(tiers[seen.parts[node].pool], (at, node))
    return firsts


def _canaries(seen: _Seen) -> Iterator[Note]:
    """Canaries break no job where an idle node would do, and cover what software can tell apart."""
    canaries = {name: m for name, m in seen.units.items() if seen.stage(m).canary}
    if not canaries:
        return
    covered = Counter(seen.stratum(m) for m in canaries.values())
    idle = {
        seen.stratum(m): m[0].node
        for name, m in seen.units.items()
        if name not in canaries and all(each.idle for each in m)
    }
    for members in canaries.values():
        stratum = seen.stratum(members)
        if any(not each.idle for each in members) and stratum in idle:
            yield Note("fatal", members[0].node, f"is a busy canary, and {idle[stratum]} of the same kind is idle")
    missing = dict.fromkeys(seen.stratum(m) for m in seen.units.values() if seen.stratum(m) not in covered)
    if missing and max(covered.values()) > 1:
        yield Note("fatal", next(iter(missing)), "has no canary, and another stratum has two")
    elif missing:
        first, more = next(iter(missing)), f" +{len(missing) - 1}" if len(missing) > 1 else ""
        yield Note("advice", f"{first}{more}", "has no canary: what breaks only there is seen in a later stage")


def _spread(seen: _Seen) -> Iterator[Note]:
    """No rack and no cooling zone holds more than a third of the canaries, as far as others could be had without breaking a job."""
    canaries = [m for m in seen.units.values() if seen.stage(m).canary]
    most = max(1, len(canaries) // 3)
    for kind in ("rack", "zone"):
        counts = Counter(place for m in canaries for place in _named(m, kind))
        for place, count in sorted(counts.items()):
            if count <= most:
                continue
            others = [m for m in canaries if place in _named(m, kind) and _replaceable(seen, m, canaries, most)]
            severity = "fatal" if others else "advice"
            words = f"holds {count} of {len(canaries)} canaries: its own faults would look like the driver's"
            yield Note(severity, f"{kind} {place}", words + ("" if others else ", and no others are idle"))


def _named(members: Sequence[NodePlan], kind: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(getattr(each, kind) for each in members if getattr(each, kind)))


def _replaceable(seen: _Seen, canary: Sequence[NodePlan], canaries: Sequence[Sequence[NodePlan]], most: int) -> bool:
    """Whether an idle unit of the same stratum stands where there is room. A canary with a job may not be parted from that job's other nodes."""
    if any(not each.idle for each in canary):
        return False
    taken: Counter[tuple[str, str]] = Counter()
    for members in canaries:
        taken.update(
            (kind, place) for kind in ("rack", "zone") if members is not canary for place in _named(members, kind)
        )
    return any(
        all(taken[kind, place] < most for kind in ("rack", "zone") for place in _named(members, kind))
        for members in seen.units.values()
        if seen.stratum(members) == seen.stratum(canary)
        and not seen.stage(members).canary
        and all(each.idle for each in members)
    )


def _control(seen: _Seen) -> Iterator[Note]:
    """Of each stratum that can be compared the policy's share stays as it is until everything else has soaked."""
    controls = [at for at, stage in enumerate(seen.plan.stages) if stage.control]
    if controls and controls != [len(seen.plan.stages) - 1]:
        yield Note("fatal", seen.plan.stages[controls[0]].name, "is held back for comparison, and others come after it")
    held = Counter(seen.stratum(m) for m in seen.units.values() if seen.stage(m).control)
    exposed = Counter(seen.stratum(m) for m in seen.units.values() if seen.stage(m).canary)
    for stratum, count in Counter(seen.stratum(m) for m in seen.units.values()).items():
        if count < STRATUM_AT_LEAST or not seen.plan.control:
            continue
        wanted = min(-(-count * seen.plan.control // 10_000), count - max(1, exposed[stratum]))
        if held[stratum] < wanted:
            words = f"has {held[stratum]} of {count} units held back for comparison, and {wanted} are asked for"
            yield Note("fatal", stratum, words)


def _strata(seen: _Seen) -> Iterator[Note]:
    counts = Counter(seen.stratum(m) for m in seen.units.values())
    told = {each.name: each.units for each in seen.plan.strata}
    for name in dict.fromkeys((*counts, *told)):
        if counts[name] != told.get(name, 0):
            yield Note("fatal", name, f"is said to have {told.get(name, 0)} units, and has {counts[name]}")
    small = [name for name, count in counts.items() if count < STRATUM_AT_LEAST]
    if small:
        words = f"has {counts[small[0]]} units and so no statistical gate: whoever approves answers for it"
        more = f" +{len(small) - 1}" if len(small) > 1 else ""
        yield Note("advice" if seen.plan.approvals else "fatal", f"{small[0]}{more}", words)


def _windows(seen: _Seen) -> Iterator[Note]:
    for limits in seen.plan.pools:
        for span in limits.windows:
            if span.closes <= span.opens:
                yield Note(
                    "fatal", limits.pool, f"has a window that closes before it opens ({span.opens:%Y-%m-%d %H:%M} UTC)"
                )
        if limits.windows and not any(span.takes(span.opens) for span in limits.windows):
            yield Note(
                "fatal", limits.pool, f"has no window of at least {CHANGE_S // 60} minutes, which one change may take"
            )
        longest = max((int((s.closes - s.opens).total_seconds()) for s in limits.windows), default=limits.drain_limit_s)
        if longest < limits.drain_limit_s:
            words = f"drains for up to {limits.drain_limit_s // 60} min, and its longest window is {longest // 60} min"
            yield Note("advice", limits.pool, f"{words}: a node whose jobs outlast it is left for the next plan")


def _startable(seen: _Seen) -> Iterator[Note]:
    """A job that is ended to start again elsewhere must find room while its stage is away."""
    sizes = {limits.pool: limits.nodes for limits in seen.plan.pools}
    running = Counter(job for part in seen.plan.nodes for job in part.jobs)
    for stage in seen.plan.stages:
        out = Counter(seen.parts[node].pool for node in stage.nodes if node in seen.parts)
        for node in stage.nodes:
            part = seen.parts.get(node)
            if part is None or part.drain == "wait" or part.pool not in sizes:
                continue
            left = sizes[part.pool] - out[part.pool]
            stuck = next((job for job in part.jobs if running[job] > left), None)
            if stuck is not None:
                words = f"would end job {stuck} of {running[stuck]} nodes, and {left} remain in pool {part.pool} for it"
                yield Note("fatal", node, words)
