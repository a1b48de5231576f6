"""What a scheduler says: its jobs, nodes, partitions and reservations. On a plain SSH machine a job is a process that holds a GPU.

Why it exists: the thing to protect is a gang job, and whoever plans around jobs must not care which scheduler, which of its releases, or
which of its forms told of them. A value that was not told is None or empty, never a guess; what a scheduler adds to a state in later
releases is kept as a flag under its own word. It reads no text: `backends` do.
"""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from muster.model.frozen import dataclass

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class JobState(StrEnum):
    """Where a job is in its life. UNKNOWN: a word that this release does not know; it never counts as ended."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    BOOT_FAIL = "boot_fail"
    DEADLINE = "deadline"
    OUT_OF_MEMORY = "out_of_memory"
    UNKNOWN = "unknown"


ENDED: Final = frozenset(set(JobState) - {JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED, JobState.UNKNOWN})
"""States in which a job runs nowhere and never will again under this number (it may be requeued)."""


class NodeState(StrEnum):
    """What a scheduler's node does at bottom; whether it is drained, silent, reserved, ... stands in the flags beside it."""

    IDLE = "idle"
    MIXED = "mixed"
    ALLOCATED = "allocated"
    DOWN = "down"
    ERROR = "error"
    FUTURE = "future"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Gres:
    """Countable things of a node or job, such as GPUs: `gpu:h100:8(S:0-1)`.

    `kind` is `gpu`, `type` is `h100` or empty, `count` 8 (None where the text gave no readable number), `detail` what stood in brackets.
    """

    kind: str
    type: str
    count: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One job with the nodes it runs on. On plain machines `job_id` is the process id on its single node.

    `size` is the number of nodes it has or asks for. `flags` are state words beside `state` (COMPLETING, CONFIGURING, REQUEUED, ...).
    Times are aware UTC; `ends_at` is when its limit cuts it off, so None for a job without a limit; `limit_s` None says it has none or none
    was told (`unlimited` tells which). `gpus` counts all of them over all nodes, held or, while pending, asked for; None when not told.
    `gres` are the texts as the scheduler gave them, one a node where it gives that; `required_nodes` and `excluded_nodes` are host lists.
    """

    job_id: str
    name: str
    nodes: tuple[str, ...]
    state: JobState = JobState.RUNNING
    flags: tuple[str, ...] = ()
    reason: str = ""
    user: str = ""
    account: str = ""
    partitions: tuple[str, ...] = ()
    size: int | None = None
    gpus: int | None = None
    gres: tuple[str, ...] = ()
    submitted_at: datetime | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    limit_s: int | None = None
    unlimited: bool = False
    reservation: str = ""
    features: str = ""
    dependency: str = ""
    required_nodes: str = ""
    excluded_nodes: str = ""
    requeue: bool | None = None
    array_id: str = ""
    tres_wanted: str = ""
    tres_held: str = ""
    tres_per: Mapping[str, str] = field(default_factory=lambda: _NONE)
    is_process: bool = False
    """A process that holds a GPU, which no scheduler knows: `job_id` is its process id."""

    @property
    def gang(self) -> bool:
        """Whether it runs on several nodes at once: taking one of them away ends it on all."""
        return max(len(self.nodes), self.size or 0) > 1


@dataclass(frozen=True, slots=True)
class Gang:
    """The nodes of a running job: on `cordoned` of `size` no new job begins, whoever's sake it is for, and whether the asker is the `first` of
    those that its own rollout has cordoned."""

    first: bool
    cordoned: int
    size: int


@dataclass(frozen=True, slots=True)
class SchedulerNode:
    """One node as the scheduler sees it.

    `flags` are state words beside `state`, in capitals without signs (DRAIN, NOT_RESPONDING, PLANNED, RESERVED, ...). `reason` is why it is
    drained or down, `reason_by` who said so, `reason_at` when (aware UTC). `gres` is what it has, `gres_used` what jobs hold; the texts beside
    them are the scheduler's own.
    """

    name: str
    state: NodeState
    flags: tuple[str, ...] = ()
    address: str = ""
    hostname: str = ""
    reason: str = ""
    reason_by: str = ""
    reason_at: datetime | None = None
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    gres: tuple[Gres, ...] = ()
    gres_used: tuple[Gres, ...] = ()
    gres_text: str = ""
    gres_used_text: str = ""
    tres: str = ""
    reservation: str = ""
    version: str = ""
    boot_at: datetime | None = None

    @property
    def gpus(self) -> int:
        """How many GPUs the scheduler counts on it."""
        return sum(each.count or 0 for each in self.gres if each.kind == "gpu")

    @property
    def takes_jobs(self) -> bool:
        """Whether a job may start there now, as far as state and flags say."""
        return self.state in _AT_WORK and _AWAY.isdisjoint(self.flags)


_AT_WORK = frozenset((NodeState.IDLE, NodeState.MIXED, NodeState.ALLOCATED))
_AWAY = frozenset(
    ("DRAIN", "NOT_RESPONDING", "FAIL", "MAINTENANCE", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "INVALID_REG")
)


@dataclass(frozen=True, slots=True)
class Partition:
    """A queue and its nodes. `max_time_s` None: no limit of its own, or none told."""

    name: str
    nodes: tuple[str, ...]
    state: str = ""
    default: bool = False
    max_time_s: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes kept for somebody or something over a time (aware UTC)."""

    name: str
    nodes: tuple[str, ...]
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    flags: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What a scheduler says of itself: its release, the cluster's name, and all its settings as texts."""

    version: str
    cluster: str
    settings: Mapping[str, str] = field(default_factory=lambda: _NONE)
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """What a scheduler says of its nodes and of the jobs on them, at one time. `name` is empty where there is none.

    `trouble` says why it said nothing; then nothing of it is known, and nothing may be taken for idle.
    """

    name: str = ""
    nodes: tuple[SchedulerNode, ...] = ()
    jobs: tuple[Job, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a scheduler, whatever of it was asked. `release` and `form` (its data parser) are empty where it does not say."""

    release: str = ""
    form: str = ""
    nodes: tuple[SchedulerNode, ...] = ()
    jobs: tuple[Job, ...] = ()
    warnings: tuple[str, ...] = ()
