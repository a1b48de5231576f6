"""Who approved a plan."""

from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Approval:
    """One approval: by whom (OS user or key identity), when (RFC 3339 UTC), and a note."""

    plan_id: str
    by: str
    at: str
    note: str
