"""Which pool a node is in: all conditions hold, families are whole words, and what cannot be told is said."""

from collections.abc import Mapping

import pytest

from muster.model.fact import FactValue, Unknown
from muster.model.node import Node
from muster.model.policy import Match
from muster.planner.pools import Placing, place
from tests.support.planning import policy, pool, seen

RACK = Node("n1", "n1", None, None, {"rack": "r1", "slurm.partition": "train"}, "hosts:1")


def placing(*conditions: Match, **values: FactValue) -> Placing:
    facts = {key.replace("__", "."): value for key, value in values.items()}
    return place(RACK, seen("n1", facts), policy(pool("train", match=conditions)))


def holds(match: Match, facts: Mapping[str, FactValue]) -> bool:
    return bool(place(RACK, seen("n1", facts), policy(pool("train", match=(match,)))).pools)


@pytest.mark.parametrize(
    ("family", "product", "fits"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True), ("h100", "NVIDIA H100 PCIe", True), ("A10", "NVIDIA A100 80GB PCIe", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True), ("H200", "NVIDIA GH200 480GB", False), ("L40", "NVIDIA L40S", False),
        ("V100", "Tesla V100-SXM2-16GB", True), ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
    ],
)  # fmt: skip
def test_a_family_is_a_word_of_its_own_in_the_product_name(family: str, product: str, fits: bool) -> None:
    assert holds(Match("gpu", (family,)), {"gpu.product": product}) == fits


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        (Match("label.rack", ("r1",)), True), (Match("label.rack", ("r2", "r1")), True), (Match("label.rack", ("r2",)), False),
        (Match("label.rack", ("*",)), True), (Match("label.row", ("*",)), False), (Match("slurm.partition", ("train",)), True),
        (Match("arch", ("x86_64",)), True), (Match("gpu.count", ("8",)), True), (Match("lease.held", ("false",)), True),
        (Match("lease.held", ("true",)), False), (Match("holder.names", ("python",)), True), (Match("holder.names", ("R",)), False),
        (Match("hostname", ("n1",)), True), (Match("hostname", ("n2", "n1")), True), (Match("hostname", ("n2",)), False),
    ],
)  # fmt: skip
def test_a_condition_is_on_a_label_or_on_a_fact_as_a_policy_writes_it(match: Match, fits: bool) -> None:
    assert holds(match, {"holder.names": ("bash", "python")}) == fits


def test_all_conditions_must_hold() -> None:
    fits, fails = Match("arch", ("x86_64",)), Match("arch", ("aarch64",))
    assert placing(fits, Match("label.rack", ("r1",))).pools == ("train",)
    assert placing(fits, fails).pools == ()


def test_what_cannot_be_told_is_said_unless_another_condition_settles_it() -> None:
    lost = Unknown("no answer")
    gpu, wrong = Match("gpu", ("H100",)), Match("label.rack", ("r2",))
    assert placing(gpu, gpu__product=lost) == Placing((), ("train: gpu.product is unknown: no answer",))
    assert placing(gpu, wrong, gpu__product=lost) == Placing((), ())
    never = place(RACK, None, policy(pool("train", match=(gpu,))))
    assert never.unknown == ("train: gpu.product is unknown: never collected",)


def test_a_node_in_two_pools_is_in_none_that_can_be_changed() -> None:
    wanted = policy(pool("a", match=(Match("arch", ("*",)),)), pool("b", match=(Match("label.rack", ("r1",)),)))
    found = place(RACK, seen("n1", {}), wanted)
    assert found.pools == ("a", "b")
    assert found.pool is None
