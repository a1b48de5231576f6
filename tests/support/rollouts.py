"""Rollouts in memory: runs that are released by the gates and moved by the phase table, with chance for the node's part."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from muster.executor.machine import TRANSITIONS
from muster.executor.runner import advanced
from muster.executor.scene import Result
from muster.model.phase import Event, Phase
from muster.model.plan import Plan
from muster.model.run import RolloutState, Run
from muster.planner.gates import Decision, decide
from tests.support.values import T0


def runs_of(plan: Plan) -> list[Run]:
    """The runs of a plan as a rollout begins with them: nothing released."""
    return [
        Run(f"run-{node}", "rollout-1", node, stage, group, Phase.PREFLIGHT_REQUIRED, False, 0, 0, T0, T0, 0, "", {})
        for stage, each in enumerate(plan.stages)
        for group, members in enumerate(each.groups)
        for node in members
    ]


def result(run: Run, event: Event) -> Result:
    """What the phases would return with this event: the same words and notes."""
    back = {"cause": f"{run.node} went wrong", "failed_in": run.phase.value, "direction": "back"}
    forward = (
        Phase.APPLY_REQUIRED,
        Phase.RELOAD_REQUIRED,
        Phase.REBOOT_REQUIRED,
        Phase.VERIFY_REQUIRED,
        Phase.VALIDATE_REQUIRED,
    )
    if event is Event.FAILED and run.phase is Phase.BASELINE_REQUIRED:
        return Result(event, "failed on the old driver", notes={"broken_before": "failed on the old driver"})
    return Result(
        event, f"{run.node} {event.value}", notes=back if event is Event.FAILED and run.phase in forward else {}
    )


def well(run: Run) -> Event:
    """The event of a node on which all goes well."""
    went_back = run.phase is Phase.PROBATION and run.notes.get("direction") == "back"
    return Event.WENT_BACK if went_back else Event.PASSED


def possible(run: Run) -> tuple[Event, ...]:
    """The events that the node's part can bring, well first."""
    other = Event.PASSED if run.phase is Phase.PROBATION and well(run) is Event.WENT_BACK else Event.WENT_BACK
    return (well(run), *(event for event in TRANSITIONS[run.phase] if event not in (well(run), other)))


def ended(run: Run, phase: Phase, at: datetime = T0, **notes: str) -> Run:
    return replace(run, released=True, phase=phase, phase_since=at, notes=notes)


@dataclass
class World:
    """A plan being carried out. `choose` gives a released run's next event, or None where it does not move in this round."""

    plan: Plan
    choose: Callable[[Run], Event | None]
    step_s: int = 1
    runs: list[Run] = field(default_factory=list)
    now: datetime = T0
    state: RolloutState = RolloutState.RUNNING

    def __post_init__(self) -> None:
        self.runs = runs_of(self.plan)

    def rounds(self, most: int) -> Iterator[Decision]:
        """Decide, release, move - until nothing is left to carry, at most so many rounds. Yields after each release, before anything moves."""
        for _ in range(most):
            decision = decide(self.plan, self.runs, self.now, self.state)
            self.state = decision.state
            self.runs = [
                replace(run, released=True, phase_since=self.now) if run.run_id in decision.release else run
                for run in self.runs
            ]
            yield decision
            if not self.open():
                return
            self.runs = [self._moved(run) for run in self.runs]
            self.now += timedelta(seconds=self.step_s)

    def open(self) -> bool:
        """Whether there is anything left to carry."""
        if self.state is RolloutState.RUNNING:
            return True
        return any(run.released and not run.ended for run in self.runs)

    def _moved(self, run: Run) -> Run:
        if not run.released or run.ended:
            return run
        halted = self.state is RolloutState.HALTED and Event.REFUSED in TRANSITIONS[run.phase]
        event = Event.REFUSED if halted else self.choose(run)
        return run if event is None else advanced(run, result(run, event), self.now)


def by_chance(seed: int, trouble: float) -> Callable[[Run], Event | None]:
    """Moves about half of the runs each round; `trouble` is how often something else than the good event comes."""
    chance = Random(seed)

    def choose(run: Run) -> Event | None:
        if chance.random() < 0.4:
            return None
        events = possible(run)
        return chance.choice(events[1:]) if len(events) > 1 and chance.random() < trouble else events[0]

    return choose


def away(plan: Plan, runs: Sequence[Run], kind: str, name: str) -> int:
    """How many nodes of a pool, rack or tenant the rollout holds, or has left out of service."""
    mine = {part.node for part in plan.nodes if getattr(part, kind) == name}
    return sum(
        run.node in mine and (run.phase is Phase.QUARANTINED or (run.released and not run.ended)) for run in runs
    )
