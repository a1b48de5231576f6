"""Folded names say who is meant: nobody is lost, and nobody is added."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.planner.folding import folded, joined

NAMES = st.lists(
    st.from_regex(re.compile(r"(gpu|rack1n|a-)[0-9]{1,3}(\.x)?|login|v[0-9]a[0-9]", re.ASCII), fullmatch=True), max_size=30, unique=True
)  # fmt: skip


def unfolded(text: str) -> list[str]:
    names = []
    for piece in re.split(r", (?![^\[]*\])", text) if text else []:
        matched = re.fullmatch(r"(.*)\[(.*)\](.*)", piece)
        if matched is None:
            names.append(piece)
            continue
        for run in matched[2].split(","):
            first, _, last = run.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            names += [f"{matched[1]}{number:0{len(first)}d}{matched[3]}" for number in numbers]
    return names


@given(NAMES)
def test_every_name_can_be_read_back(names: Sequence[str]) -> None:
    assert sorted(unfolded(folded(names))) == sorted(names)


@given(NAMES, st.integers(1, 5))
def test_what_is_not_shown_is_counted(names: Sequence[str], most: int) -> None:
    text = folded(names, most)
    shown, plus, hidden = text.partition(" +")
    assert len(unfolded(shown)) + int(hidden or 0) == len(names)
    assert bool(plus) == (len(unfolded(shown)) < len(names))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu001", "gpu002", "gpu003", "gpu007"], "gpu[001-003,007]"), (["n9", "n10", "n11"], "n9, n[10-11]"),
        (["gpu1.rack", "gpu2.rack"], "gpu[1-2].rack"), (["login", "login"], "login"), (["a[1]", "b,c"], "a[1], b,c"), ([], ""),
    ],
)  # fmt: skip
def test_runs_of_one_width_are_folded(names: Sequence[str], text: str) -> None:
    assert folded(names) == text


@pytest.mark.parametrize(
    ("sentences", "most", "said"),
    [
        (("R580 drives Hopper GPUs",), 0, "R580 drives Hopper GPUs"),
        (("R580 drives Hopper GPUs", "R580 drives Ampere GA100 GPUs"), 0, "R580 drives Hopper, Ampere GA100 GPUs"),
        (("a is 1", "a is 2", "a is 3"), 2, "a is 1, 2 +1"),
        (("one is good", "two is good"), 0, "one, two is good"),
        (("this holds", "that fails"), 0, "this holds; that fails"),
        (("a b c", "a c"), 0, "a b c; a c"),
        (("same", "same"), 0, "same"),
    ],
)
def test_sentences_that_differ_in_one_place_are_said_as_one(sentences: tuple[str, ...], most: int, said: str) -> None:
    assert joined(sentences, most) == said
