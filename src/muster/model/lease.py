"""The claim on a node that lives on the node, and the fence that keeps two holders apart."""

import re

from muster.model.frozen import dataclass

_FENCE = re.compile(r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """(lease number, claim number), compared in that order; a node refuses a task whose fence is lower than the last it saw.

    The lease number is given by the node, one more at every take; the claim number by the engine, one more at every claim of the run.
    """

    lease: int
    claim: int

    def __str__(self) -> str:
        return f"{self.lease}.{self.claim}"

    @classmethod
    def parse(cls, text: str) -> "Fence":
        """The fence written as `lease.claim`, as `str` writes it; ValueError for anything else."""
        found = _FENCE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no fence: two whole numbers with a dot between")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Lease:
    """Who holds a node, for what, since when. `boot_id`, `uptime_s` (at the take) and `ttl_s` let expiry be judged by the node's own clock."""

    number: int
    holder: str
    rollout_id: str
    plan_id: str
    reason: str
    taken_at: str
    boot_id: str
    uptime_s: int
    ttl_s: int
