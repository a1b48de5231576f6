"""What the solver says about real products and drivers, against the knowledge base that comes with the release."""

import pytest

from muster.knowledge.loader import load
from muster.solver.search import RULES, solve
from tests.support.solving import Scenario, outcome, scenarios

SCENARIOS = scenarios()


def answered(scenario: Scenario, leave_out: int | None = None) -> object:
    rules = [rule for at, rule in enumerate(RULES) if at != leave_out]
    return outcome(solve(scenario.kind, scenario.demand, load(), rules))


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_answer_and_its_sentence_are_the_expected_ones(name: str) -> None:
    assert answered(SCENARIOS[name]) == SCENARIOS[name].expect


@pytest.mark.parametrize("at", range(len(RULES)), ids=[rule.__module__.rpartition(".")[2] for rule in RULES])
def test_without_any_one_of_the_rules_something_would_be_admitted_that_is_refused(at: int) -> None:
    admitted = [
        name
        for name, scenario in SCENARIOS.items()
        if "refused" in scenario.expect and "driver" in dict(answered(scenario, at))  # type: ignore[call-overload]
    ]
    assert admitted
