"""The reference page of the findings says what the code can find: every code, how bad it is, and whether the logs are asked for a cause."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from muster.health.cause import ASKED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "findings.md"


def judged() -> Iterator[tuple[str, str]]:
    """(code, severity) of every finding that the code makes."""
    for path in sorted((ROOT / "src/muster/health").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or len(call.args) < 2:
                continue
            code, severity = call.args[:2]
            if call.func.id in ("Seen", "Finding") and isinstance(code, ast.Constant) and isinstance(severity, ast.Attribute):  # fmt: skip
                yield str(code.value), severity.attr.lower()


def test_the_page_lists_every_finding_and_no_other() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (\w+) \| (.+) \| (yes|) ?\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [code for code, _, _, _ in rows] == sorted(code for code, _, _, _ in rows)
    assert {(code, severity) for code, severity, _, _ in rows} == set(judged())
    assert {code for code, _, _, asked in rows if asked} == ASKED
