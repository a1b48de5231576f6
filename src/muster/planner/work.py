"""What runs where, and who took which node out of service, as the planner is told. Pure values; `control.work` asks the scheduler.

Where a scheduler speaks for a node, its word counts. Where none does, the processes that hold a GPU are the jobs: they are facts.
"""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType

from muster.model.fact import NodeFacts, Unknown
from muster.model.frozen import dataclass
from muster.model.job import Job
from muster.model.plan import UNTOLD


@dataclass(frozen=True, slots=True)
class Work:
    """What a scheduler says of the site's nodes, under the site's names for them.

    `jobs` are those on each node. `owned` gives, for a node that a person took out of service, who and why; `unknown`, for a node that the
    scheduler should speak for and does not, why not. `told` are the nodes that it speaks for. `rollouts` gives, of the owned ones, those that a
    rollout of ours has taken out of service, and its id.
    """

    jobs: Mapping[str, tuple[Job, ...]] = field(default_factory=lambda: MappingProxyType({}))
    owned: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unknown: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    told: frozenset[str] = frozenset()
    rollouts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


NO_SCHEDULER = Work()


@dataclass(frozen=True, slots=True)
class Busy:
    """The work on one node: the jobs by id, when they have ended (RFC 3339 UTC, UNTOLD, or empty for none), and in how many seconds that is
    (None: untold)."""

    jobs: tuple[str, ...]
    free_at: str
    free_s: int | None


IDLE = Busy((), "", 0)
_UNTOLD = Busy((), UNTOLD, None)


def busy(node: str, facts: NodeFacts, work: Work, now: datetime) -> Busy:
    """What runs on a node. What cannot be told counts as work without an end."""
    if node not in work.told:
        holders = facts.value("holder.pids")
        return _UNTOLD if isinstance(holders, Unknown) or holders else IDLE
    jobs = work.jobs.get(node, ())
    if not jobs:
        return IDLE
    ids = tuple(dict.fromkeys(job.job_id for job in jobs))
    ends = [job.ends_at for job in jobs if job.ends_at is not None]
    if len(ends) < len(jobs):
        return Busy(ids, UNTOLD, None)
    last = max(max(ends), now + timedelta(seconds=1))  # a job past its limit is being ended, and still there
    return Busy(ids, stamp(last), int((last - now).total_seconds()))


@lru_cache(maxsize=4096)
def stamp(at: datetime) -> str:
    """RFC 3339 UTC with milliseconds and `Z`."""
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
