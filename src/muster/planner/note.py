"""A remark on a plan, as a value."""

from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """One finding on a plan. `fatal` forbids approval and apply; `advice` is shown."""

    severity: str
    subject: str
    says: str
