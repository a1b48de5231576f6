"""The same input gives the same answers in every process, whatever Python's hash seed is."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ANSWERS = """
from muster.knowledge.loader import load
from muster.health.consistency import check
from muster.health.judgement import Subject
from muster.planner.lint import lint
from muster.planner.propose import propose
from muster.solver.search import solve
from tests.support.planning import KINDS, fleet, given
from tests.support.rollouts import World, by_chance
from tests.support.solving import scenarios
from tests.support.values import T0
nodes, facts = fleet(list(KINDS) * 2)
plan = propose(given(nodes, facts))
print(plan.id, lint(plan), check([Subject(name, "train", each, None, True) for name, each in facts.items()], T0))
print([decision for decision in World(plan, by_chance(3, 0.02)).rounds(200)])
print([solve(each.kind, each.demand, load()) for each in scenarios().values()])
"""


def answers(seed: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": seed}
    return subprocess.run(
        [sys.executable, "-c", ANSWERS],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=120,
        check=True,
    ).stdout


def test_no_answer_depends_on_the_hash_seed() -> None:
    first = answers("0")
    assert first.count("plan-") >= 1
    assert answers("1") == answers("4242") == first
