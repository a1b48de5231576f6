"""The fewest distinct drivers that serve all classes of a fleet, and what each one more is for. Pure.

Mixed drivers cost: images, tests and incidents are kept for each of them. So beside "the best for each class" there is "the fewest for all".
Classes that no driver serves are left out and named, they do not make the rest unsolvable.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import comb

from muster.knowledge.schema import KnowledgeBase
from muster.model.frozen import dataclass
from muster.model.versions.driver import DriverVersion
from muster.solver.problem import Answer, Demand, NodeClass, NoSolution, Rule, Solution
from muster.solver.registry import RULES
from muster.solver.search import ranked, solve

EXACT_TRIES = 20_000
"""So many sets of drivers are tried for the fewest; beyond that the largest gain is taken step by step, and `exact` says so."""


@dataclass(frozen=True, slots=True)
class Member:
    """One class of nodes of a fleet under its pool's demand, and how many nodes it has."""

    kind: NodeClass
    demand: Demand
    nodes: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """One driver of the answer: the members (by position) that get it, and its price: those that no other chosen driver would serve."""

    driver: DriverVersion
    serves: tuple[int, ...]
    alone: tuple[int, ...]
    nodes: int
    nodes_alone: int


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """The drivers, the one that serves most nodes first; what each member gets; the members that none serves, with why.

    `exact`: no smaller set would do. `best` is how many distinct drivers there would be if each member got its own best one.
    """

    chosen: tuple[Chosen, ...]
    answers: tuple[Answer, ...]
    unserved: tuple[int, ...]
    exact: bool
    best: int


def solve_fleet(members: Sequence[Member], base: KnowledgeBase, rules: Sequence[Rule] = RULES) -> FleetAnswer:
    """The fewest distinct drivers, and of those sets the one with the newest drivers. Same input, same answer.

    A driver counts by its text: a site's own build is a driver of its own.
    """
    options = [ranked(member.kind, member.demand, base, rules) for member in members]
    served = [at for at, solutions in enumerate(options) if solutions]
    by_driver = _by_driver(options, served)
    drivers, exact = _fewest(by_driver, served)
    given = {at: _first(options[at], drivers) for at in served}
    answers = tuple(
        given[at] if at in given else solve(member.kind, member.demand, base, rules)
        for at, member in enumerate(members)
    )
    chosen = [_chosen(driver, members, given, by_driver, drivers) for driver in drivers]
    return FleetAnswer(
        chosen=tuple(sorted(chosen, key=lambda each: (-each.nodes, each.driver.key), reverse=False)),
        answers=answers,
        unserved=tuple(at for at, answer in enumerate(answers) if isinstance(answer, NoSolution)),
        exact=exact,
        best=len({options[at][0].chosen.driver.text for at in served}),
    )


def _by_driver(options: Sequence[Sequence[Solution]], served: Iterable[int]) -> Mapping[str, frozenset[int]]:
    """Which members each driver serves, newest driver first."""
    found: dict[str, set[int]] = {}
    versions: dict[str, DriverVersion] = {}
    for at in served:
        for solution in options[at]:
            driver = solution.chosen.driver
            versions[driver.text] = driver
            found.setdefault(driver.text, set()).add(at)
    return {text: frozenset(found[text]) for text in sorted(found, key=lambda text: versions[text].key, reverse=True)}


def _fewest(by_driver: Mapping[str, frozenset[int]], served: Sequence[int]) -> tuple[tuple[str, ...], bool]:
    """The smallest set of drivers that serves all; among equals the first in the order of `by_driver`."""
    wanted, names = frozenset(served), _undominated(by_driver)
    tries = 0
    for size in range(len(names) + 1):
        tries += comb(len(names), size)
        if tries > EXACT_TRIES:
            return _step_by_step(by_driver, names, wanted), False
        for group in combinations(names, size):
            if frozenset[int]().union(*(by_driver[name] for name in group)) >= wanted:
                return group, True
    return tuple(names), True


def _undominated(by_driver: Mapping[str, frozenset[int]]) -> list[str]:
    """Drivers that serve something which no newer driver serves whole: the others are never needed in a smallest set."""
    kept: list[str] = []
    for name, serves in by_driver.items():
        if not any(serves <= by_driver[other] for other in kept):
            kept.append(name)
    return kept


def _step_by_step(
    by_driver: Mapping[str, frozenset[int]], names: Sequence[str], wanted: frozenset[int]
) -> tuple[str, ...]:
    left, taken = set(wanted), []
    while left:
        best = max(names, key=lambda name: (len(by_driver[name] & left), -names.index(name)))
        taken.append(best)
        left -= by_driver[best]
    return tuple(taken)


def _first(solutions: Sequence[Solution], drivers: Sequence[str]) -> Solution:
    """The member's best solution among the chosen drivers."""
    return next(each for each in solutions if each.chosen.driver.text in drivers)


def _chosen(
    text: str,
    members: Sequence[Member],
    given: Mapping[int, Solution],
    by_driver: Mapping[str, frozenset[int]],
    drivers: Sequence[str],
) -> Chosen:
    serves = tuple(at for at, solution in given.items() if solution.chosen.driver.text == text)
    others = frozenset[int]().union(*(by_driver[name] for name in drivers if name != text))
    alone = tuple(at for at in serves if at not in others)
    return Chosen(
        driver=given[serves[0]].chosen.driver if serves else DriverVersion(text),
        serves=serves,
        alone=alone,
        nodes=sum(members[at].nodes for at in serves),
        nodes_alone=sum(members[at].nodes for at in alone),
    )
