"""What may begin now, and whether the rollout goes on: the judgement between groups and stages. Pure.

Only failures that the driver can have caused count against it: it did not install, load, verify or validate after the node passed on the old
driver. A node that was broken before, or that was left out, proves nothing. Silence proves nothing either: a run that has not ended holds
what comes after it, and a canary stage that proved nothing holds everything after it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from muster.model.frozen import dataclass
from muster.model.phase import Phase
from muster.model.plan import Plan, PoolLimits, Stage, Waiting, WaitingOn
from muster.model.run import RolloutState, Run

LATER_FAILURES_TO_HALT = 2
"""After the canary stage the second distinct node halts: one may be that node's own fault, and its way back is already running."""

_FAILED = frozenset(
    {
        Phase.ROLLBACK_REQUIRED, Phase.ROLLBACK_RELOAD_REQUIRED, Phase.ROLLBACK_REBOOT_REQUIRED, Phase.ROLLBACK_VERIFY_REQUIRED,
        Phase.ROLLBACK_VALIDATE_REQUIRED, Phase.ROLLED_BACK,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decision:
    """What to release now, how the rollout stands, and what each held group waits for."""

    release: tuple[str, ...]
    state: RolloutState
    why: str
    waiting: tuple[Waiting, ...]


def failed_by_driver(run: Run) -> bool:
    """Whether this run counts against the driver.

    `notes["broken_before"]` marks a node that failed before anything was changed on it, `notes["not_the_driver"]` one that was given up for
    another reason than the driver.
    """
    if "not_the_driver" in run.notes:
        return False
    if run.phase is Phase.QUARANTINED:
        return "broken_before" not in run.notes
    return run.phase in _FAILED or run.notes.get("direction") == "back"


def decide(plan: Plan, runs: Sequence[Run], now: datetime, state: RolloutState = RolloutState.RUNNING) -> Decision:
    """The decision for a rollout from its runs alone; the same runs and time give the same decision.

    Only a running rollout releases anything; one in another `state` stays in it.
    """
    if state is not RolloutState.RUNNING:
        return Decision((), state, f"the rollout is {state.value}", ())
    failures = sorted((run for run in runs if failed_by_driver(run)), key=lambda run: run.phase_since)
    halt = _halt(plan, failures) or _unproved(plan, runs)
    if halt:
        return Decision((), RolloutState.HALTED, halt, ())
    if all(run.ended for run in runs):
        return Decision((), RolloutState.DONE, _ended(runs), ())
    release, waiting = _next(plan, runs, now)
    return Decision(release, RolloutState.RUNNING, waiting[0].detail if waiting else "", waiting)


def _halt(plan: Plan, failures: Sequence[Run]) -> str:
    for run in failures:
        if plan.stages[run.stage].canary:
            return f"{run.node}, a canary, failed on {plan.target}: {run.notes.get('cause', 'no cause recorded')}"
    if len({run.node for run in failures}) >= LATER_FAILURES_TO_HALT:
        last = failures[-1]
        return f"{len(failures)} nodes failed on {plan.target}, the last {last.node}: {last.notes.get('cause', 'no cause recorded')}"
    return ""


def _unproved(plan: Plan, runs: Sequence[Run]) -> str:
    """Canaries that were all left out or broken before say nothing of the driver: what comes after them must not begin on their word."""
    for index, stage in enumerate(plan.stages):
        canaries = [run for run in runs if run.stage == index] if stage.canary else []
        proved = any(run.phase is Phase.DONE for run in canaries)
        if canaries and not proved and all(run.ended for run in canaries) and not all(run.ended for run in runs):
            first = canaries[0]
            cause = first.notes.get("cause", "no cause recorded")
            return (
                f"no canary came to run {plan.target}, so nothing is proved; {first.node} {first.phase.value}: {cause}"
            )
    return ""


def _ended(runs: Sequence[Run]) -> str:
    changed = sum(run.phase is Phase.DONE for run in runs)
    rest = len(runs) - changed
    return f"{changed} of {len(runs)} nodes changed" + (f", {rest} not" if rest else "")


def _next(plan: Plan, runs: Sequence[Run], now: datetime) -> tuple[tuple[str, ...], tuple[Waiting, ...]]:
    """Runs to release in the first group that has not ended, and what holds the rest."""
    for index, stage in enumerate(plan.stages):
        members = [run for run in runs if run.stage == index]
        for number, _ in enumerate(stage.groups):
            group = [run for run in members if run.group == number]
            if not all(run.ended for run in group):
                return _in_group(plan, stage, members, group, runs, now)
        ended = max((run.phase_since for run in members), default=now)
        soaked = ended + timedelta(seconds=stage.soak_s)
        if soaked > now and not all(run.ended for run in runs if run.stage > index):
            return (), (Waiting(stage.name, WaitingOn.SOAK, f"stage {stage.name} soaks until {soaked:%H:%M:%S} UTC"),)
    return (), ()


def _in_group(
    plan: Plan, stage: Stage, members: Sequence[Run], group: Sequence[Run], runs: Sequence[Run], now: datetime
) -> tuple[tuple[str, ...], tuple[Waiting, ...]]:
    """What of a group may begin, and what holds the rest of it."""
    # In the order of the plan: idle nodes, and those whose jobs end soonest, take up the room first.
    held = sorted((run for run in group if not run.released), key=lambda run: plan.place(run.node))
    if stage.canary and not any(run.phase is Phase.DONE for run in members):
        # Until one canary has come through, one unit at a time: those before it were left out or broken before, and proved nothing.
        under_way = any(run.released and not run.ended for run in members)
        first = plan.node(held[0].node).unit if held else ""
        held = [] if under_way else [run for run in held if plan.node(run.node).unit == first]
    release, waiting = _within_bounds(plan, held, runs, now)
    return release, waiting or (_for_group(stage.name, group),)


class _Room:
    """What may still be taken of each pool, rack and tenant: its limit less what is away or on its way."""

    def __init__(self, plan: Plan, runs: Sequence[Run]) -> None:
        self._plan = plan
        self._left = {("pool", limits.pool): limits.unavailable for limits in plan.pools}
        self._left |= {(bound.kind, bound.name): bound.unavailable for bound in plan.bounds}
        self._most = dict(self._left)
        for run in runs:
            if run.phase is Phase.QUARANTINED or (run.released and not run.ended):
                self._take(run.node)

    def take(self, nodes: Sequence[str]) -> str:
        """Take nodes that go together: all of them, and empty words; or none, and what they wait for."""
        for node in nodes:
            self._take(node)
        short = next((place for node in nodes for place in self._places(node) if self._left[place] < 0), None)
        if short is None:
            return ""
        for node in nodes:
            for place in self._places(node):
                self._left[place] += 1
        kind, name = short
        return f"of {kind} {name} the most that may be away ({self._most[short]}) are under way or quarantined"

    def _take(self, node: str) -> None:
        for place in self._places(node):
            self._left[place] -= 1

    def _places(self, node: str) -> tuple[tuple[str, str], ...]:
        part = self._plan.node(node)
        found = (("rack", part.rack), ("tenant", part.tenant))
        return (("pool", part.pool), *(place for place in found if place in self._most))


def _within_bounds(
    plan: Plan, held: Sequence[Run], runs: Sequence[Run], now: datetime
) -> tuple[tuple[str, ...], tuple[Waiting, ...]]:
    """The held units that fit into what may be away, in pools that are open; the rest with what it waits for."""
    units: dict[str, list[Run]] = {}
    for run in held:
        units.setdefault(plan.node(run.node).unit, []).append(run)
    room = _Room(plan, runs)
    release: list[str] = []
    waiting: list[Waiting] = []
    for members in units.values():
        first = members[0].node
        closed = next((limits for m in members if not (limits := plan.limits(m.node)).open_at(now)), None)
        if closed is not None:
            waiting.append(_for_window(first, closed, now))
            continue
        short = room.take([run.node for run in members])
        if short:
            waiting.append(Waiting(first, WaitingOn.BUDGET, f"{first} waits: {short}"))
        else:
            release += [run.run_id for run in members]
    return tuple(release), tuple(waiting)


def _for_window(node: str, limits: PoolLimits, now: datetime) -> Waiting:
    opens = limits.next_open(now)
    words = (
        f"{node} waits: pool {limits.pool} may be changed again from {opens:%Y-%m-%d %H:%M} UTC"
        if opens is not None
        else f"{node} waits: the windows of pool {limits.pool} that this plan knows are over; abort the rollout and plan again"
    )
    return Waiting(node, WaitingOn.WINDOW, words)


def _for_group(stage: str, group: Sequence[Run]) -> Waiting:
    open_runs = [run for run in group if not run.ended]
    first = open_runs[0]
    words = first.waiting or first.phase.value
    return Waiting(stage, WaitingOn.DRAIN if first.phase is Phase.DRAIN_REQUIRED else WaitingOn.UNKNOWN_HEALTH,
                   f"stage {stage}: {len(open_runs)} nodes under way, {first.node}: {words}")  # fmt: skip
