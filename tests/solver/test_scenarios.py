"""What the solver says about real situations, each a file: what is seen on a node, what its pool wants, what must come of it."""

import pytest

from muster.solver.registry import RULES
from muster.solver.search import solve
from tests.support.solving import FOLDER, Scenario, outcome, scenarios

SCENARIOS = scenarios()


def answered(scenario: Scenario, without: str = "") -> object:
    rules = [rule for rule in RULES if rule.name != without]
    return outcome(solve(scenario.kind, scenario.demand, scenario.base, rules))


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_answer_and_its_sentence_are_the_expected_ones(name: str) -> None:
    assert answered(SCENARIOS[name]) == SCENARIOS[name].expect


@pytest.mark.parametrize("without", [rule.name for rule in RULES])
def test_without_any_one_of_the_rules_some_answer_is_another(without: str) -> None:
    speaks = [name for name, each in SCENARIOS.items() if without in str(each.expect)]
    rest = [name for name in SCENARIOS if name not in speaks]
    assert any(answered(SCENARIOS[name], without) != SCENARIOS[name].expect for name in (*speaks, *rest))


def test_rules_have_names_of_their_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_every_scenario_says_in_its_first_line_which_situation_it_is() -> None:
    for path in FOLDER.glob("*.yaml"):
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("# ") and len(first) > 20, path.name


def test_there_are_at_least_sixty_of_them() -> None:
    assert len(SCENARIOS) >= 60
