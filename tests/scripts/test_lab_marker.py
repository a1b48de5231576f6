"""Tests of the lab are skipped by name where they cannot run, and never silently once the lab is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SUITE = """
import pytest

@pytest.mark.lab("no-such-program")
def test_that_needs_the_lab():
    pass

def test_that_needs_nothing():
    pass
"""


def run_suite(folder: Path, lab: str) -> str:
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "tests/conftest.py", folder / "tests")
    (folder / "tests/test_suite.py").write_text(SUITE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**os.environ, "MUSTER_LAB": lab},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_without_the_lab_its_tests_are_skipped_by_name(tmp_path: Path) -> None:
    said = run_suite(tmp_path, lab="no")
    assert "SKIPPED tests/test_suite.py::test_that_needs_the_lab - " in said
    assert "1 passed, 1 skipped" in said.splitlines()[-1]


@pytest.mark.skipif(os.getuid() != 0, reason="only root installs the lab")
def test_in_an_installed_lab_a_missing_program_is_a_failure(tmp_path: Path) -> None:
    said = run_suite(tmp_path, lab="yes")
    assert "still lacks no-such-program" in said
    assert "1 passed" in said.splitlines()[-1]
    assert "1 failed" in said.splitlines()[-1] or "1 error" in said.splitlines()[-1]
