"""The rules of the architecture hold, and each of them can fail.

A linter that passes proves nothing until it has been seen red: each rule R1-R8 of pyproject.toml gets one violation
planted in a copy of the tree, and the linter must name that rule and that import.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

R1, R2, R3 = (
    "R1 one direction of imports",
    "R2 the pure core imports no I/O",
    "R3 only a bootstrap names a concrete backend",
)
R3B, R4 = "R3b only a bootstrap discovers", "R4 backends of one kind do not know each other"
R5, R6 = "R5 detectors do not know each other", "R6 the agent stands on node alone"
R2B = "R2b the program that exercises GPUs is sent, never imported"
R6B, R7 = "R6b what runs on a node imports nothing of ours", "R7 no cycles"

# What is planted: for each rule, files (their text) and a line of the linter's answer that shows it was understood.
# Files that a violation only needs to exist are empty.
PLANTS: tuple[tuple[str, Mapping[str, str], str], ...] = (
    (
        R1,
        {"planner/planted.py": "import muster.control.planted", "control/planted.py": ""},
        "muster.planner.planted -> muster.control.planted",
    ),
    (
        R1,
        {"health/planted.py": "import muster.solver.planted_rule", "solver/planted_rule.py": ""},
        "muster.health.planted -> muster.solver.planted_rule",
    ),
    (R2, {"planner/planted_clock.py": "import time"}, "muster.planner.planted_clock -> time"),
    (
        R2,
        {"solver/planted.py": "import muster.knowledge.loader", "knowledge/loader.py": ""},
        "muster.solver.planted -> muster.knowledge.loader",
    ),
    (
        R2,
        {"facts/planted.py": "import muster.knowledge.planted_helper", "knowledge/planted_helper.py": "import os"},
        "muster.knowledge.planted_helper -> os",
    ),
    (
        R2B,
        {"backends/planted_sends.py": "import muster.node.validate"},
        "muster.backends.planted_sends -> muster.node.validate",
    ),
    (
        R3,
        {"control/planted_use.py": "import muster.backends.packages.planted", "backends/packages/planted.py": ""},
        "muster.control.planted_use -> muster.backends.packages.planted",
    ),
    (
        R3B,
        {"control/planted_discovers.py": "import muster.discovery", "discovery.py": ""},
        "muster.control.planted_discovers -> muster.discovery",
    ),
    (
        R4,
        {
            "backends/packages/planted_one.py": "import muster.backends.packages.planted_two",
            "backends/packages/planted_two.py": "",
        },
        "muster.backends.packages.planted_one -> muster.backends.packages.planted_two",
    ),
    (
        R5,
        {
            "health/__init__.py": "",
            "health/detectors/__init__.py": "",
            "health/detectors/planted_one.py": "import muster.health.detectors.planted_two",
            "health/detectors/planted_two.py": "",
        },
        "muster.health.detectors.planted_one -> muster.health.detectors.planted_two",
    ),
    (
        R6,
        {"agent/__init__.py": "", "agent/planted.py": "import muster.solver"},
        "muster.agent.planted -> muster.solver",
    ),
    (R6, {"agent/__init__.py": "", "agent/planted_db.py": "import sqlite3"}, "muster.agent.planted_db -> sqlite3"),
    (R6B, {"node/planted.py": "import muster.model"}, "muster.node.planted -> muster.model"),
    (
        R7,
        {
            "control/planted_a.py": "import muster.control.planted_b",
            "control/planted_b.py": "import muster.control.planted_a",
        },
        ".planted_b -> .planted_a",
    ),
)


def lint_imports(tree: Path) -> tuple[int, str]:
    done = subprocess.run(
        [BIN / "lint-imports", "--no-cache", "--no-logo"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def copy_of_the_tree(target: Path) -> Path:
    shutil.copytree(ROOT / "src", target / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", target)
    return target


def plant(tree: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = tree / "src/muster" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or text:
            path.write_text(text + "\n", encoding="utf-8")


def section(answer: str, rule: str) -> str:
    """What the linter says under the heading of one broken contract."""
    _before, *parts = re.split(r"\n(R\d[^\n]*)\n-+\n", answer)
    said = dict(zip(parts[::2], parts[1::2], strict=True))
    assert rule in said, f"{rule} was not broken:\n{answer}"
    return said[rule]


def test_the_tree_keeps_every_contract() -> None:
    code, answer = lint_imports(ROOT)
    assert code == 0, answer


@pytest.fixture(scope="module")
def answer_to_all_plants(tmp_path_factory: pytest.TempPathFactory) -> str:
    tree = copy_of_the_tree(tmp_path_factory.mktemp("planted"))
    for _rule, files, _line in PLANTS:
        plant(tree, files)
    code, answer = lint_imports(tree)
    assert code == 1, answer
    return answer


@pytest.mark.parametrize(("rule", "line"), [(rule, line) for rule, _files, line in PLANTS])
def test_a_planted_violation_breaks_its_contract(answer_to_all_plants: str, rule: str, line: str) -> None:
    assert line in section(answer_to_all_plants, rule)


def test_a_new_subpackage_without_a_place_breaks_the_layers(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    plant(tree, {"misc.py": ""})
    code, answer = lint_imports(tree)
    assert code == 1
    assert "muster.misc" in answer or "- misc" in answer, answer
