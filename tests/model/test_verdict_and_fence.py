"""Verdicts and fences: Unknown is never good, and the lower fence is the one a node refuses."""

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.lease import Fence
from muster.model.verdict import Degraded, Fail, Pass, Skipped, Undecided, Verdict, word, worst

RISING: tuple[Verdict, ...] = (Pass("p"), Skipped("ops", "Monday"), Undecided("u"), Degraded("d"), Fail("f"))


@given(st.lists(st.sampled_from(RISING), min_size=1))
def test_the_worst_is_the_worst_in_whatever_order(verdicts: Sequence[Verdict]) -> None:
    assert worst(verdicts) == max(verdicts, key=RISING.index)


def test_of_nothing_the_verdict_is_unknown() -> None:
    assert isinstance(worst(()), Undecided)


@pytest.mark.parametrize("other", [each for each in RISING if not isinstance(each, Pass)], ids=word)
def test_only_passes_together_are_a_pass(other: Verdict) -> None:
    assert all(not isinstance(worst(each), Pass) for each in permutations((Pass(), other, Pass())))


def test_every_verdict_has_its_word() -> None:
    assert [word(each) for each in RISING] == ["Pass", "Skipped", "Unknown", "Degraded", "Fail"]


FENCES = st.builds(Fence, st.integers(0, 10**9), st.integers(0, 10**9))


@given(FENCES, FENCES)
def test_the_lease_decides_before_the_claim(one: Fence, two: Fence) -> None:
    assert (one < two) == ((one.lease, one.claim) < (two.lease, two.claim))


@given(FENCES)
def test_a_fence_comes_back_from_its_text(fence: Fence) -> None:
    assert Fence.parse(str(fence)) == fence


@pytest.mark.parametrize(
    "text", ["", ".", "1", "1.", ".1", "1.2.3", "-1.2", "+1.2", " 1.2", "1.2\n", "1_0.2", "01.2", "１.2", "a.b", "1,2"]
)
def test_what_is_no_fence_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no fence"):
        Fence.parse(text)
