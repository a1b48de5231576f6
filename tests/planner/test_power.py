"""What a stage can detect is the exact binomial bound: simulated chances and the known table agree with it."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.planner.power import MISSED, power
from muster.planner.words import about, percent


@pytest.mark.parametrize(
    ("nodes", "share"), [(1, 0.95), (2, 0.7764), (4, 0.5271), (8, 0.3123), (62, 0.0472), (312, 0.0096)]
)
def test_so_many_canaries_notice_a_driver_that_breaks_at_least_this_share(nodes: int, share: float) -> None:
    assert power(nodes, 0).share == pytest.approx(share, abs=0.0001)


@given(st.integers(1, 60), st.integers(1, 3), st.integers(0, 10**6))
def test_what_breaks_that_share_is_missed_in_one_of_twenty_rollouts_at_most(
    nodes: int, failures: int, seed: int
) -> None:
    found = power(nodes, 0, failures).share
    if nodes < failures:
        assert found == 1.0
        return
    chance = Random(seed)
    missed = sum(sum(chance.random() < found for _ in range(nodes)) < failures for _ in range(400)) / 400
    assert missed <= MISSED + 0.06  # five standard deviations of 400 trials


def test_a_soak_bounds_a_rate_by_its_node_days() -> None:
    assert power(8, 7200).per_node_day == pytest.approx(4.5)
    assert power(312, 86400).per_node_day == pytest.approx(3 / 312)
    assert power(8, 0).per_node_day is None


@pytest.mark.parametrize(("share", "text"), [(0.3123, "32 %"), (0.0472, "4.8 %"), (0.95, "95 %"), (0.0101, "1.1 %")])
def test_a_share_is_rounded_up_so_that_no_more_is_promised(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(("seconds", "text"), [(60, "1 min"), (5399, "90 min"), (5400, "2 h"), (172800, "2.0 days")])
def test_durations_are_said_as_people_do(seconds: int, text: str) -> None:
    assert about(seconds) == text
