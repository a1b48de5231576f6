"""The pure packages open no file, no socket and no process while they decide: watched by the interpreter's own audit events."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

WATCHED = """
import sys
from muster.knowledge.loader import load
from muster.executor import machine, runner
from muster.executor.scene import Result
from muster.health.consistency import check
from muster.health.judgement import Subject
from muster.model.audit import GENESIS, append
from muster.model.phase import Event
from muster.planner import words
from muster.planner.gates import decide
from muster.planner.lint import lint
from muster.planner.propose import propose
from muster.solver.search import solve
from muster.solver.words import body, paragraphs
from tests.support.planning import KINDS, fleet, given, policy
from tests.support.rollouts import World, by_chance
from tests.support.solving import demand, kind, scenarios
from tests.support.values import T0, record

load()
asked = scenarios()
loaded = frozenset(sys.modules)
seen = []
HARMLESS = ("object.", "sys._getframe", "builtins.id", "compile", "exec", "code.__new__", "marshal.")
sys.addaudithook(lambda event, args: seen.append((event, args)) if not event.startswith(HARMLESS) else None)
{plant}
for each in asked.values():
    answer = solve(each.kind, each.demand, load())
    because = answer.because if not isinstance(answer.because, tuple) else answer.because[0]
    paragraphs(because), body(because)
nodes, facts = fleet(list(KINDS) * 3)
wanted = policy()
plan = propose(given(nodes, facts, wanted))
words.lines(plan, lint(plan), 0)
plan.id
check([Subject(name, "train", each, None, True) for name, each in facts.items()], T0)
for decision in World(plan, by_chance(1, 0.02)).rounds(300):
    pass
machine.page()
append("c", 1, record(), GENESIS)
found = [str(event) + " " + str(args)[:80] for event, args in list(seen)]
new = sorted(name for name in frozenset(sys.modules) - loaded if name.startswith(("muster", "socket", "subprocess", "asyncio")))
print("\\n".join(found + new), end="")
"""


def watched(plant: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED.replace("{plant}", plant)],
        capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


def test_deciding_opens_no_file_no_socket_and_no_process() -> None:
    assert watched() == ""


def test_a_file_that_is_opened_would_be_seen() -> None:
    assert "open" in watched("open('/dev/null').close()")
