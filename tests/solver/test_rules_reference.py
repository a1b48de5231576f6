"""The reference page of the rules says what the code has: every rule, its family, and what must hold."""

import re
from pathlib import Path

from muster.solver.registry import RULES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"


def rows() -> list[str]:
    """The rows of the page's table as they must be, in the order in which a refusal is told."""
    found = []
    for rule in RULES:
        says = (rule.judge.__doc__ or "").split("\n\n")[0]
        family = rule.judge.__module__.rpartition(".")[2]
        found.append(f"| `{rule.name}` | {family} | {' '.join(says.split())} |")
    return found


def test_the_page_lists_every_rule_as_it_is() -> None:
    listed = re.findall(r"^\| `[a-z-]+` \|.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == rows(), "put these rows into the page:\n" + "\n".join(rows())
