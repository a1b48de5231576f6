"""Laws of the fleet solver: the fewest distinct drivers for all classes, by brute force, and what each one more is for."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.knowledge.loader import load
from muster.knowledge.schema import KnowledgeBase
from muster.model.versions.driver import DriverVersion
from muster.solver.fleet import FleetAnswer, Member, solve_fleet
from muster.solver.problem import NoSolution, Solution
from muster.solver.search import ranked
from tests.solver.test_laws import DEMANDS, KINDS, UNIVERSES
from tests.support.solving import demand, kind, universe

MEMBERS = st.lists(st.builds(Member, KINDS, DEMANDS, st.integers(1, 50)), min_size=1, max_size=5)


@given(UNIVERSES, MEMBERS)
@settings(max_examples=80, deadline=None)
def test_no_smaller_set_of_drivers_serves_all(base: KnowledgeBase, members: Sequence[Member]) -> None:
    answer = solve_fleet(members, base)
    options = [{s.chosen.driver.text for s in ranked(m.kind, m.demand, base)} for m in members]
    served = [each for each in options if each]
    names = sorted(set().union(*served)) if served else []
    fewest = next(
        size
        for size in range(len(names) + 1)
        if any(all(each & set(group) for each in served) for group in combinations(names, size))
    )
    assert (len(answer.chosen), answer.exact) == (fewest, True)


@given(UNIVERSES, MEMBERS)
@settings(max_examples=60, deadline=None)
def test_every_class_gets_a_chosen_driver_that_its_rules_admit_or_is_named(
    base: KnowledgeBase, members: Sequence[Member]
) -> None:
    answer = solve_fleet(members, base)
    drivers = {each.driver.text for each in answer.chosen}
    for at, (member, got) in enumerate(zip(members, answer.answers, strict=True)):
        admitted = ranked(member.kind, member.demand, base)
        if isinstance(got, Solution):
            assert got in admitted
            assert got.chosen.driver.text in drivers
        else:
            assert (admitted, at in answer.unserved) == ((), True)
    assert sum(each.nodes for each in answer.chosen) == sum(
        m.nodes for m, got in zip(members, answer.answers, strict=True) if isinstance(got, Solution)
    )


@given(UNIVERSES, MEMBERS)
@settings(max_examples=40, deadline=None)
def test_without_a_chosen_driver_exactly_those_it_serves_alone_are_left(
    base: KnowledgeBase, members: Sequence[Member]
) -> None:
    answer = solve_fleet(members, base)
    for chosen in answer.chosen:
        others = {each.driver.text for each in answer.chosen if each is not chosen}
        left = {
            at
            for at, member in enumerate(members)
            if isinstance(answer.answers[at], Solution)
            and not others & {s.chosen.driver.text for s in ranked(member.kind, member.demand, base)}
        }
        assert set(chosen.alone) == left
        assert chosen.alone


def real() -> tuple[Sequence[Member], KnowledgeBase]:
    """A fleet of H100 and V100 that all want the newest long-term-support driver."""
    volta = kind(product="Tesla V100-SXM2-16GB", flavour="proprietary")
    wish = demand(newest="long-term-support")
    members = [Member(kind(), wish, 1000), Member(volta, wish, 200), Member(kind(product="NVIDIA B200"), wish, 16)]
    return members, universe(["535.261.03", "580.126.20", "620.70.06"])


def test_one_driver_for_old_and_new_gpus_is_fewer_than_the_best_for_each() -> None:
    members, base = real()
    answer = solve_fleet(members[:2], base)
    assert [each.driver.text for each in answer.chosen] == ["580.126.20"]
    assert (answer.best, answer.chosen[0].nodes) == (2, 1200)


def test_one_more_driver_says_for_whom_it_is() -> None:
    members, base = real()
    wants_new = replace(members[0], demand=demand(want="620.70.06"))
    answer = solve_fleet([wants_new, members[1]], base)
    assert [(each.driver.text, each.nodes_alone) for each in answer.chosen] == [
        ("620.70.06", 1000),
        ("580.126.20", 200),
    ]


def test_a_class_that_nothing_serves_leaves_the_others_served() -> None:
    members, base = real()
    lost = replace(members[0], kind=kind(product="NVIDIA Z9000"))
    answer = solve_fleet([lost, *members[1:2]], base)
    assert answer.unserved == (0,)
    assert isinstance(answer.answers[0], NoSolution)
    assert [each.driver.text for each in answer.chosen] == ["580.126.20"]


def test_the_order_of_the_classes_changes_no_driver() -> None:
    members, base = real()

    def drivers(answer: FleetAnswer) -> list[DriverVersion]:
        return [each.driver for each in answer.chosen]

    assert drivers(solve_fleet(members, base)) == drivers(solve_fleet(members[::-1], base))


def test_the_packaged_base_serves_a_fleet_of_many_classes_with_one_driver() -> None:
    names = ("NVIDIA H100 PCIe", "NVIDIA A100 80GB PCIe", "NVIDIA L40S", "NVIDIA A10", "Tesla T4")
    members = [Member(kind(product=name), demand(branch="R580"), 10) for name in names]
    assert len(solve_fleet(members, load()).chosen) == 1
