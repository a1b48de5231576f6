"""What older releases kept of looks, read for the last time: each node's last look and its history, in the forms 1 and 2 of the tables.

Changes nothing; the store writes what is read here in today's form.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.backends import _codec
from muster.model.fact import Fact, NodeFacts, Unknown
from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """A node's last look and its history, oldest first."""

    look: NodeFacts
    history: tuple[Fact, ...]


FIRST_TABLES = ("facts", "fact_history")
SECOND_TABLES = ("fact_parts", "fact_looks", "fact_firsts")
"""What each form had of its own; the changes of form 2, `fact_changes`, are called `OLD_CHANGES` while they are read."""

OLD_CHANGES = "old_fact_changes"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def first(on: sqlite3.Connection) -> Iterator[Kept]:
    """Form 1 held each node's facts as one text and each change as a row of texts. Raises ValueError or TypeError for what it never wrote."""
    for node, body in on.execute("SELECT node, body FROM facts ORDER BY node").fetchall():
        rows = on.execute(
            "SELECT path, value, source, observed_at FROM fact_history WHERE node = ? ORDER BY serial", (node,)
        )
        past = tuple(Fact(p, _codec.value_from(json.loads(v)), s, _codec.time_of(at)) for p, v, s, at in rows)
        yield Kept(_codec.facts_from(body), past)


def second(on: sqlite3.Connection) -> Iterator[Kept]:
    """Form 2 held parts with their keys, and beside them the momentary values. Raises ValueError or TypeError for what it never wrote."""
    rows = on.execute(
        "SELECT no, node, observed_at, trouble, parts, momentary FROM fact_looks ORDER BY node"
    ).fetchall()
    for no, node, observed_at, trouble, parts, momentary in rows:
        seen = _codec.time_of(observed_at)
        facts: dict[str, Fact] = {}
        for part, _, at in json.loads(parts):
            source, values = _part(on, part)
            facts |= _facts(values, source, seen if at is None else _codec.time_of(at), momentary=False)
        for source, at, values in json.loads(momentary):
            facts |= _facts(values, source, seen if at is None else _codec.time_of(at), momentary=True)
        look = NodeFacts(node, seen, facts, None if trouble is None else Unknown(trouble))
        yield Kept(look, tuple(_second_history(on, no)))


def _part(on: sqlite3.Connection, part: int) -> tuple[str, Mapping[str, Any]]:
    (body,) = on.execute("SELECT body FROM fact_parts WHERE id = ?", (part,)).fetchone() or ("[]",)
    source, values = json.loads(body)
    return source, values


def _facts(values: Mapping[str, Any], source: str, at: datetime, *, momentary: bool) -> Mapping[str, Fact]:
    return {path: Fact(path, _codec.value_from(value), source, at, momentary) for path, value in values.items()}


def _second_history(on: sqlite3.Connection, no: int) -> Iterator[Fact]:
    found: dict[str, Fact] = {}
    for part, at in on.execute("SELECT part, at FROM fact_firsts WHERE node = ?", (no,)).fetchall():
        source, values = _part(on, part)
        found |= _facts(values, source, _time(at), momentary=False)
    yield from (found[path] for path in sorted(found) if not isinstance(found[path].value, Unknown))
    rows = on.execute(
        "SELECT c.seq, s.source, s.shape, m.member, c.at, c.value FROM old_fact_changes c JOIN fact_shapes s ON s.id = c.shape "
        "LEFT JOIN fact_members m ON m.id = c.member WHERE c.node = ?",
        (no,),
    )
    changed: list[tuple[int, Fact]] = []
    for seq, source, shape, member, at, text in rows:
        path = shape if member is None else shape.replace("[]", f"[{member}]", 1)
        changed.append((seq, Fact(path, _codec.value_from(json.loads(text)), source, _time(at))))
    yield from (fact for _, fact in sorted(changed, key=lambda each: (each[0], each[1].path)))


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
