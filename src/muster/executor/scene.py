"""What every phase is given, and what it comes to."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta

from muster.executor.session import Session
from muster.model.command import Unreachable
from muster.model.frozen import dataclass
from muster.model.phase import Event
from muster.model.plan import NodePlan, Plan, PoolLimits, Step
from muster.model.run import Run
from muster.model.validation import Validated
from muster.ports import PackageManager, Scheduler, Validator

HOLDER = "lease.rollout_id"
"""The fact by which a plan names the rollout that still holds the node."""

KEEP = "/var/lib/muster/node/restore"


@dataclass(frozen=True, slots=True)
class Result:
    """What a phase came to: the event, words for people, notes to keep, and whether to look again soon."""

    event: Event
    why: str
    notes: Mapping[str, str] = field(default_factory=dict)
    lease: int | None = None
    retry: bool = False
    validated: Validated | None = None
    """A validation that ended, to be kept."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a phase works with: the run and its plan, and the ways to look and act."""

    run: Run
    plan: Plan
    step: Step
    session: Session
    manager: PackageManager
    scheduler: Scheduler
    validator: Validator
    waited_s: float
    """Seconds since the phase began."""

    @property
    def now(self) -> datetime:
        """The time at which this look at the run began, to a second."""
        return self.run.phase_since + timedelta(seconds=int(self.waited_s))

    @property
    def part(self) -> NodePlan:
        """What the plan says of the node."""
        return self.plan.node(self.run.node)

    @property
    def limits(self) -> PoolLimits:
        """What the plan may take from the node's pool."""
        return self.plan.limits(self.run.node)

    @property
    def taken_from(self) -> str:
        """The rollout whose lease and cordon the plan takes over: its run on this node has ended in quarantine. Empty where there is none."""
        return next((each.value for each in self.step.expects if each.path == HOLDER), "")

    @property
    def keep(self) -> str:
        return f"{KEEP}/{self.run.run_id}"

    @property
    def reason(self) -> str:
        return f"{self.step.from_driver} to {self.step.to_driver}"


def waiting(why: str) -> Result:
    """Nothing decided yet; look again."""
    return Result(Event.WAITING, why)


def away(outcome: Unreachable) -> Result:
    """The node, or its scheduler, did not answer: look again."""
    return Result(Event.WAITING, f"unreachable ({outcome.kind}): {outcome.why}", notes={"unreachable": outcome.kind})
