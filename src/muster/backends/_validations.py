"""What validations came to, in a table of a SQL database, the last ten of each node: floors are learnt from the last, people compare a few.

The table came after the others and stands by itself: a release that does not know it leaves it alone.
"""

import json
import sqlite3
from collections.abc import Callable
from typing import Any

from muster.backends import _codec
from muster.model.validation import Validated
from muster.model.verdict import Degraded, Fail, Pass, Skipped, Undecided, Verdict, word

TABLE = """
CREATE TABLE IF NOT EXISTS validations (
  serial INTEGER PRIMARY KEY, node TEXT NOT NULL, at TEXT NOT NULL, body TEXT NOT NULL)
"""

KEPT = 10

_WORDS: dict[str, Callable[[str], Verdict]] = {word(kind("")): kind for kind in (Pass, Degraded, Fail, Undecided)}


def save(on: sqlite3.Connection, validated: Validated) -> None:
    """Add one, in the transaction of the caller, and let go of the node's oldest."""
    body = {
        "validator": validated.validator, "kind": validated.kind, "driver": validated.driver, "verdict": word(validated.verdict),
        "why": _why(validated.verdict), "figures": dict(validated.figures), "under": validated.under,
    }  # fmt: skip
    row = (validated.node, _codec.text_of(validated.at), _codec.json_of(body))
    on.execute("INSERT INTO validations (node, at, body) VALUES (?, ?, ?)", row)
    on.execute(
        "DELETE FROM validations WHERE node = ? AND serial NOT IN "
        "(SELECT serial FROM validations WHERE node = ? ORDER BY serial DESC LIMIT ?)",
        (validated.node, validated.node, KEPT),
    )


def load(on: sqlite3.Connection, broken: Callable[[str, Exception], Exception]) -> tuple[Validated, ...]:
    """All that are kept, in the order in which they were saved. Raises what `broken` makes for content that was not written here."""
    rows = on.execute("SELECT node, at, body FROM validations ORDER BY serial").fetchall()
    try:
        return tuple(_of(node, at, json.loads(body)) for node, at, body in rows)
    except (ValueError, TypeError, KeyError) as error:
        raise broken("a validation", error) from error


def _of(node: str, at: str, body: dict[str, Any]) -> Validated:
    verdict = _WORDS[body["verdict"]](str(body["why"]))
    figures = {str(metric): float(value) for metric, value in body["figures"].items()}
    kind, driver = str(body["kind"]), str(body["driver"])
    return Validated(
        node, _codec.time_of(at), str(body["validator"]), kind, driver, verdict, figures, str(body["under"])
    )


def _why(verdict: Verdict) -> str:
    return "" if isinstance(verdict, Skipped) else verdict.why
