"""One interval-set type for every ordered thing, above all for versions.

Exists so that "which versions" is a value with exact set algebra, and the solver never compares bounds by hand. Does
not know which versions exist: between any two versions another one may appear, so `>12.4.0,<12.4.1` is not empty.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

from muster.model.frozen import dataclass
from muster.model.versions.base import Version, VersionSyntaxError, quoted


class Ordered(Protocol):
    """What a range needs of its members: a total order, equality and a hash that agree."""

    def __lt__(self, other: Any, /) -> bool: ...


V = TypeVar("V", bound=Ordered)
P = TypeVar("P", bound=Version)

ANY_TEXT = "*"
NOTHING_TEXT = "none"


@dataclass(frozen=True, slots=True)
class End(Generic[V]):
    """One end of an interval; `included`: whether the value itself belongs to the interval."""

    value: V
    included: bool


@dataclass(frozen=True, slots=True)
class Interval(Generic[V]):
    """The values between two ends; None is an unbounded end. Holds at least one point: ValueError otherwise."""

    low: End[V] | None
    high: End[V] | None

    def __post_init__(self) -> None:
        if not _holds_a_point(self.low, self.high):
            raise ValueError(f"no interval: {self.low} to {self.high}")

    @property
    def point(self) -> V | None:
        """The only member, where the interval is a single point; else None."""
        if self.low is None or self.high is None or self.low.value < self.high.value:
            return None
        return self.low.value

    def contains(self, value: V) -> bool:
        """Whether the value lies between the ends."""
        low, high = self.low, self.high
        above = low is None or low.value < value or (low.included and not value < low.value)
        below = high is None or value < high.value or (high.included and not high.value < value)
        return above and below


@dataclass(frozen=True, slots=True)
class Ranges(Generic[V]):
    """A set of values as intervals: sorted, apart from each other, none touching the next.

    Guarantees: that normal form (ValueError from the constructor otherwise; use the named constructors and the
    operators), so two Ranges are equal exactly if they hold the same values of a dense order, and equal ones have one
    hash. Mixing version types raises TypeError. `|` union, `&` intersection, `-` difference, `~` complement, `<=` and
    `>=` subset and superset, `in` membership. Each operator takes time linear in the number of intervals.
    """

    intervals: tuple[Interval[V], ...]

    def __post_init__(self) -> None:
        for left, right in pairwise(self.intervals):
            if not _apart(left, right):
                raise ValueError("intervals must be sorted and apart: build a Ranges by its operators")

    @staticmethod
    def full() -> "Ranges[V]":
        """Every value."""
        return Ranges((Interval(None, None),))

    @staticmethod
    def empty() -> "Ranges[V]":
        """No value."""
        return Ranges(())

    @staticmethod
    def singleton(value: V) -> "Ranges[V]":
        """One value."""
        return Ranges((_only(value),))

    @staticmethod
    def at_least(low: V) -> "Ranges[V]":
        """The value and all above."""
        return Ranges((Interval(End(low, included=True), None),))

    @staticmethod
    def more_than(low: V) -> "Ranges[V]":
        """All above the value."""
        return Ranges((Interval(End(low, included=False), None),))

    @staticmethod
    def at_most(high: V) -> "Ranges[V]":
        """The value and all below."""
        return Ranges((Interval(None, End(high, included=True)),))

    @staticmethod
    def less_than(high: V) -> "Ranges[V]":
        """All below the value."""
        return Ranges((Interval(None, End(high, included=False)),))

    @staticmethod
    def between(low: V, high: V, *, with_low: bool = True, with_high: bool = False) -> "Ranges[V]":
        """From low to high, by default with low and without high. Empty where low is above high."""
        first, last = End(low, included=with_low), End(high, included=with_high)
        return Ranges((Interval(first, last),)) if _holds_a_point(first, last) else Ranges(())

    @staticmethod
    def of(values: Iterable[V]) -> "Ranges[V]":
        """Just these values."""
        distinct: list[V] = []
        for value in sorted(values):
            if not distinct or distinct[-1] < value:
                distinct.append(value)
        return Ranges(tuple(_only(value) for value in distinct))

    @property
    def is_empty(self) -> bool:
        """Whether no value can be in it."""
        return not self.intervals

    @property
    def is_full(self) -> bool:
        """Whether every value is in it."""
        return len(self.intervals) == 1 and self.intervals[0].low is None and self.intervals[0].high is None

    def contains(self, value: V) -> bool:
        """Whether the value is in it."""
        return any(interval.contains(value) for interval in self.intervals)

    def __contains__(self, value: V) -> bool:
        return self.contains(value)

    def intersection(self, other: "Ranges[V]") -> "Ranges[V]":
        """The values in both."""
        return Ranges(tuple(_common(self.intervals, other.intervals)))

    def complement(self) -> "Ranges[V]":
        """The values not in it."""
        return Ranges(tuple(_gaps(self.intervals)))

    def union(self, other: "Ranges[V]") -> "Ranges[V]":
        """The values in either."""
        return ~(~self & ~other)

    def difference(self, other: "Ranges[V]") -> "Ranges[V]":
        """The values in this one and not in the other."""
        return self & ~other

    def issubset(self, other: "Ranges[V]") -> bool:
        """Whether every value in it is in the other too."""
        return (self - other).is_empty

    def isdisjoint(self, other: "Ranges[V]") -> bool:
        """Whether no value is in both."""
        return (self & other).is_empty

    def __and__(self, other: "Ranges[V]") -> "Ranges[V]":
        return self.intersection(other)

    def __or__(self, other: "Ranges[V]") -> "Ranges[V]":
        return self.union(other)

    def __sub__(self, other: "Ranges[V]") -> "Ranges[V]":
        return self.difference(other)

    def __invert__(self) -> "Ranges[V]":
        return self.complement()

    def __le__(self, other: "Ranges[V]") -> bool:
        return self.issubset(other)

    def __ge__(self, other: "Ranges[V]") -> bool:
        return other.issubset(self)

    def __str__(self) -> str:
        """The form that `parse_ranges` reads: `>=12.4,<13 || ==13.2`, `!=580.65.06`; `*` is all, `none` is nothing."""
        if self.is_empty:
            return NOTHING_TEXT
        if self.is_full:
            return ANY_TEXT
        return " || ".join(_run_text(run) for run in _runs(self.intervals))


class RangeSyntaxError(ValueError):
    """A text is not a range. `text` is the whole, `part` the faulty piece, `hint` what to do about it."""

    def __init__(self, text: str, part: str, hint: str) -> None:
        super().__init__(text, part, hint)
        self.text = text
        self.part = part
        self.hint = hint

    def __str__(self) -> str:
        where = "" if self.part == self.text else f" in {quoted(self.text)}"
        return f"cannot read {quoted(self.part)}{where} as a range: {self.hint}"


# Longest first: `>=` is not `>`. The flag: whether a bare beginning such as `13` is clear as this end. `>13` is not:
# someone may mean "14 and up", and 13.1 is above 13 all the same.
_OPERATORS = ((">=", True), ("<=", False), ("==", False), ("!=", False), (">", False), ("<", True))

_HOW = "write conditions such as >=12.4,<13 (a comma means and, || means or; operators are >= > <= < == !=)"

# No range in use has more than a dozen conditions; more is a broken file, and costs time with every comparison.
_MAX_CONDITIONS = 1000


def parse_ranges(text: str, version_type: type[P]) -> Ranges[P]:
    """Read `>=12.4,<13 || ==13.2`; blanks around the pieces do not matter. `*` is every version, `none` is none.

    `>=` and `<` also take a bare beginning where the version type has one (`>=12,<13`). A range that no version can
    satisfy is not an error here. Raises RangeSyntaxError, with the version type's hint where a version is at fault.
    """
    alternatives = [alternative.split(",") for alternative in text.split("||")]
    if sum(map(len, alternatives)) > _MAX_CONDITIONS:
        raise RangeSyntaxError(text, text[:20], f"it has more than {_MAX_CONDITIONS} conditions")
    return _combined(
        Ranges.union,
        [
            _combined(
                Ranges.intersection, [_condition(condition.strip(), text, version_type) for condition in alternative]
            )
            for alternative in alternatives
        ],
    )


def _combined(operator: Callable[[Ranges[P], Ranges[P]], Ranges[P]], parts: list[Ranges[P]]) -> Ranges[P]:
    """All parts (at least one) by one operator, in pairs of equal size: a long list costs no square of its length."""
    while len(parts) > 1:
        pairs = [operator(left, right) for left, right in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _condition(condition: str, text: str, version_type: type[P]) -> Ranges[P]:
    if condition in (ANY_TEXT, NOTHING_TEXT):
        return Ranges.full() if condition == ANY_TEXT else Ranges.empty()
    for operator, takes_bare in _OPERATORS:
        if condition.startswith(operator):
            version_text = condition.removeprefix(operator).strip()
            if not version_text:
                raise RangeSyntaxError(text, condition, f"no version stands after {operator}")
            try:
                version = version_type.parse_bound(version_text) if takes_bare else version_type.parse(version_text)
            except VersionSyntaxError as error:
                raise RangeSyntaxError(text, condition, _version_hint(error)) from error
            return _apply(operator, version)
    raise RangeSyntaxError(text, condition, _operator_hint(condition))


def _apply(operator: str, version: P) -> Ranges[P]:
    match operator:
        case ">=":
            return Ranges.at_least(version)
        case "<=":
            return Ranges.at_most(version)
        case ">":
            return Ranges.more_than(version)
        case "<":
            return Ranges.less_than(version)
        case "==":
            return Ranges.singleton(version)
        case _:
            return ~Ranges.singleton(version)


def _version_hint(error: VersionSyntaxError) -> str:
    if "|" in error.text:
        return "or is written ||"
    if any(sign in error.text for sign in "<>="):
        return "put a comma between two conditions"
    return str(error)


def _operator_hint(condition: str) -> str:
    if not condition:
        return f"a condition is missing; {_HOW}"
    if condition[0].isalnum():
        return (
            f"no operator stands before it: write =={condition} for just this version or >={condition} for it and newer"
        )
    if condition.startswith(("=>", "=<")):
        return f"it is written {condition[1]}="
    if condition[0] == "=":
        return f"equal is written ==: =={condition[1:].strip()}"
    return _HOW


def _only(value: V) -> Interval[V]:
    end = End(value, included=True)
    return Interval(end, end)


def _holds_a_point(low: End[V] | None, high: End[V] | None) -> bool:
    if low is None or high is None or low.value < high.value:
        return True
    return low.included and high.included and not high.value < low.value


def _apart(left: Interval[V], right: Interval[V]) -> bool:
    """Whether left lies wholly below right with at least one value between them."""
    if left.high is None or right.low is None:
        return False
    return _holds_a_point(_beyond(left.high), _beyond(right.low))


def _beyond(end: End[V]) -> End[V]:
    """The same place seen from the other side: what ends just before a value goes on with it."""
    return End(end.value, included=not end.included)


def _gaps(intervals: tuple[Interval[V], ...]) -> Iterator[Interval[V]]:
    low: End[V] | None = None
    for interval in intervals:
        if interval.low is not None:
            yield Interval(low, _beyond(interval.low))
        if interval.high is None:
            return
        low = _beyond(interval.high)
    yield Interval(low, None)


def _common(left: tuple[Interval[V], ...], right: tuple[Interval[V], ...]) -> Iterator[Interval[V]]:
    i = j = 0
    while i < len(left) and j < len(right):
        a, b = left[i], right[j]
        a_ends_first = _ends_first(a.high, b.high)
        low, high = _later_start(a.low, b.low), a.high if a_ends_first else b.high
        if _holds_a_point(low, high):
            yield Interval(low, high)
        i, j = (i + 1, j) if a_ends_first else (i, j + 1)


def _later_start(a: End[V] | None, b: End[V] | None) -> End[V] | None:
    if a is None or b is None:
        return b if a is None else a
    if a.value < b.value or (b.value < a.value):
        return b if a.value < b.value else a
    return b if a.included else a


def _ends_first(a: End[V] | None, b: End[V] | None) -> bool:
    """Whether the upper end a is at or below the upper end b."""
    if a is None or b is None:
        return b is None
    if a.value < b.value or b.value < a.value:
        return a.value < b.value
    return b.included or not a.included


def _runs(intervals: tuple[Interval[V], ...]) -> Iterator[list[Interval[V]]]:
    """Neighbours that miss only one point between them, together: they read better as one interval with a `!=`."""
    run: list[Interval[V]] = []
    for interval in intervals:
        if run and run[-1].high != interval.low:
            yield run
            run = []
        run.append(interval)
    yield run


def _run_text(run: list[Interval[V]]) -> str:
    first, last = run[0], run[-1]
    if first.point is not None:
        return f"=={first.point}"
    conditions = [] if first.low is None else [f"{'>=' if first.low.included else '>'}{first.low.value}"]
    conditions += [f"!={interval.low.value}" for interval in run[1:] if interval.low is not None]
    if last.high is not None:
        conditions.append(f"{'<=' if last.high.included else '<'}{last.high.value}")
    return ",".join(conditions)
