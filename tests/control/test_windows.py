"""Windows are local times; what a plan gets are the UTC intervals that those times are, by the rules of their zone on that day."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.windows import HORIZON_DAYS, spans
from muster.model.plan import Span
from muster.model.quantities import Window

NOW = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)  # a Sunday


def utc(*at: int) -> datetime:
    return datetime(*at, tzinfo=UTC)  # type: ignore[misc, arg-type]


def test_a_window_before_and_after_the_clocks_change_opens_at_the_same_local_hour() -> None:
    found = spans((Window.parse("Sat 02:00-08:00 Europe/Berlin"),), NOW)
    assert found[:5] == (
        Span(utc(2026, 3, 7, 1), utc(2026, 3, 7, 7)), Span(utc(2026, 3, 14, 1), utc(2026, 3, 14, 7)),
        Span(utc(2026, 3, 21, 1), utc(2026, 3, 21, 7)), Span(utc(2026, 3, 28, 1), utc(2026, 3, 28, 7)),
        Span(utc(2026, 4, 4, 0), utc(2026, 4, 4, 6)),
    )  # fmt: skip


def test_a_window_over_the_night_in_which_the_clocks_change_is_shorter_by_that_hour() -> None:
    (night,) = [
        s for s in spans((Window.parse("Sat 22:00-06:00 Europe/Berlin"),), NOW) if s.opens == utc(2026, 3, 28, 21)
    ]
    assert night.closes == utc(2026, 3, 29, 4)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Sat 22:00-09:00 UTC", Span(utc(2026, 2, 28, 22), utc(2026, 3, 1, 9))),
        ("Sun 00:00-24:00 Asia/Tokyo", Span(utc(2026, 2, 28, 15), utc(2026, 3, 1, 15))),
        ("Sun 00:00-08:00 UTC", Span(utc(2026, 3, 8), utc(2026, 3, 8, 8))),
    ],
)
def test_a_window_that_is_open_now_is_told_from_its_beginning_and_one_that_is_over_is_not(
    text: str, first: Span
) -> None:
    assert spans((Window.parse(text),), NOW)[0] == first


def test_windows_that_meet_are_one() -> None:
    both = (
        Window.parse("Sat 02:00-04:00 UTC"),
        Window.parse("Sat 04:00-06:00 UTC"),
        Window.parse("Sat 03:00-05:00 UTC"),
    )
    assert spans(both, NOW)[0] == Span(utc(2026, 3, 7, 2), utc(2026, 3, 7, 6))
    assert spans((Window.parse("daily 00:00-24:00 UTC"),), NOW)[0].closes > NOW + timedelta(days=HORIZON_DAYS - 2)


@given(st.sampled_from(("Sat 02:00-08:00 Europe/Berlin", "Mon-Fri 22:00-06:00 America/New_York", "daily 01:00-04:00 Asia/Kolkata")),
       st.integers(0, 10**8))  # fmt: skip
def test_spans_are_in_order_apart_and_not_over(text: str, minutes: int) -> None:
    now = NOW + timedelta(minutes=minutes % 10**6)
    found = spans((Window.parse(text),), now)
    assert found
    assert all(span.opens < span.closes and span.closes > now for span in found)
    assert all(one.closes < two.opens for one, two in itertools.pairwise(found))
