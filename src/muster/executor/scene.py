"""What a phase works with, and what it comes to."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta

from muster.executor.session import Session
from muster.model.frozen import dataclass
from muster.model.phase import Event
from muster.model.plan import Plan, Step
from muster.model.run import Run
from muster.model.validation import Validated
from muster.ports import PackageManager, Scheduler, Validator

KEEP = "/var/lib/muster/node/restore"
"""Where the restore points of a node lie."""


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
    def keep(self) -> str:
        return f"{KEEP}/{self.run.run_id}"

    @property
    def reason(self) -> str:
        return f"muster {self.run.rollout_id}: {self.step.from_driver} to {self.step.to_driver}"


def waiting(why: str) -> Result:
    """Nothing decided yet; look again."""
    return Result(Event.WAITING, why)
