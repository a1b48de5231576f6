"""Says a plan in lines that a person reads in a minute. The only place where the planner speaks. Pure."""

from collections.abc import Mapping, Sequence

from muster.model.plan import Plan, WaitingOn
from muster.planner.lint import Note
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


def heading(plan: Plan) -> str:
    """The plan in one line."""
    if not plan.nodes:
        all_well = all(left.on is WaitingOn.NOTHING_TO_DO for left in plan.left_out)
        return f"{plan.id}: {'nothing to change' if all_well else 'nothing is planned'}"
    froms: dict[str, int] = {}
    for part in plan.nodes:
        froms[part.step.from_driver] = froms.get(part.step.from_driver, 0) + 1
    before = ", ".join(f"{count} from {driver}" for driver, count in sorted(froms.items()))
    return f"{plan.id}: {len(plan.nodes)} nodes to {plan.target} ({before})"


def lines(plan: Plan, notes: Sequence[Note], approvals: int) -> tuple[str, ...]:
    """The whole plan: what, why it can be, stages, limits, who is left out, what it still needs."""
    said = [heading(plan)]
    said += [f"  {why}" if why.startswith(NOT_HEEDED) else f"  admitted: {why}" for why in plan.because]
    for stage in plan.stages:
        groups = "+".join(str(len(group)) for group in stage.groups) if stage.canary else "as the limits allow"
        soak = f", then soaks {stage.soak_s} s" if stage.soak_s else ""
        said.append(f"  stage {stage.name}: {len(stage.nodes)} nodes ({groups}){soak}: {few(stage.nodes)}")
    for limit in plan.pools:
        drain = f"drain by {limit.drain_policy}, at most {limit.drain_limit_s} s"
        said.append(f"  pool {limit.pool}: at most {limit.unavailable} of {limit.nodes} nodes away at once; {drain}")
    if plan.stages:
        said.append(
            "  detects: packages that do not install, a driver that does not load, GPUs lost or silent; not: slower GPUs"
        )
    said += _left(plan)
    said += [f"  {note.severity}: {note.subject} {note.says}" for note in notes]
    if plan.nodes:
        said.append(f"  approvals: {approvals} of {plan.approvals}")
        command = "apply" if approvals >= plan.approvals else "plans approve"
        said.append(f"next: muster {command} {plan.id}")
    return tuple(said)


def _left(plan: Plan) -> list[str]:
    grouped: dict[tuple[WaitingOn, str], list[str]] = {}
    for left in plan.left_out:
        grouped.setdefault((left.on, left.detail), []).append(left.subject)
    return [f"  not planned: {few(nodes)}: {detail} [{WAITING_WORDS[on]}]" for (on, detail), nodes in grouped.items()]


def few(names: Sequence[str], most: int = 4) -> str:
    """The first names and how many more there are."""
    more = f" +{len(names) - most}" if len(names) > most else ""
    return ", ".join(names[:most]) + more
