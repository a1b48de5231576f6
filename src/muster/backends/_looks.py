"""What was seen, in tables of a SQL database: how looks become rows and come back, so that an unchanged look costs the compare of a few hashes.

A look is cut into *parts*: the lasting facts of one source, those of a list (`gpu[..]`) apart from the others. A part is kept once
under the hash of its content, however many nodes show it, and is read only when somebody asks for one of its facts. Momentary values stand in
the look's own row. The history holds the parts of a node's first look, and after it a row of numbers and the value for each change.
"""

import json
import sqlite3
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from muster.backends import _codec
from muster.model.fact import ByKind, Fact, FactValue, NodeFacts, Unknown, kind_of

TABLES = """
CREATE TABLE IF NOT EXISTS fact_parts (
  id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, refs INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fact_looks (
  no INTEGER PRIMARY KEY, node TEXT NOT NULL UNIQUE, observed_at TEXT NOT NULL, trouble TEXT, seq INTEGER NOT NULL, parts TEXT NOT NULL,
  momentary TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fact_firsts (
  node INTEGER NOT NULL, part INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (node, part)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fact_changes (
  node INTEGER NOT NULL, seq INTEGER NOT NULL, shape INTEGER NOT NULL, member INTEGER NOT NULL, at INTEGER NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY (node, seq, shape, member)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fact_shapes (
  id INTEGER PRIMARY KEY, source TEXT NOT NULL, shape TEXT NOT NULL, UNIQUE (source, shape));
CREATE TABLE IF NOT EXISTS fact_members (id INTEGER PRIMARY KEY, member TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS gpu_counts (
  node INTEGER NOT NULL, at INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (node, at)) WITHOUT ROWID
"""
"""Statements, each ended by a semicolon. `refs` counts the looks and first looks that show a part; times are microseconds since 1970."""

_HASH_BYTES = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_NO_MEMBER = 0
_GPU_COUNT = "gpu.count"

Broken = Callable[[str, Exception], Exception]
"""Makes the error for stored content that cannot be what was written: what it is, and what was found."""


class Part:
    """The content of a part: its source and path -> value, decoded when first asked for. `no` is its number in the store."""

    __slots__ = ("_body", "_broken", "_paths", "_values", "no", "source")

    def __init__(self, no: int, body: str, broken: Broken) -> None:
        self.no = no
        self._body: str | None = body
        self._broken = broken
        self._values: dict[str, Any] = {}
        self._paths: tuple[str, ...] | None = None
        self.source = ""

    def paths(self) -> tuple[str, ...]:
        """Its paths."""
        if self._paths is None:
            self._paths = tuple(self.values())
        return self._paths

    def values(self) -> Mapping[str, Any]:
        """Path -> value as JSON has it."""
        if self._body is not None:
            try:
                source, values = json.loads(self._body)
                if not isinstance(source, str) or not isinstance(values, dict):
                    raise ValueError("it does not hold a part of a look")
            except (ValueError, TypeError) as error:
                raise self._broken("a part of a look", error) from error
            self.source, self._values, self._body = source, values, None
        return self._values

    def fact(self, path: str, at: datetime, *, momentary: bool = False) -> Fact:
        """One of its facts, seen at `at`."""
        raw = self.values()[path]
        if raw.__class__ is str or raw.__class__ is int or raw.__class__ is bool:
            return Fact(path, raw, self.source, at, momentary)
        try:
            return Fact(path, _codec.value_from(raw), self.source, at, momentary)
        except ValueError as error:
            raise self._broken(f"the fact {path}", error) from error


class Facts(ByKind):
    """A node's facts by path, read when asked for. Equal to any mapping with the same facts."""

    __slots__ = ("_broken", "_momentary", "_observed", "_own", "_parts")

    def __init__(
        self, parts: Mapping[str, Sequence[tuple[Part, datetime]]], momentary: str, observed: datetime, broken: Broken
    ) -> None:
        self._parts = parts
        self._momentary = momentary
        self._observed = observed
        self._broken = broken
        self._own: list[tuple[Part, datetime]] | None = None

    def _passing(self) -> list[tuple[Part, datetime]]:
        if self._own is None:
            try:
                self._own = [
                    (
                        Part(0, json.dumps([source, values]), self._broken),
                        self._observed if at is None else _codec.time_of(at),
                    )
                    for source, at, values in json.loads(self._momentary)
                ]
            except (ValueError, TypeError) as error:
                raise self._broken("the momentary values of a look", error) from error
        return self._own

    def __getitem__(self, path: str) -> Fact:
        for part, at in self._parts.get(kind_of(path), ()):
            if path in part.values():
                return part.fact(path, at)
        for part, at in self._passing():
            if path in part.values():
                return part.fact(path, at, momentary=True)
        raise KeyError(path)

    def __iter__(self) -> Iterator[str]:
        for parts in (*self._parts.values(), self._passing()):
            for part, _ in parts:
                yield from part.paths()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self._parts) or bool(self._passing())

    def paths_of(self, kind: str) -> tuple[str, ...]:
        found = [part.paths() for part, _ in self._parts.get(kind, ())]
        if not kind or f"{kind}[" in self._momentary:
            found.append(tuple(p for part, _ in self._passing() for p in part.paths() if kind_of(p) == kind))
        return found[0] if len(found) == 1 else tuple(path for paths in found for path in paths)

    def token(self, kind: str) -> Hashable:
        is_momentary = not kind or f"{kind}[" in self._momentary
        return (*(part.no for part, _ in self._parts.get(kind, ())), self._momentary if is_momentary else "")


@dataclass(slots=True)
class _Row:
    """A node's row before and after a save."""

    no: int
    observed_at: str = ""
    trouble: str | None = None
    seq: int = 0
    parts: str = "[]"
    momentary: str = "[]"


@dataclass(slots=True)
class _Work:
    """What one save collects, to be written at its end."""

    ids: dict[bytes, int] = field(default_factory=dict)
    refs: dict[int, int] = field(default_factory=dict)
    bodies: dict[int, str] = field(default_factory=dict)
    shapes: dict[tuple[str, str], int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    firsts: list[tuple[int, int, int]] = field(default_factory=list)
    changes: list[tuple[int, int, int, int, int, str]] = field(default_factory=list)


def save(on: sqlite3.Connection, looks: Sequence[NodeFacts], broken: Broken) -> None:
    """Keep these looks, inside the caller's transaction. See `ports.Store.save_facts`."""
    work, met = _Work(), set[str]()
    for look in looks:
        if look.node in met:  # its history must be readable before more is added to it
            _write(on, work)
            work, met = _Work(), set()
        met.add(look.node)
        _save_one(on, look, work, broken)
    _write(on, work)


def _write(on: sqlite3.Connection, work: _Work) -> None:
    on.executemany(
        "UPDATE fact_parts SET refs = refs + ? WHERE id = ?", [(n, part) for part, n in work.refs.items() if n]
    )
    on.executemany(
        "DELETE FROM fact_parts WHERE id = ? AND refs <= 0", [(part,) for part, n in work.refs.items() if n < 0]
    )
    on.executemany("INSERT INTO fact_firsts VALUES (?, ?, ?)", work.firsts)
    on.executemany("INSERT INTO fact_changes VALUES (?, ?, ?, ?, ?, ?)", work.changes)


def _save_one(on: sqlite3.Connection, look: NodeFacts, work: _Work, broken: Broken) -> None:
    row = _row(on, look.node)
    is_new = row is None
    if row is None:
        row = _Row(
            on.execute("INSERT INTO fact_looks VALUES (NULL, ?, '', NULL, 0, '[]', '[]')", (look.node,)).lastrowid or 0
        )
    if look.trouble is not None and not is_new:
        old = _node_facts(on, look.node, row, broken)
        seen = {path: fact for path, fact in look.facts.items() if not isinstance(fact.value, Unknown)}
        look = NodeFacts(look.node, old.observed_at, {**old.facts, **seen} if seen else old.facts, look.trouble)
    elif look.partial and not is_new:
        asked = {fact.source for fact in look.facts.values()}
        old = _node_facts(on, look.node, row, broken)
        others = {path: fact for path, fact in old.facts.items() if fact.source not in asked}
        look = NodeFacts(look.node, look.observed_at, {**others, **look.facts}, look.trouble)
    groups, momentary = _cut(look)
    before = {int(part) for part, _, _ in json.loads(row.parts)}
    new_parts = [(_part_id(on, body, work), kind, at) for kind, at, body in groups]
    after = {part for part, _, _ in new_parts}
    if before != after:
        for part in after - before:
            work.refs[part] = work.refs.get(part, 0) + 1
        for part in before - after:
            work.refs[part] = work.refs.get(part, 0) - 1
        _note_count(on, row.no, look, broken)
        row.seq = _note_changes(on, row, look, (before, after), work, broken)
    on.execute(
        "UPDATE fact_looks SET observed_at = ?, trouble = ?, seq = ?, parts = ?, momentary = ? WHERE no = ?",
        (
            _codec.text_of(look.observed_at), look.trouble.why if look.trouble else None, row.seq,
            json.dumps([[part, kind, at] for part, kind, at in new_parts], separators=(",", ":")), momentary, row.no,
        ),
    )  # fmt: skip


def _cut(look: NodeFacts) -> tuple[list[tuple[str, str | None, str]], str]:
    """The look's parts as (kind, time where it is not the look's, body), and the text of its momentary values."""
    lasting: dict[tuple[str, datetime, str], dict[str, Any]] = {}
    passing: dict[tuple[str, datetime], dict[str, Any]] = {}
    for path, fact in look.facts.items():
        value: Any = fact.value
        if value.__class__ is not str and value.__class__ is not int:
            value = _codec.value_json(value)
        if fact.momentary:
            passing.setdefault((fact.source, fact.observed_at), {})[path] = value
        else:
            lasting.setdefault((fact.source, fact.observed_at, kind_of(path)), {})[path] = value
    groups = [
        (kind, None if at == look.observed_at else _codec.text_of(at), _codec.json_of([source, values]))
        for (source, at, kind), values in sorted(lasting.items(), key=lambda item: (item[0][0], item[0][2], item[0][1]))
    ]
    rows = [
        [source, None if at == look.observed_at else _codec.text_of(at), values]
        for (source, at), values in passing.items()
    ]
    return groups, _codec.json_of(rows)


def _part_id(on: sqlite3.Connection, body: str, work: _Work) -> int:
    digest = blake2b(body.encode(), digest_size=_HASH_BYTES).digest()
    known = work.ids.get(digest)
    if known is None:
        found = on.execute("SELECT id FROM fact_parts WHERE hash = ?", (digest,)).fetchone()
        if found is None:
            added = on.execute("INSERT INTO fact_parts VALUES (NULL, ?, 0, ?)", (digest, body)).lastrowid
            known = added or 0
        else:
            known = int(found[0])
        work.ids[digest] = known
    return known


def _note_changes(
    on: sqlite3.Connection, row: _Row, look: NodeFacts, parts: tuple[set[int], set[int]], work: _Work, broken: Broken
) -> int:
    """Put what changed into the history; the number of the node's last entry after it."""
    before, after = parts
    if not before and row.seq == 0:
        at = _micros(look.observed_at)
        for part in sorted(after):
            work.firsts.append((row.no, part, at))
            work.refs[part] = work.refs.get(part, 0) + 1
        return 1
    old: dict[str, Any] = {}
    for part in before - after:
        old |= _part(on, part, broken).values()
    last: dict[str, str] | None = None
    seq = row.seq + 1
    noted = len(work.changes)
    for part in sorted(after - before):
        content = _part(on, part, broken)
        for path, value in sorted(content.values().items()):
            if isinstance(value, dict) or _is(old.get(path), value):
                continue
            text = _codec.json_of(value)
            if path not in old or isinstance(old[path], dict):
                # It was unknown, or not there: a change only when it is another value than the last one known.
                last = _last_known(on, row.no, broken) if last is None else last
                if last.get(path) == text:
                    continue
            shape, member = _split(path)
            at = _micros(look.facts[path].observed_at)
            work.changes.append(
                (row.no, seq, _shape_id(on, content.source, shape, work), _member_id(on, member, work), at, text)
            )
    return seq if len(work.changes) > noted else row.seq


def _is(one: Any, other: Any) -> bool:
    return one.__class__ is other.__class__ and one == other  # True == 1 in Python, not in a fact


def _last_known(on: sqlite3.Connection, no: int, broken: Broken) -> dict[str, str]:
    return {fact.path: _codec.json_of(_codec.value_json(fact.value)) for fact in _history(on, no, broken)}


def load(on: sqlite3.Connection, broken: Broken) -> tuple[NodeFacts, ...]:
    """The last look of every node, by name; their facts are read when they are asked for."""
    parts = {part: Part(part, body, broken) for part, body in on.execute("SELECT id, body FROM fact_parts")}
    rows = on.execute("SELECT node, observed_at, trouble, parts, momentary FROM fact_looks ORDER BY node")
    found = []
    for node, observed_at, trouble, listed, momentary in rows:
        try:
            found.append(_made(node, observed_at, trouble, listed, momentary, parts.__getitem__, broken))
        except (ValueError, TypeError, KeyError) as error:
            raise broken(f"the facts of {node}", error) from error
    return tuple(found)


def _made(
    node: str,
    observed_at: str,
    trouble: str | None,
    listed: str,
    momentary: str,
    part_of: Callable[[int], Part],
    broken: Broken,
) -> NodeFacts:
    observed = _codec.time_of(observed_at)
    parts: dict[str, list[tuple[Part, datetime]]] = {}
    for part, kind, at in json.loads(listed):
        parts.setdefault(kind, []).append((part_of(part), observed if at is None else _codec.time_of(at)))
    return NodeFacts(
        node, observed, Facts(parts, momentary, observed, broken), None if trouble is None else Unknown(trouble)
    )


def _node_facts(on: sqlite3.Connection, node: str, row: _Row, broken: Broken) -> NodeFacts:
    return _made(
        node, row.observed_at, row.trouble, row.parts, row.momentary, lambda part: _part(on, part, broken), broken
    )


def _row(on: sqlite3.Connection, node: str) -> _Row | None:
    found = on.execute(
        "SELECT no, observed_at, trouble, seq, parts, momentary FROM fact_looks WHERE node = ?", (node,)
    ).fetchone()
    return None if found is None else _Row(*found)


def _part(on: sqlite3.Connection, part: int, broken: Broken) -> Part:
    found = on.execute("SELECT body FROM fact_parts WHERE id = ?", (part,)).fetchone()
    if found is None:
        raise broken(f"part {part} of a look", KeyError(part))
    return Part(part, found[0], broken)


def history(on: sqlite3.Connection, node: str, broken: Broken) -> tuple[Fact, ...]:
    """See `ports.Store.history`."""
    row = _row(on, node)
    return () if row is None else _history(on, row.no, broken)


def _history(on: sqlite3.Connection, no: int, broken: Broken) -> tuple[Fact, ...]:
    found: list[Fact] = []
    for part, at in on.execute("SELECT part, at FROM fact_firsts WHERE node = ?", (no,)).fetchall():
        content = _part(on, part, broken)
        found += [content.fact(path, _time(at)) for path in content.values()]
    found = sorted((fact for fact in found if not isinstance(fact.value, Unknown)), key=lambda fact: fact.path)
    rows = on.execute(
        "SELECT c.seq, s.source, s.shape, m.member, c.at, c.value FROM fact_changes c JOIN fact_shapes s ON s.id = c.shape "
        "LEFT JOIN fact_members m ON m.id = c.member WHERE c.node = ?",
        (no,),
    )
    changed: list[tuple[int, Fact]] = []
    for seq, source, shape, member, at, text in rows:
        path = shape if member is None else shape.replace("[]", f"[{member}]", 1)
        try:
            value: FactValue = _codec.value_from(json.loads(text))
        except ValueError as error:
            raise broken(f"the history of {path}", error) from error
        changed.append((seq, Fact(path, value, source, _time(at))))
    changed.sort(key=lambda each: (each[0], each[1].path))
    return (*found, *(fact for _, fact in changed))


def _split(path: str) -> tuple[str, str | None]:
    """A path without the key of its list member, and the key: `gpu[].ecc.mode`, `GPU-1f`."""
    start, end = path.find("["), path.find("]")
    return (path, None) if not 0 <= start < end else (path[: start + 1] + path[end:], path[start + 1 : end])


def _shape_id(on: sqlite3.Connection, source: str, shape: str, work: _Work) -> int:
    key = (source, shape)
    if key not in work.shapes:
        on.execute("INSERT OR IGNORE INTO fact_shapes VALUES (NULL, ?, ?)", key)
        work.shapes[key] = on.execute("SELECT id FROM fact_shapes WHERE source = ? AND shape = ?", key).fetchone()[0]
    return work.shapes[key]


def _member_id(on: sqlite3.Connection, member: str | None, work: _Work) -> int:
    if member is None:
        return _NO_MEMBER
    if member not in work.members:
        on.execute("INSERT OR IGNORE INTO fact_members VALUES (NULL, ?)", (member,))
        work.members[member] = on.execute("SELECT id FROM fact_members WHERE member = ?", (member,)).fetchone()[0]
    return work.members[member]


def _note_count(on: sqlite3.Connection, no: int, look: NodeFacts, broken: Broken) -> None:
    """How many GPUs a node has had is asked of all nodes at each check; in the history it would have to be looked for among millions of rows."""
    fact = look.facts.get(_GPU_COUNT)
    if fact is None or fact.value.__class__ is not int:
        return
    last = on.execute("SELECT count FROM gpu_counts WHERE node = ? ORDER BY at DESC LIMIT 1", (no,)).fetchone()
    past = [] if last else [each for each in _history(on, no, broken) if each.path == _GPU_COUNT]  # of an older release
    if last is None or last[0] != fact.value:
        rows = [(no, _micros(each.observed_at), each.value) for each in (*past, fact)]
        on.executemany("INSERT OR REPLACE INTO gpu_counts VALUES (?, ?, ?)", rows)


def most_gpus(on: sqlite3.Connection, since: datetime) -> Mapping[str, int]:
    """See `ports.Store.most_gpus`."""
    rows = on.execute(
        "SELECT l.node, max(c.count) FROM gpu_counts c JOIN fact_looks l ON l.no = c.node WHERE c.at >= "
        "coalesce((SELECT max(b.at) FROM gpu_counts b WHERE b.node = c.node AND b.at <= ?), 0) GROUP BY c.node",
        (_micros(since),),
    )
    return dict(rows.fetchall())


def add_history(on: sqlite3.Connection, node: str, facts: Sequence[Fact]) -> None:
    """Put changes that an older form of the store held, oldest first, before all others of a node that has a look."""
    work = _Work()
    row = _row(on, node)
    assert row is not None
    for seq, fact in enumerate(facts, start=1):
        shape, member = _split(fact.path)
        text = _codec.json_of(_codec.value_json(fact.value))
        ids = (_shape_id(on, fact.source, shape, work), _member_id(on, member, work))
        work.changes.append((row.no, seq, *ids, _micros(fact.observed_at), text))
    on.executemany("INSERT INTO fact_changes VALUES (?, ?, ?, ?, ?, ?)", work.changes)
    counts = [(row.no, _micros(fact.observed_at), fact.value) for fact in facts if fact.path == _GPU_COUNT]
    on.executemany("INSERT OR IGNORE INTO gpu_counts VALUES (?, ?, ?)", counts)
    for (part,) in on.execute("SELECT part FROM fact_firsts WHERE node = ?", (row.no,)).fetchall():
        on.execute("UPDATE fact_parts SET refs = refs - 1 WHERE id = ?", (part,))
    on.execute("DELETE FROM fact_firsts WHERE node = ?", (row.no,))
    on.execute("UPDATE fact_looks SET seq = ? WHERE no = ?", (len(facts), row.no))


def _micros(at: datetime) -> int:
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no time zone")
    return (at - _EPOCH) // _MICRO


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
