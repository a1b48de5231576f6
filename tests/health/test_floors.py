"""Floors: what is learnt from a fleet, what a node's own past says, and that nothing is held against a node that nobody measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.health.floors import MARGIN, NODES_LEAST, held_against, learn
from muster.model.validation import Floors, Learnt, Validated
from muster.model.verdict import Fail, Pass, Undecided, Verdict
from tests.support.values import later

KIND, METRIC = "NVIDIA H100", "matmul_tflops"


def past(values: list[float], kind: str = KIND, verdict: Verdict | None = None) -> list[Validated]:
    good = Pass("well")
    return [
        Validated(f"n{i}", later(i), "builtin", kind, "580.126.20", verdict or good, {METRIC: value}, "rollout-1")
        for i, value in enumerate(values)
    ]


def learnt(values: list[float]) -> Learnt:
    return learn(past(values))[KIND, METRIC]


def test_too_few_nodes_teach_nothing() -> None:
    assert learnt([50.0] * (NODES_LEAST - 1)) == Learnt(None, 50, NODES_LEAST - 1)


def test_the_floor_is_the_median_less_a_tenth() -> None:
    assert learnt([50, 50, 50, 51, 49]) == Learnt(pytest.approx(45), 50, 5)


def test_a_kind_that_spreads_wider_has_a_lower_floor() -> None:
    floor = learnt([40, 45, 50, 55, 60]).minimum
    assert floor == pytest.approx(50 - 3 * 1.4826 * 5)


@given(st.lists(st.floats(45, 55), min_size=5, max_size=20), st.floats(1, 30))
def test_a_few_bad_nodes_do_not_lower_the_floor_below_half_of_what_good_ones_reach(
    good: list[float], bad: float
) -> None:
    floor = learnt([*good, *[bad] * ((len(good) - 1) // 2)]).minimum
    assert floor is not None
    assert floor >= 45 / 2


def test_only_each_nodes_last_passed_validation_counts() -> None:
    old, failed = past([10] * 5), past([1] * 5, verdict=Fail("slow"))
    assert learn([*old, *past([50] * 5), *failed])[KIND, METRIC].median == 50


def test_kinds_do_not_mix() -> None:
    found = learn([*past([50] * 5), *past([20] * 5, "NVIDIA L4")])
    # The nodes are the same five: the last validation says of which kind a node is.
    assert set(found) == {("NVIDIA L4", METRIC)}


@given(st.permutations(past([48, 49, 50, 51, 52, 20])))
def test_the_order_of_nodes_does_not_matter(order: list[Validated]) -> None:
    assert learn(order) == learn(past([48, 49, 50, 51, 52, 20]))


FLEET = Floors({}, (METRIC,), {(KIND, METRIC): Learnt(45.0, 50.0, 12)})


def held(floors: Floors, value: float | None, own: float | None = None) -> Verdict:
    return held_against(floors, KIND, {} if value is None else {METRIC: value}, {} if own is None else {METRIC: own})


def test_a_fixed_floor_that_is_not_reached_fails_and_one_not_measured_is_unknown() -> None:
    fixed = Floors({METRIC: 48.0})
    assert isinstance(held(fixed, 48.0), Pass)
    assert held(fixed, 47.9) == Fail("matmul_tflops is 47.9, the policy wants 48")
    assert held(fixed, None) == Undecided("matmul_tflops was not measured, and the policy wants 48")


def test_a_learnt_floor_says_where_it_comes_from() -> None:
    assert held(FLEET, 44.9) == Fail(
        "matmul_tflops is 44.9, the floor is 45: learnt from 12 nodes of its kind, median 50"
    )
    assert held(FLEET, 45.0) == Pass("matmul_tflops 45 (floor 45, from 12 nodes)")


def test_without_enough_nodes_there_is_no_floor_and_that_is_said() -> None:
    few = Floors({}, (METRIC,), {(KIND, METRIC): Learnt(None, 50.0, 2)})
    assert held(few, 1.0) == Pass("matmul_tflops 1 (no floor yet: 2 of 5 nodes of its kind measured)")
    assert held(few, None) == Pass("matmul_tflops was not measured")


def test_a_node_that_got_slower_than_itself_fails_even_above_the_floor_of_its_kind() -> None:
    verdict = held(FLEET, 46, own=60)
    assert verdict == Fail("matmul_tflops is 46, 23 % less than this node's own 60 before the change")
    assert isinstance(held(FLEET, 60 * (1 - MARGIN) + 0.01, own=60), Pass)


def test_thirty_percent_less_is_caught_in_each_way() -> None:
    assert isinstance(held(FLEET, 35), Fail)
    assert isinstance(held(Floors({}, (METRIC,)), 35, own=50), Fail)
    assert isinstance(held(Floors({METRIC: 45}), 35), Fail)


@pytest.mark.parametrize("floors", [Floors(), FLEET])
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_rate_of_nothing_fails_without_any_floor(floors: Floors, value: float) -> None:
    assert isinstance(held(floors, value), Fail)


def test_without_floors_nothing_is_held_against_anybody() -> None:
    assert held(Floors(), 1.0, own=100.0) == Pass("")
