"""Suggestions for error messages: the known names or versions nearest to what somebody wrote.

Deterministic: the answer depends on the set of known names alone, not on their order. Does not decide anything; a
suggestion is never taken silently.
"""

from collections.abc import Iterable
from typing import TypeVar

from muster.model.versions.base import Version

V = TypeVar("V", bound=Version)

# Edit distance costs length x length. Nobody means a key by a text longer than this.
_MAX_LENGTH = 100

# From three characters on, the beginning of a name is a good guess at the whole name.
_MIN_PREFIX_LENGTH = 3


def nearest(text: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The known names that `text` may have meant, nearest first, at most `limit`; ties in alphabetical order.

    Case, and `-` against `_`, do not count. A name is near if at most a third of its characters (at least one) must be
    typed, deleted, replaced or swapped with the neighbour to get there, or if `text` is its beginning. No near name:
    an empty tuple, since a far-fetched suggestion is worse than none.
    """
    wanted = _folded(text)
    if not wanted or len(wanted) > _MAX_LENGTH:
        return ()
    ranked: list[tuple[int, str]] = []
    for name in sorted(set(known)):
        cost = _cost(wanted, _folded(name))
        if cost is not None:
            ranked.append((cost, name))
    return tuple(name for _, name in sorted(ranked)[:limit])


def nearest_versions(version: V, known: Iterable[V], limit: int = 3) -> tuple[V, ...]:
    """The known versions nearest to `version`, nearest first, at most `limit`; one for each equal pair.

    Same branch (first number) first, by the distance of the second number, then the third, and so on; then the nearest
    other branches, newest first, since numbers of two branches tell nothing of each other. At the same distance a newer
    one comes before an older one. Never empty unless `known` is.
    """
    by_age = sorted(known, key=lambda other: (other, other.text), reverse=True)
    distinct = [other for place, other in enumerate(by_age) if place == 0 or by_age[place - 1] != other]
    return tuple(sorted(distinct, key=lambda other: _distance(version.numbers, other.numbers))[:limit])


def _folded(text: str) -> str:
    return text.casefold().replace("-", "_")


def _cost(wanted: str, name: str) -> int | None:
    """How far the name is from what was wanted, or None where it is too far to be meant."""
    allowed = max(1, max(len(wanted), len(name)) // 3)
    if len(wanted) >= _MIN_PREFIX_LENGTH and name.startswith(wanted):
        return min(1, len(name) - len(wanted))
    if len(name) > _MAX_LENGTH or abs(len(wanted) - len(name)) > allowed:
        return None
    cost = edit_distance(wanted, name)
    return cost if cost <= allowed and cost < max(len(wanted), len(name)) else None


def edit_distance(a: str, b: str) -> int:
    """The fewest insertions, deletions, replacements and swaps of neighbours that make b of a, no place edited twice.

    Source: the optimal string alignment distance (restricted Damerau-Levenshtein).
    """
    before_last: list[int] = []
    last = list(range(len(b) + 1))
    for i, left in enumerate(a, start=1):
        row = [i]
        for j, right in enumerate(b, start=1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                cost = min(cost, before_last[j - 2] + 1)
            row.append(cost)
        before_last, last = last, row
    return last[-1]


def _distance(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if a[:1] != b[:1]:
        return (abs(a[0] - b[0]),) if a and b else (0,)
    length = max(len(a), len(b))
    padded = zip(a + (0,) * (length - len(a)), b + (0,) * (length - len(b)), strict=True)
    return tuple(abs(left - right) for left, right in padded)
