"""What changed on a node, from the values that the store keeps of it: each with the value before it. Pure."""

from collections.abc import Sequence
from datetime import datetime

from muster.model.fact import Fact, FactValue
from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a lasting value. `before` is None when the value was seen for the first time."""

    at: datetime
    path: str
    source: str
    before: FactValue | None
    after: FactValue
    is_first_look: bool


def changes(history: Sequence[Fact]) -> tuple[Change, ...]:
    """The changes in a node's history (oldest first, as `ports.Store.history` gives it), in the same order."""
    last: dict[str, FactValue] = {}
    first = history[0].observed_at if history else None
    found: list[Change] = []
    for fact in history:
        before = last.get(fact.path)
        if before is not None and (before.__class__, before) == (fact.value.__class__, fact.value):
            continue  # older releases did not write down that a value went away
        is_first = before is None and fact.observed_at == first
        found.append(Change(fact.observed_at, fact.path, fact.source, before, fact.value, is_first))
        last[fact.path] = fact.value
    return tuple(found)
