"""The page on validation says what the code does: its tests, its figures, its bounds."""

import re
from pathlib import Path

from muster.backends.validators import builtin, command
from muster.health import floors
from tests.support.gpus import PROGRAM

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/validation.md").read_text(encoding="utf-8")
TEXT = PROGRAM.read_text(encoding="utf-8")


def test_the_page_lists_the_tests_in_their_order() -> None:
    (named,) = re.findall(r"for each in \(([a-z, ]+)\)\}", TEXT)
    rows = re.findall(r"^\| `([a-z]+)` \| ", PAGE, re.MULTILINE)
    assert rows == named.split(", ")


def test_the_page_names_every_figure() -> None:
    assert set(re.findall(r"`([a-z0-9]+_(?:tflops|gbps))`", PAGE)) == set(builtin.METRICS)


def test_the_page_says_the_bounds_of_the_code() -> None:
    defaults = dict(re.findall(r'\("--([a-z-]+)", ([0-9.]+),', TEXT))
    for option, words in (
        ("deadline-s", "(120 s)"), ("ready-wait-s", "up to 180 s"), ("load-s", "for 3 s on all"), ("matmul-n", "4096 x 4096"),
        ("sweep-s", "after 20 s"), ("memory-share", "90 % of the free memory"),
    ):  # fmt: skip
        value = float(defaults[option])
        assert f"{value * 100:g} %" in words if value < 1 else f"{value:g}" in words
        assert words in PAGE
    assert f"fewer than {floors.NODES_LEAST} nodes" in PAGE
    assert f"less {floors.MARGIN:.0%}".replace("%", " %") in PAGE
    assert f"It may take {command.LIMIT_S} s" in PAGE


def test_the_page_does_not_claim_hardware_that_nobody_had() -> None:
    assert "Not yet run on hardware" in PAGE
