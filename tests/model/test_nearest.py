"""Suggestions are near, deterministic, and absent where nothing is near."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.nearest import edit_distance, nearest, nearest_versions
from muster.model.versions import CudaVersion, DriverVersion

KEYS = ["drain", "driver", "cuda", "match", "max_unavailable", "tier", "windows", "schema", "fleet", "pools", "holds"]
WORD = st.text("abc-_", max_size=6)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("drvier", "driver"),
        ("Driver", "driver"),
        ("max-unavailable", "max_unavailable"),
        ("max_unavailble", "max_unavailable"),
        ("window", "windows"),
        ("max_un", "max_unavailable"),
        ("pool", "pools"),
        ("driver", "driver"),
    ],
)
def test_a_slip_of_the_fingers_finds_the_key_that_was_meant(text: str, first: str) -> None:
    assert nearest(text, KEYS)[0] == first


@pytest.mark.parametrize("text", ["", "x", "zzzzzz", "quota", "a" * 100_000])
def test_nothing_is_suggested_where_nothing_is_near(text: str) -> None:
    assert nearest(text, KEYS) == ()


@pytest.mark.parametrize(
    ("text", "name", "is_near"),
    [
        ("ab", "abcdefghi", False),
        ("abc", "abcdefghi", True),
        ("axc", "abc", True),
        ("axy", "abc", False),
        ("abcxyf", "abcdef", True),
        ("abxyzf", "abcdef", False),
        ("bcdef", "abcdef", True),
        ("def", "abcdef", False),
        ("a", "b", False),
        ("a" * 99 + "b", "a" * 100, True),
        ("a" * 100 + "b", "a" * 100, False),
        ("a" * 99 + "b", "a" * 101, False),
    ],
)
def test_near_means_at_most_a_third_of_the_characters_or_a_beginning(text: str, name: str, is_near: bool) -> None:
    assert nearest(text, [name]) == ((name,) if is_near else ())


def test_the_same_name_comes_before_a_longer_one_and_that_before_a_wilder_one() -> None:
    assert nearest("driver", ["drivel", "drivers", "driver", "drover"], 4) == ("driver", "drivel", "drivers", "drover")
    assert nearest("pol", ["policies", "pool", "poll"], 4) == ("policies", "poll", "pool")


@given(WORD, st.lists(WORD, max_size=8), st.randoms(use_true_random=False), st.integers(0, 4))
def test_suggestions_do_not_depend_on_the_order_of_the_known_names(text, known, rng, limit) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(known)
    rng.shuffle(shuffled)
    answer = nearest(text, known, limit)
    assert answer == nearest(text, shuffled, limit) == nearest(text, set(known), limit)
    assert len(answer) <= limit and set(answer) <= set(known) and len(set(answer)) == len(answer)


@given(WORD, WORD, WORD)
def test_edit_distance_is_symmetric_and_zero_only_for_equal_texts(a: str, b: str, c: str) -> None:
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert abs(len(a) - len(b)) <= edit_distance(a, b) <= max(len(a), len(b))
    assert edit_distance(a + c, b + c) <= edit_distance(a, b)


def test_a_swap_of_neighbours_is_one_edit() -> None:
    assert edit_distance("driver", "drvier") == 1
    assert edit_distance("", "abc") == 3


def drivers(*texts: str) -> list[DriverVersion]:
    return [DriverVersion.parse(text) for text in texts]


KNOWN = drivers("535.104.05", "575.64", "580.65.06", "580.119.02", "580.126.16", "580.126.20", "590.44.01")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("580.126.02", ["580.126.16", "580.126.20", "580.119.02"]),
        ("580.126.18", ["580.126.20", "580.126.16", "580.119.02"]),
        ("580.126.20", ["580.126.20", "580.126.16", "580.119.02"]),
        ("585.10", ["590.44.01", "580.126.20", "580.126.16"]),
        ("535.999", ["535.104.05", "575.64", "580.126.20"]),
    ],
)
def test_known_versions_of_the_same_branch_come_first_and_then_the_closest(text: str, expected: list[str]) -> None:
    answer = nearest_versions(DriverVersion.parse(text), KNOWN)
    assert [str(version) for version in answer] == expected
    assert answer == nearest_versions(DriverVersion.parse(text), reversed(KNOWN))


def test_equal_versions_are_suggested_once() -> None:
    known = [CudaVersion.parse(text) for text in ("13.0 Update 2", "13.0.2", "12.4.1")]
    assert [str(version) for version in nearest_versions(CudaVersion.parse("13.0.1"), known)] == ["13.0.2", "12.4.1"]
    assert nearest_versions(CudaVersion.parse("13.0"), []) == ()
