"""Says a plan in lines that a person reads in a minute, for a fleet of any size. The only place where the planner speaks. Pure."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from muster.model.plan import STRATUM_AT_LEAST, Bound, Plan, PoolLimits, Stage, WaitingOn
from muster.model.quantities import duration_text
from muster.planner.bare import INSTALLS
from muster.planner.folding import folded, joined
from muster.planner.forecast import CHANGE_TAKES_S
from muster.planner.gates import LATER_FAILURES_TO_HALT
from muster.planner.holding import HOLDS
from muster.planner.mend import REPAIRS
from muster.planner.note import Note
from muster.planner.power import power
from muster.planner.propose import NOT_HEEDED

WAITING_WORDS: Mapping[WaitingOn, str] = {
    WaitingOn.BUDGET: "waits for the pool's limit",
    WaitingOn.DRAIN: "waits for jobs",
    WaitingOn.SOAK: "soaks",
    WaitingOn.UNKNOWN_HEALTH: "something is unknown",
    WaitingOn.BREAKER: "the breaker is open",
    WaitingOn.STALE_FACTS: "needs: muster collect",
    WaitingOn.NO_SOLUTION: "needs another target: muster why NODE",
    WaitingOn.WINDOW: "waits for a window",
    WaitingOn.APPROVAL: "needs an approval",
    WaitingOn.OWNED_BY_HUMAN: "left to people",
    WaitingOn.NOTHING_TO_DO: "as wanted",
}
"""What a wait is for, in words; every member has some."""

NAMES, REASONS = 4, 20
"""How many runs of names stand in a line, and how many reasons in a list; what is not shown is counted."""

CANNOT_SEE = "slower GPUs, wrong results of jobs, and what comes later than the soak"
"""What no stage of this release detects."""


def heading(plan: Plan) -> str:
    """The plan in one line."""
    if not plan.nodes:
        all_well = all(left.on is WaitingOn.NOTHING_TO_DO for left in plan.left_out)
        return f"{plan.id}: {'nothing to change' if all_well else 'nothing is planned'}"
    froms = Counter(part.step.from_driver for part in plan.nodes)
    before = ", ".join(f"{count} from {driver}" for driver, count in sorted(froms.items()))
    return f"{plan.id}: {len(plan.nodes)} nodes to {plan.target} ({before})"


def lines(plan: Plan, notes: Sequence[Note], approvals: int, *, wide: bool = False) -> tuple[str, ...]:
    """The whole plan: what, why it can be, what breaks, stages, limits, who is left out, what it still needs. `wide`: nothing is cut short."""
    said = [heading(plan)]
    if plan.parent is not None:
        said.append(f"  a round of {plan.parent}, whose approval covers it as long as it stays within")
    said += _admitted(plan, wide=wide)
    if plan.nodes:
        said += [
            _breaks(plan),
            *_kernels(plan),
            *_cost(plan),
            *_stages(plan, wide=wide),
            *_limits(plan, wide=wide),
            *_strata(plan),
        ]
    said += _left(plan, wide=wide)
    said += [f"  {note.severity}: {note.subject} {note.says}" for note in notes]
    if plan.nodes:
        said.append(f"  approvals: {approvals} of {plan.approvals}")
        command = "apply" if approvals >= plan.approvals else "plans approve"
        said.append(f"next: muster {command} {plan.id}")
    return tuple(said)


_RULE = re.compile(r"(.*?)(?P<rule> \[[a-z0-9-]+\].*)", re.DOTALL)
"""A reason and, behind it, the rule that gives it."""


def _admitted(plan: Plan, *, wide: bool) -> list[str]:
    """Why the driver can be: what one rule says of several kinds of nodes in one line, unless `wide`. Then what is to be known beside it."""
    own = (NOT_HEEDED, REPAIRS, INSTALLS, HOLDS)
    reasons = [why for why in plan.because if not why.startswith(own)]
    beside = [f"  {why}" for why in plan.because if why.startswith(own)]
    if wide:
        return [f"  admitted: {why}" for why in reasons] + beside
    alike: dict[tuple[str, str], list[str]] = {}
    for why in reasons:
        target, _, rest = why.partition(": ")
        found = _RULE.fullmatch(rest)
        alike.setdefault((target, found["rule"] if found else ""), []).append(found[1] if found else rest or why)
    one = len({target for target, _ in alike}) == 1  # the heading has named it
    told = [
        f"  admitted: {'' if one else f'{target}: '}{joined(said, REASONS)}{rule}"
        for (target, rule), said in alike.items()
    ]
    hidden = len(told) - REASONS
    return told[:REASONS] + ([f"  admitted: {hidden} more reasons (--wide)"] if hidden > 0 else []) + beside


def _breaks(plan: Plan) -> str:
    """What the plan interrupts: how nodes come by their new module, and whose jobs run there now."""
    restarts = Counter(part.step.restart for part in plan.nodes)
    how = {"reload": "reload the module", "reboot": "restart"}
    said = [f"{count} {_nodes(count)} {how.get(kind, kind)}" for kind, count in sorted(restarts.items())]
    jobs = {job for part in plan.nodes for job in part.jobs}
    busy = [part for part in plan.nodes if not part.idle]
    idle = len(plan.nodes) - len(busy)
    work = f"{idle} idle, {len(busy)} busy" + (f" with {len(jobs)} {_plural(len(jobs), 'job')}" if jobs else "")
    drains = Counter(part.drain for part in busy)
    ways = ", ".join(f"{count} by {drain}" for drain, count in sorted(drains.items()) if drain != "wait")
    policies = {limits.pool: limits.drain_policy for limits in plan.pools}
    stuck = sum(part.drain == "wait" and policies[part.pool] != "wait" for part in busy)
    if ways:
        work += f"; drained {ways}, the rest by waiting"
    if stuck:
        work += f"; {stuck} wait for the end of their jobs, which could not begin elsewhere"
    return f"  breaks: {', '.join(said)}; now {work}"


def _kernels(plan: Plan) -> list[str]:
    """Which nodes come up with another kernel."""
    moves = Counter((each.from_kernel, each.to_kernel) for part in plan.nodes if (each := part.step.kernel) is not None)
    return [
        f"  kernel: {count} {_nodes(count)} from {old} to {new}, booted once and the default only after the validation"
        for (old, new), count in sorted(moves.items())
    ]


def _cost(plan: Plan) -> list[str]:
    cost = plan.forecast
    if cost is None:
        return []
    whole = len(cost.stages_s) == len(plan.stages)
    time = about(cost.duration_s) if whole else "longer than its windows are known"
    untold = f"; {cost.untold} {_nodes(cost.untold)} with jobs that end nobody knows when" if cost.untold else ""
    drained = f"{hours(cost.drain_node_s)} node-hours without new work"
    lost = f"{hours(cost.lost_gpu_s)} GPU-hours standing still (at {CHANGE_TAKES_S // 60} min a node{untold})"
    return [f"  cost, if all goes well: {time}; {drained}, {lost}"]


def _stages(plan: Plan, *, wide: bool) -> list[str]:
    said = []
    ends = () if plan.forecast is None else plan.forecast.stages_s
    for at, stage in enumerate(plan.stages):
        groups = "+".join(str(len(group)) for group in stage.groups) if stage.canary else "as the limits allow"
        soak = f", then soaks {duration_text(stage.soak_s)}" if stage.soak_s and at + 1 < len(plan.stages) else ""
        when = f", ends after about {about(ends[at])}" if at < len(ends) else ""
        held = " held back for comparison" if stage.control else ""
        names = folded(stage.nodes, 0 if wide else NAMES)
        count = f"{len(stage.nodes)} {_nodes(len(stage.nodes))}"
        said.append(f"  stage {stage.name}: {count}{held} ({groups}){soak}{when}: {names}")
        said.append(f"    {detects(stage, last=at + 1 == len(plan.stages))}")
    return [
        *said,
        f"  no stage detects: {CANNOT_SEE}",
    ]


def detects(stage: Stage, *, last: bool = False) -> str:
    """What a stage can and cannot detect, in words."""
    found = power(len(stage.nodes), 0 if last else stage.soak_s, 1 if stage.canary else LATER_FAILURES_TO_HALT)
    if found.share >= 1:
        words = "detects nothing by itself: one failure may be that node's own fault"
    else:
        words = f"detects (95 %) a driver that fails at once on {percent(found.share)} of nodes or more"
    if found.per_node_day is None:
        return words
    return f"{words}; in service, {rate(found.per_node_day)}"


def rate(per_node_day: float) -> str:
    """A rate of failures that a soak would show."""
    if per_node_day >= 1:
        return f"{per_node_day:.1f} failures a node-day or more"
    seen = per_node_day * 1000
    count = f"{seen:.0f}" if seen >= 1 else f"{seen:.2g}"
    return f"{count} failures in 1,000 node-days or more (all-cause: about 4)"


def percent(share: float) -> str:
    """A share of nodes, rounded up."""
    tenths = -int(-share * 1000 // 1)
    return f"{tenths / 10:.1f} %" if tenths < 100 else f"{-(-tenths // 10)} %"


def about(seconds: int) -> str:
    """A duration as people say it: `35 min`, `5 h`, `3.5 days`."""
    if seconds < 5400:
        return f"{-(-seconds // 60)} min"
    if seconds < 172_800:
        return f"{-(-seconds // 3600)} h"
    return f"{seconds / 86400:.1f} days"


def hours(seconds: int) -> str:
    """Hours with thousands apart."""
    return f"{-(-seconds // 3600):,}"


def _limits(plan: Plan, *, wide: bool) -> list[str]:
    said = [_pool(limits) for limits in plan.pools]
    alike: dict[tuple[str, int, int], list[Bound]] = {}
    for bound in plan.bounds:
        alike.setdefault((bound.kind, bound.unavailable, bound.nodes), []).append(bound)
    for (kind, unavailable, nodes), members in alike.items():
        names = folded([each.name for each in members], 0 if wide else NAMES)
        said.append(f"  {kind} {names}: at most {unavailable} of {nodes} nodes away at once")
    return said


def _pool(limits: PoolLimits) -> str:
    drain = f"drain by {limits.drain_policy}, at most {duration_text(limits.drain_limit_s)}"
    said = f"  pool {limits.pool}: at most {limits.unavailable} of {limits.nodes} nodes away at once; {drain}"
    if not limits.windows:
        return said
    first, last = limits.windows[0], limits.windows[-1]
    return f"{said}; only in its windows, the next {first.opens:%Y-%m-%d %H:%M}-{first.closes:%H:%M} UTC, the last known {last.opens:%Y-%m-%d}"


def _strata(plan: Plan) -> list[str]:
    if not plan.strata:
        return []
    held = sum(each.control for each in plan.strata)
    small = [each for each in plan.strata if each.units < STRATUM_AT_LEAST]
    said = [f"  strata (model, VBIOS, kernel, flavour): {len(plan.strata)}, {held} units held back until the last soak"]
    if small:
        names = "; ".join(each.name for each in small[:2]) + (f"; +{len(small) - 2}" if len(small) > 2 else "")
        said.append(
            f"    {len(small)} of fewer than {STRATUM_AT_LEAST} units have no statistical gate and need an approval: {names}"
        )
    return said


def _left(plan: Plan, *, wide: bool) -> list[str]:
    grouped: dict[tuple[WaitingOn, str], list[str]] = {}
    for left in plan.left_out:
        grouped.setdefault((left.on, left.detail), []).append(left.subject)
    shown = list(grouped.items()) if wide else list(grouped.items())[:REASONS]
    said = [
        f"  not planned: {folded(nodes, 0 if wide else NAMES)}: {detail} [{WAITING_WORDS[on]}]"
        for (on, detail), nodes in shown
    ]
    hidden = sum(len(nodes) for nodes in list(grouped.values())[len(shown) :])
    if hidden:
        said.append(f"  not planned: {hidden} more for {len(grouped) - len(shown)} more reasons: --wide shows all")
    return said


def _nodes(count: int) -> str:
    return _plural(count, "node")


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


def few(names: Sequence[str], most: int = 4) -> str:
    """The first names and how many more there are."""
    more = f" +{len(names) - most}" if len(names) > most else ""
    return ", ".join(names[:most]) + more
