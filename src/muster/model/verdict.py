"""Judgements on a node or a check. Unknown never counts as good, and there is no default verdict."""

from collections.abc import Iterable
from typing import TypeAlias

from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Pass:
    """Seen, and right."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Degraded:
    """Seen, and usable with a loss."""

    why: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Seen, and wrong."""

    why: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """The verdict Unknown: the evidence is missing or stale. Not good."""

    why: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A person or policy switched the check off. Not good, not bad."""

    by: str
    until: str


Verdict: TypeAlias = Pass | Degraded | Fail | Undecided | Skipped

_ORDER: tuple[type[Verdict], ...] = (Pass, Skipped, Undecided, Degraded, Fail)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of the verdicts: Fail > Degraded > Unknown > Skipped > Pass. Of nothing: Unknown."""
    ranked = sorted(verdicts, key=lambda verdict: _ORDER.index(type(verdict)))
    return ranked[-1] if ranked else Undecided("nothing was checked")


def word(verdict: Verdict) -> str:
    """The verdict as people write it."""
    return "Unknown" if isinstance(verdict, Undecided) else type(verdict).__name__
