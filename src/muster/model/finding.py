"""What a check found: one thing wrong or unknown, on which nodes, with what to do."""

from enum import StrEnum

from muster.model.frozen import dataclass


class Severity(StrEnum):
    """How bad. `unknown` is not a mild form of good: something could not be judged."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `code` is stable; `nodes` are sorted; `evidence` says what was seen; `todo` what to do.

    `cause` says who brought it about, with the line of the log; empty where the logs do not say, or were not asked.
    """

    code: str
    severity: Severity
    subject: str
    nodes: tuple[str, ...]
    evidence: str
    todo: str
    cause: str = ""
