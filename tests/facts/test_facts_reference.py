"""The reference page of the facts says what the code has: every source, what it provides, its bounds, and when it is asked."""

import re
from pathlib import Path

from muster.discovery import discover
from muster.model.fact import FactSpec

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "facts.md"


def rows() -> list[str]:
    """The rows of the page's table as they must be."""
    found = []
    for spec in discover("muster.facts", "FACT").values():
        assert isinstance(spec, FactSpec)
        when = "at the end of a run" if spec.whole_only else "always"
        kept = "last value only" if spec.momentary else "yes"
        paths = ", ".join(f"`{path}`" for path in spec.provides)
        found.append(
            f"| `{spec.name}` | {paths} | {spec.deadline_s} s | {spec.cap_bytes // 1024} KiB | {when} | {kept} |"
        )
    return sorted(found)


def test_the_page_lists_every_source_as_it_is() -> None:
    listed = re.findall(r"^\| `[a-z_]+` \|.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == rows(), "put these rows into the page:\n" + "\n".join(rows())
