"""Durations, amounts and windows: one text form, one meaning."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.quantities import MAX_DURATION_S, Amount, Window, duration_text, parse_duration_s


@pytest.mark.parametrize(("text", "seconds"), [("0s", 0), ("90s", 90), ("15m", 900), ("24h", 86400), ("7d", 604800)])
def test_a_duration_is_a_whole_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "m", "1.5h", "-1m", "1h30m", " 1h", "1w", "1H", "٣m", "400d", "999999999d"])
def test_any_other_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        parse_duration_s(text)


@given(st.integers(0, MAX_DURATION_S))
def test_a_duration_reads_back_as_written(seconds: int) -> None:
    assert parse_duration_s(duration_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "total", "expected"),
    [("5%", 100, 5), ("5%", 119, 5), ("5%", 3, 1), ("5%", 0, 0), ("100%", 7, 7), ("0.5%", 1000, 5), ("2", 10, 2),
     ("2", 1, 1), ("2", 0, 0), ("33.33%", 3, 1), ("99.99%", 10_000, 9999)],
)  # fmt: skip
def test_a_share_rounds_down_but_is_at_least_one_and_never_more_than_all(text: str, total: int, expected: int) -> None:
    assert Amount.parse(text).of(total) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "0%", "0.00%", "-1", "101%", "100.01%", "five", "5 percent", "1.234%", "٣", "5%%"]
)
def test_any_other_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"nothing at all|more than all|neither"):
        Amount.parse(text)


@given(st.integers(1, 10_000), st.integers(0, 1_000_000))
def test_a_share_reads_back_as_written_and_stays_within_bounds(basis_points: int, total: int) -> None:
    amount = Amount(basis_points=basis_points)
    assert Amount.parse(str(amount)) == amount
    assert min(total, 1) <= amount.of(total) <= total


@pytest.mark.parametrize(("count", "basis_points"), [(0, 0), (1, 1), (-1, 0), (0, 10_001), (-1, 5)])
def test_an_amount_is_exactly_one_of_count_and_share(count: int, basis_points: int) -> None:
    with pytest.raises(ValueError, match=r"amount|share"):
        Amount(count, basis_points)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("Sat 02:00-08:00 Europe/Berlin", Window((5,), 120, 480, "Europe/Berlin")),
        ("Sat 22:00-06:00 UTC", Window((5,), 1320, 1800, "UTC")),
        ("Mon-Fri 00:00-24:00 UTC", Window((0, 1, 2, 3, 4), 0, 1440, "UTC")),
        ("Fri-Mon 01:00-02:00 UTC", Window((0, 4, 5, 6), 60, 120, "UTC")),
        ("Sun,Tue 01:00-02:00 UTC", Window((1, 6), 60, 120, "UTC")),
        ("Mon-Wed,Wed 01:00-02:00 UTC", Window((0, 1, 2), 60, 120, "UTC")),
        ("daily 23:00-00:00 Etc/GMT+5", Window(tuple(range(7)), 1380, 1440, "Etc/GMT+5")),
    ],
)
def test_a_window_keeps_local_times_and_the_zone_name(text: str, window: Window) -> None:
    assert Window.parse(text) == window
    assert Window.parse(str(window)) == window


@given(
    st.sets(st.integers(0, 6), min_size=1),
    st.integers(0, 1439),
    st.integers(1, 1440),
    st.sampled_from(["UTC", "Europe/Berlin", "America/Argentina/Ushuaia"]),
)
def test_a_window_reads_back_as_written(days: set[int], start: int, length: int, zone: str) -> None:
    window = Window(tuple(sorted(days)), start, start + length, zone)
    if length < 1440 or start == 0:
        assert Window.parse(str(window)) == window


@given(st.text())
def test_any_text_is_a_window_or_a_value_error(text: str) -> None:
    for parse in (Window.parse, Amount.parse, parse_duration_s):
        try:
            parse(text)
        except ValueError as error:
            assert str(error)
