"""Ranges are sets: every operator agrees with brute force over a universe with a point in, and between, all ends."""

import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model.ranges import End, Interval, Ranges, RangeSyntaxError, parse_ranges
from muster.model.versions import (
    CudaVersion,
    DebVersion,
    DriverVersion,
    KernelVersion,
    RpmVersion,
    VbiosVersion,
    Version,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "versions"

# Ends are whole numbers; the halves stand for what lies between and beyond them. So two sets of the universe are the
# same exactly if the ranges are the same set of a dense order.
ENDS = range(6)
UNIVERSE = [Fraction(half, 2) for half in range(-1, 12)]

Points = frozenset[Fraction]


def points(ranges: Ranges[Fraction]) -> Points:
    return frozenset(point for point in UNIVERSE if point in ranges)


def from_points(members: Points) -> Ranges[Fraction]:
    """The same set, built without any operator: each maximal row of neighbouring points is one interval."""
    intervals: list[Interval[Fraction]] = []
    row: list[Fraction] = []
    for point in [*UNIVERSE, None]:
        if point is not None and point in members:
            row.append(point)
        elif row:
            intervals.append(Interval(low_end(row[0]), high_end(row[-1])))
            row = []
    return Ranges(tuple(intervals))


def low_end(point: Fraction) -> End[Fraction] | None:
    whole = point.denominator == 1
    value = point if whole else point - Fraction(1, 2)
    return End(value, included=whole) if value >= 0 else None


def high_end(point: Fraction) -> End[Fraction] | None:
    whole = point.denominator == 1
    value = point if whole else point + Fraction(1, 2)
    return End(value, included=whole) if value <= 5 else None


MEMBERS = st.frozensets(st.sampled_from(UNIVERSE))
SETS = MEMBERS.map(from_points)
END = st.sampled_from(ENDS).map(Fraction)
BUILT = st.recursive(
    st.one_of(
        st.just(Ranges.full()),
        st.just(Ranges.empty()),
        END.map(Ranges.singleton),
        END.map(Ranges.at_least),
        END.map(Ranges.more_than),
        END.map(Ranges.at_most),
        END.map(Ranges.less_than),
        st.builds(Ranges.between, END, END, with_low=st.booleans(), with_high=st.booleans()),
        st.lists(END).map(Ranges.of),
    ),
    lambda inner: st.one_of(
        st.builds(Ranges.union, inner, inner),
        st.builds(Ranges.intersection, inner, inner),
        st.builds(Ranges.difference, inner, inner),
        inner.map(Ranges.complement),
    ),
    max_leaves=8,
)


@given(SETS, SETS)
def test_every_operator_agrees_with_brute_force(a: Ranges[Fraction], b: Ranges[Fraction]) -> None:
    everything = frozenset(UNIVERSE)
    assert points(a | b) == points(a) | points(b)
    assert points(a & b) == points(a) & points(b)
    assert points(a - b) == points(a) - points(b)
    assert points(~a) == everything - points(a)
    assert (a <= b) == a.issubset(b) == (points(a) <= points(b)) == (b >= a)
    assert a.isdisjoint(b) == points(a).isdisjoint(points(b))
    assert a.is_empty == (not points(a))
    assert a.is_full == (points(a) == everything)


@given(END, END, st.lists(END))
def test_each_named_constructor_holds_what_its_name_says(low: Fraction, high: Fraction, some: list[Fraction]) -> None:
    def where(holds: Callable[[Fraction], bool]) -> Points:
        return frozenset(filter(holds, UNIVERSE))

    assert points(Ranges.full()) == frozenset(UNIVERSE) and points(Ranges.empty()) == frozenset()
    assert points(Ranges.singleton(low)) == {low} and points(Ranges.of(some)) == set(some)
    assert points(Ranges.at_least(low)) == where(lambda x: x >= low)
    assert points(Ranges.more_than(low)) == where(lambda x: x > low)
    assert points(Ranges.at_most(high)) == where(lambda x: x <= high)
    assert points(Ranges.less_than(high)) == where(lambda x: x < high)
    assert points(Ranges.between(low, high)) == where(lambda x: low <= x < high)
    assert points(Ranges.between(low, high, with_low=False, with_high=True)) == where(lambda x: low < x <= high)


@given(BUILT)
def test_whatever_operators_built_it_a_set_has_one_form(built: Ranges[Fraction]) -> None:
    same = from_points(points(built))
    assert built == same
    assert hash(built) == hash(same)
    assert str(built) == str(same)


@given(BUILT)
def test_intervals_stand_in_order_and_apart(built: Ranges[Fraction]) -> None:
    for left, right in zip(built.intervals, built.intervals[1:], strict=False):
        assert left.high is not None and right.low is not None
        assert left.high.value <= right.low.value
        if left.high.value == right.low.value:
            assert not left.high.included and not right.low.included


@given(MEMBERS, MEMBERS)
def test_two_ranges_are_equal_only_if_they_are_the_same_set(a: Points, b: Points) -> None:
    assert (from_points(a) == from_points(b)) == (a == b)


@given(SETS, SETS, SETS)
def test_the_laws_of_set_algebra_hold(a: Ranges[Fraction], b: Ranges[Fraction], c: Ranges[Fraction]) -> None:
    full, empty = Ranges[Fraction].full(), Ranges[Fraction].empty()
    assert a | b == b | a and a & b == b & a
    assert (a | b) | c == a | (b | c) and (a & b) & c == a & (b & c)
    assert a & (b | c) == (a & b) | (a & c) and a | (b & c) == (a | b) & (a | c)
    assert a | (a & b) == a == a & (a | b)
    assert ~~a == a and ~full == empty and ~empty == full
    assert ~(a | b) == ~a & ~b and ~(a & b) == ~a | ~b
    assert a | ~a == full and a & ~a == empty == a - a
    assert a | empty == a == a & full and a | full == full and a & empty == empty
    assert (a <= b) == (a | b == b) == (a & b == a)
    assert not (a <= b and b <= a) or a == b


@given(END, END, st.booleans(), st.booleans())
def test_an_interval_from_high_to_low_is_empty(a: Fraction, b: Fraction, with_low: bool, with_high: bool) -> None:
    built = Ranges.between(a, b, with_low=with_low, with_high=with_high)
    assert built.is_empty == (a > b or (a == b and not (with_low and with_high)))


def test_a_set_out_of_normal_form_cannot_be_made() -> None:
    def interval(low: int, high: int) -> Interval[int]:
        return Interval(End(low, included=True), End(high, included=False))

    for left, right in [(interval(1, 2), interval(2, 3)), (interval(3, 4), interval(1, 2)), (interval(1, 3),) * 2]:
        with pytest.raises(ValueError, match="sorted and apart"):
            Ranges((left, right))
    below, above = Ranges.less_than(1).intervals[0], Ranges.at_least(3).intervals[0]
    for left, right in [(above, interval(1, 2)), (interval(1, 2), below)]:
        with pytest.raises(ValueError, match="sorted and apart"):
            Ranges((left, right))
    with pytest.raises(ValueError, match="no interval"):
        interval(2, 1)
    with pytest.raises(ValueError, match="no interval"):
        interval(1, 1)


def test_ranges_of_two_version_types_do_not_mix() -> None:
    driver, cuda = Ranges.at_least(DriverVersion.parse("580.65.06")), Ranges.at_least(CudaVersion.parse("13.0"))
    with pytest.raises(TypeError):
        driver & cuda  # type: ignore[operator]
    with pytest.raises(TypeError):
        driver.contains(CudaVersion.parse("13.0"))  # type: ignore[arg-type]


# Text


def known(name: str) -> list[str]:
    lines = (FIXTURES / name).read_text(encoding="utf-8").splitlines()
    return [line.partition("\t")[0] for line in lines if not line.startswith("#")]


def observed(kind: str) -> list[str]:
    lines = (FIXTURES / "observed.txt").read_text(encoding="utf-8").splitlines()
    return [line.partition("\t")[2] for line in lines if line.startswith(f"{kind}\t")]


VERSIONS: dict[type[Version], list[str]] = {
    DriverVersion: known("driver_releases.txt") + observed("driver"),
    CudaVersion: [*known("cuda_toolkits.txt"), "13.0 Update 2", "13.4 Developer Preview", "12.2 GA"],
    DebVersion: observed("deb"),
    RpmVersion: observed("rpm"),
    VbiosVersion: observed("vbios"),
    KernelVersion: observed("kernel"),
}


@pytest.mark.parametrize("kind", VERSIONS, ids=lambda kind: kind.__name__)
@settings(max_examples=100)
@given(data=st.data())
def test_a_range_of_versions_reads_its_own_text_as_itself(kind: type[Version], data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.sampled_from(VERSIONS[kind]), min_size=1, max_size=6))
    operators = st.sampled_from([">=", ">", "<=", "<", "==", "!="])
    written = " || ".join(
        ",".join(f"{data.draw(operators)} {text}" for text in texts[start : start + 2])
        for start in range(0, len(texts), 2)
    )
    ranges = parse_ranges(written, kind)
    assert parse_ranges(str(ranges), kind) == ranges
    assert str(parse_ranges(str(ranges), kind)) == str(ranges)
    assert pickle.loads(pickle.dumps(ranges)) == ranges


@given(SETS)
def test_two_different_sets_have_two_different_texts(a: Ranges[Fraction]) -> None:
    assert str(a) not in {str(~a), str(a - Ranges.singleton(Fraction(0))) if Fraction(0) in a else ""}


def cuda(text: str) -> Ranges[CudaVersion]:
    return parse_ranges(text, CudaVersion)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (">=12.4,<13", ">=12.4,<13"),
        (" >= 12.4 , < 13 ", ">=12.4,<13"),
        ("<13,>=12.4,>=12.0", ">=12.4,<13"),
        ("==12.4 || >=13.0", "==12.4 || >=13.0"),
        (">=13.0||==12.4", "==12.4 || >=13.0"),
        ("!=13.0 Update 2", "!=13.0 Update 2"),
        (">=12,!=12.4,!=12.6,<13", ">=12,!=12.4,!=12.6,<13"),
        ("<12 || >=12", "*"),
        ("*", "*"),
        ("none", "none"),
        (">13.0,<12.0", "none"),
        (">12.4 || none", ">12.4"),
        ("<=12.4 || >12.6,<=12.8", "<=12.4 || >12.6,<=12.8"),
    ],
)
def test_a_range_is_shown_in_its_shortest_form(text: str, shown: str) -> None:
    assert str(cuda(text)) == shown


def test_comma_means_and_and_two_bars_mean_or() -> None:
    wanted = cuda(">=12.4,<13 || ==13.0 Update 2")
    members = ["12.3.2", "12.4", "12.9.1", "13.0", "13.0.2", "13.0 Update 3"]
    assert [text for text in members if CudaVersion.parse(text) in wanted] == ["12.4", "12.9.1", "13.0.2"]


def test_a_site_build_is_outside_a_range_that_ends_at_its_upstream_version_unless_asked_as_plain() -> None:
    build = DriverVersion.parse("580.126.20-1+site1")
    for text in ("==580.126.20", "<=580.126.20"):
        ranges = parse_ranges(text, DriverVersion)
        assert build not in ranges
        assert build.plain in ranges
    assert build in parse_ranges(">=580.126.20,<580.126.21", DriverVersion)


def test_a_bare_branch_number_can_start_a_range_or_end_it_before_but_not_stand_for_a_version() -> None:
    branch = parse_ranges(">=580,<581", DriverVersion)
    assert [
        text for text in ("575.64", "580.65.06", "580.178.04-1", "590.44.01") if DriverVersion.parse(text) in branch
    ] == [
        "580.65.06",
        "580.178.04-1",
    ]
    for text in ("==580", "<=580", ">580", "!=580"):
        with pytest.raises(RangeSyntaxError, match="R580"):
            parse_ranges(text, DriverVersion)


@pytest.mark.parametrize(
    ("text", "part", "hint"),
    [
        ("", "", "a condition is missing"),
        (">=12.4,", "", "a condition is missing"),
        ("|| <13", "", "a condition is missing"),
        ("12.4", "12.4", "write ==12.4 for just this version or >=12.4"),
        ("=12.4", "=12.4", "equal is written ==: ==12.4"),
        ("=>12.4", "=>12.4", "it is written >="),
        ("~=12.4", "~=12.4", "operators are >= > <= < == !="),
        (">=", ">=", "no version stands after >="),
        (">=12.4 <13", ">=12.4 <13", "put a comma between"),
        (">=12.4 | <11", ">=12.4 | <11", "or is written ||"),
        (">=12.4,<thirteen", "<thirteen", "'thirteen' is not a CUDA version"),
        (">=12.4,<=13", "<=13", "can only be the end of a range"),
    ],
)
def test_a_wrong_range_names_the_faulty_piece_and_what_to_write(text: str, part: str, hint: str) -> None:
    with pytest.raises(RangeSyntaxError) as caught:
        cuda(text)
    error = caught.value
    assert (error.text, error.part) == (text, part)
    assert hint in error.hint and error.hint in str(error) and repr(part) in str(error)
    assert (f"in {text!r}" in str(error)) == (part != text)
    assert pickle.loads(pickle.dumps(error)).hint == error.hint


@given(st.text("0123456789.<>=!|,* noe~", max_size=20))
def test_any_text_is_a_range_or_a_named_refusal(text: str) -> None:
    try:
        ranges = cuda(text)
    except RangeSyntaxError:
        return
    assert cuda(str(ranges)) == ranges


def test_a_range_of_all_known_drivers_reads_its_own_text() -> None:
    drivers = Ranges.of(DriverVersion.parse(text) for text in VERSIONS[DriverVersion])
    for ranges in (drivers, ~drivers):
        assert parse_ranges(str(ranges), DriverVersion) == ranges


def test_a_range_of_a_hundred_thousand_conditions_is_refused_at_once() -> None:
    with pytest.raises(RangeSyntaxError) as caught:
        cuda("!=12.4," * 100_000)
    assert len(str(caught.value)) < 400
