"""The reference page of the findings says what the code can find: every code, how bad it is, and whether the logs are asked for a cause."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from muster.health.codes import CODES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "findings.md"


def judged() -> Iterator[tuple[str, str]]:
    """(code, severity) of every finding that the code makes."""
    for path in (*sorted((ROOT / "src/muster/health").rglob("*.py")), ROOT / "src/muster/control/planning.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or len(call.args) < 2:
                continue
            code, severity = call.args[:2]
            if call.func.id in ("Seen", "Finding") and isinstance(code, ast.Constant) and isinstance(severity, ast.Attribute):  # fmt: skip
                yield str(code.value), severity.attr.lower()


def test_every_judgement_has_a_code_of_the_list_and_every_code_a_judgement() -> None:
    assert {(each.code, each.severity.value) for each in CODES.values()} == set(judged())


def test_the_page_lists_every_finding_as_the_code_has_it_and_no_other() -> None:
    rows = re.findall(r"^\| `[a-z-]+` \| .*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    wanted = [
        f"| `{each.code}` | {each.severity.value} | {each.meaning} | {'yes ' if each.cause_asked else ' '}|"
        for each in CODES.values()
    ]
    assert rows == wanted, "put these rows into the page:\n" + "\n".join(wanted)


def test_every_code_is_looked_for_by_a_test() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    assert [code for code in CODES if not any(f'"{code}"' in text for text in texts)] == []
