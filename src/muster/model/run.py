"""A rollout (one approved plan being carried out) and its runs (one node's way through the phases). Rows of the store, as values."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from muster.model.frozen import dataclass
from muster.model.phase import Phase


class RolloutState(StrEnum):
    """How a rollout stands. `halted` stopped itself and needs a person; `done` and `aborted` are ends."""

    RUNNING = "running"
    PAUSED = "paused"
    HALTED = "halted"
    DONE = "done"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One approved plan being carried out. `why` says what a halted or waiting rollout waits for, in words."""

    rollout_id: str
    plan_id: str
    state: RolloutState
    why: str
    created_at: datetime
    updated_at: datetime
    carried_by: str


@dataclass(frozen=True, slots=True)
class Run:
    """One node's way through the phases. The row is the truth for every engine.

    `claim` is the engine's claim number (+1 at each claim); `lease` the lease number the node gave, 0 before any. `wake_at` is when to look
    again. `attempt` counts tries within the phase; `waiting` says in words what the run waits for. `notes` holds what later phases need
    (JSON texts and whole numbers only).
    """

    run_id: str
    rollout_id: str
    node: str
    stage: int
    group: int
    phase: Phase
    released: bool
    claim: int
    lease: int
    wake_at: datetime
    phase_since: datetime
    attempt: int
    waiting: str
    notes: Mapping[str, str]

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to this run."""
        return self.phase in (Phase.DONE, Phase.ROLLED_BACK, Phase.LEFT_OUT, Phase.QUARANTINED)
