"""What was seen, in tables of a SQL database: how looks become rows, so that an unchanged look costs the compare of a few hashes.

A look is cut into *parts*: the facts of one source, those of a list (`gpu[..]`) apart from the others. A part is kept once under the hash of
its content, however many nodes show it. What no two nodes share (serials, a machine's id, the UUIDs by which a list names its GPUs) and
momentary values stand in the look's own row, so that ten thousand nodes of a fleet show a few dozen parts. The history holds a node's
first look, and after it a row of numbers and the value for each change. Reading is in `_parts`.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from muster.backends import _codec, _gpu_counts
from muster.backends._cut import Piece, pieces, told_in
from muster.backends._parts import (
    KEYED,
    OWN,
    PASSING,
    PASSING_LIST,
    SHARED,
    Broken,
    Facts,
    Listing,
    Part,
    Places,
    rows_of,
)
from muster.model.fact import GONE, Fact, FactValue, NodeFacts, Told, Unknown
from muster.model.frozen import dataclass

TABLES = (
    """
CREATE TABLE IF NOT EXISTS look_parts (
  id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, refs INTEGER NOT NULL, kind TEXT NOT NULL, mode INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS looks (
  no INTEGER PRIMARY KEY, node TEXT NOT NULL UNIQUE, observed_at TEXT NOT NULL, trouble TEXT, seq INTEGER NOT NULL, parts TEXT NOT NULL,
  own TEXT NOT NULL, passing TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS first_looks (node INTEGER PRIMARY KEY, at INTEGER NOT NULL, parts TEXT NOT NULL, own TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fact_changes (
  node INTEGER NOT NULL, seq INTEGER NOT NULL, shape INTEGER NOT NULL, member INTEGER NOT NULL, at INTEGER NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY (node, seq, shape, member)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fact_shapes (
  id INTEGER PRIMARY KEY, source TEXT NOT NULL, shape TEXT NOT NULL, UNIQUE (source, shape));
CREATE TABLE IF NOT EXISTS fact_members (id INTEGER PRIMARY KEY, member TEXT NOT NULL UNIQUE);
"""
    + _gpu_counts.TABLE
)
"""Statements, each ended by a semicolon. `refs` counts the looks and first looks that show a part; times are microseconds since 1970."""

_HASH_BYTES = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_NO_MEMBER = 0
_MOST_PARTS_READ = 4096
"""Of one save, kept decoded: more would be nodes that share nothing, which need each part once."""


@dataclass(slots=True)
class _Row:
    """A node's row before and after a save."""

    no: int
    observed_at: str = ""
    trouble: str | None = None
    seq: int = 0
    parts: str = "[]"
    own: str = ""
    passing: str = ""


@dataclass(slots=True)
class _Work:
    """What one save collects, to be written at its end, and what it need not read twice."""

    ids: dict[bytes, int] = field(default_factory=dict)
    refs: dict[int, int] = field(default_factory=dict)
    shapes: dict[tuple[str, str], int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    firsts: list[tuple[int, int, str, str]] = field(default_factory=list)
    changes: list[tuple[int, int, int, int, int, str]] = field(default_factory=list)
    read: dict[int, Part] = field(default_factory=dict)
    cut: dict[bytes, tuple["Piece", ...]] = field(default_factory=dict)
    same: dict[int, tuple[Told, Sequence["Piece"]]] = field(default_factory=dict)
    contents: dict[object, int] = field(default_factory=dict)
    own_sources: set[str] = field(default_factory=set)
    texts: dict[tuple[int, ...], str] = field(default_factory=dict)
    listed: dict[str, tuple[int, ...]] = field(default_factory=dict)
    differing: dict[tuple[int, int], "_Differences"] = field(default_factory=dict)


_Differences = tuple[tuple[Any, str | None, str], ...]
"""What differs between two contents: a path (or place of the member and what follows its key), the old value as JSON (None: it was not
known), the new one."""


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
        "UPDATE look_parts SET refs = refs + ? WHERE id = ?", [(n, part) for part, n in work.refs.items() if n]
    )
    on.executemany(
        "DELETE FROM look_parts WHERE id = ? AND refs <= 0", [(part,) for part, n in work.refs.items() if n < 0]
    )
    on.executemany("INSERT INTO first_looks VALUES (?, ?, ?, ?)", work.firsts)
    on.executemany("INSERT INTO fact_changes VALUES (?, ?, ?, ?, ?, ?)", work.changes)


def _save_one(on: sqlite3.Connection, look: NodeFacts, work: _Work, broken: Broken) -> None:
    row = _row(on, look.node)
    if row is None:
        added = on.execute("INSERT INTO looks VALUES (NULL, ?, '', NULL, 0, '[]', '', '')", (look.node,)).lastrowid
        row = _Row(added or 0)
    elif look.trouble is not None or look.partial:
        look = _joined(on, look, row, broken)
    cut = _cut(on, look, work)
    numbers = [piece.number for piece, _ in cut]
    parts = _parts_text(look, cut, work)
    own = _rows_text(cut, (KEYED, OWN))
    if parts != row.parts or own != row.own:
        _gpu_counts.note(on, row.no, look)
        before = _listed(row.parts, work)
        for part in numbers:
            work.refs[part] = work.refs.get(part, 0) + 1
        for part in before:
            work.refs[part] = work.refs.get(part, 0) - 1
        if row.seq == 0 and not before:
            row.seq = 1
            work.firsts.append((row.no, _micros(look.observed_at), parts, own))
            for part in numbers:
                work.refs[part] += 1
        else:
            row.seq = _note_changes(on, row, _After(cut, own), work, broken)
    on.execute(
        "UPDATE looks SET observed_at = ?, trouble = ?, seq = ?, parts = ?, own = ?, passing = ? WHERE no = ?",
        (
            _codec.text_of(look.observed_at), look.trouble.why if look.trouble else None, row.seq, parts, own,
            _rows_text(cut, (PASSING, PASSING_LIST)), row.no,
        ),
    )  # fmt: skip


def _joined(on: sqlite3.Connection, look: NodeFacts, row: _Row, broken: Broken) -> NodeFacts:
    """A look that does not say all, with what was known before."""
    old = _node_facts(on, look.node, row, broken)
    if look.trouble is not None:
        seen = {path: fact for path, fact in look.facts.items() if not isinstance(fact.value, Unknown)}
        return NodeFacts(look.node, old.observed_at, {**old.facts, **seen} if seen else old.facts, look.trouble)
    asked = {fact.source for fact in look.facts.values()}
    others = {path: fact for path, fact in old.facts.items() if fact.source not in asked}
    return NodeFacts(look.node, look.observed_at, {**others, **look.facts}, look.trouble)


_Cut = list[tuple[Piece, datetime]]
"""A look's pieces, each with when it was seen."""


def _cut(on: sqlite3.Connection, look: NodeFacts, work: _Work) -> _Cut:
    """The look's parts, in an order that depends on nothing but what was told."""
    found: _Cut = []
    for each in told_in(look):
        found += [(piece, each.observed_at) for piece in _numbered(on, each, work)]
    return found


def _numbered(on: sqlite3.Connection, told: Told, work: _Work) -> Sequence[Piece]:
    """What one source told, in parts with their numbers. What the sources of other nodes told as well is cut once."""
    digest = None
    # One text was read once, so the very values of one node are those of others; they are kept here, and so is their number.
    same = work.same.get(id(told.values))
    if same is not None and same[0].source == told.source:
        return same[1]
    if not told.momentary and told.source not in work.own_sources:
        digest = _digest(f"{told.source}\n{told.values!r}")
        known = work.cut.get(digest)
        if known is not None:
            work.same[id(told.values)] = (told, known)
            return known
    found = tuple(pieces(told))
    for piece in found:
        piece.number = _part_id(on, piece, work)
    if digest is not None:
        if all(piece.mode == SHARED for piece in found):
            work.cut[digest] = found
            work.same[id(told.values)] = (told, found)
        else:
            work.own_sources.add(told.source)
    return found


def _digest(shown: str) -> bytes:
    return blake2b(shown.encode(errors="surrogatepass"), digest_size=_HASH_BYTES).digest()


def _part_id(on: sqlite3.Connection, piece: Piece, work: _Work) -> int:
    content = _told_apart(piece)
    if content is None:
        return _id_of(on, piece, work)
    if content not in work.contents:
        work.contents[content] = _id_of(on, piece, work)
    return work.contents[content]


def _told_apart(piece: Piece) -> object:
    """The content of a list with keys of its own as a key of a dictionary, cheaper than its text; None where it is none.

    True == 1 in Python, and not in a fact.
    """
    if piece.mode != KEYED:
        return None
    members, places = piece.content
    if not {value.__class__ for member in members for value in member.values()} <= _APART:
        return None
    return piece.source, piece.kind, tuple(places), *[(tuple(member), tuple(member.values())) for member in members]


_APART = {str, Unknown, tuple}


def _id_of(on: sqlite3.Connection, piece: Piece, work: _Work) -> int:
    # The text by which Python shows a value tells all that a fact can hold apart, and costs a fifth of JSON.
    digest = _digest(f"{piece.kind}\n{piece.mode}\n{piece.source}\n{piece.content!r}")
    known = work.ids.get(digest)
    if known is None:
        found = on.execute("SELECT id FROM look_parts WHERE hash = ?", (digest,)).fetchone()
        if found is None:
            body = _json([piece.source, piece.content])
            row = (digest, piece.kind, piece.mode, body)
            known = on.execute("INSERT INTO look_parts VALUES (NULL, ?, 0, ?, ?, ?)", row).lastrowid or 0
        else:
            known = int(found[0])
        work.ids[digest] = known
    return known


_json = json.JSONEncoder(separators=(",", ":"), default=_codec.value_json).encode


def _parts_text(look: NodeFacts, cut: _Cut, work: _Work) -> str:
    seen = look.observed_at
    if any(at is not seen and at != seen for _, at in cut):
        return _json([(piece.number, None if at == seen else _codec.text_of(at)) for piece, at in cut])
    numbers = tuple(piece.number for piece, _ in cut)
    text = work.texts.get(numbers)
    if text is None:
        text = work.texts[numbers] = _json([(number, None) for number in numbers])
    return text


def _rows_text(cut: _Cut, modes: tuple[int, int]) -> str:
    return "\n".join([_json(piece.own) for piece, _ in cut if piece.mode in modes])


def _listed(parts: str, work: _Work) -> tuple[int, ...]:
    known = work.listed.get(parts)
    if known is None:
        known = work.listed[parts] = tuple(int(part) for part, _ in json.loads(parts))
    return known


@dataclass(frozen=True, slots=True)
class _After:
    """A look as it is after a save."""

    cut: _Cut
    own: str


def _note_changes(on: sqlite3.Connection, row: _Row, after: _After, work: _Work, broken: Broken) -> int:
    """Put what changed into the history; the number of the node's last entry after it."""
    found = _quick(on, row, after, work, broken)
    if found is None:
        old, new = _lasting_before(on, row, work, broken), _lasting_after(on, after, work, broken)
        found = tuple(_differences(old, new, work))
    seq, noted = row.seq + 1, len(work.changes)
    at = {piece.source: _micros(seen) for piece, seen in after.cut} if found else {}
    # What another source tells now, or this one in another place, has not gone.
    gone = {path: before for _, path, before, now in found if now == _GONE_TEXT}
    told = {path for _, path, before, now in found if before is None and now != _GONE_TEXT}
    when = max(at.values(), default=0)
    for source, path, before, now in found:
        if path in (told if now == _GONE_TEXT else ()) or (before is None and gone.get(path) == now):
            continue
        shape, member = _split(path)
        ids = (_shape_id(on, source, shape, work), _member_id(on, member, work))
        work.changes.append((row.no, seq, *ids, at.get(source, when), now))
    return seq if len(work.changes) > noted else row.seq


_GONE_TEXT = json.dumps({"unknown": GONE}, separators=(",", ":"))

_Shown = dict[tuple[str, str, int], list[tuple[Part, Any]]]
"""Parts with what the row has of them, by source, kind and mode."""


def _quick(
    on: sqlite3.Connection, row: _Row, after: _After, work: _Work, broken: Broken
) -> Sequence[tuple[str, str, str | None, str]] | None:
    """The differences where each part stands in the place of one of its kind, and the rows are alike; else None."""
    before = _listed(row.parts, work)
    if row.own != after.own or len(before) != len(after.cut):
        return None
    found: list[tuple[str, str, str | None, str]] = []
    for number, (piece, _) in zip(before, after.cut, strict=True):
        if number == piece.number:
            continue
        old = _part(on, number, work, broken)
        if piece.mode not in (SHARED, KEYED) or (old.source, old.kind, old.mode) != (
            piece.source, piece.kind, piece.mode,
        ):  # fmt: skip
            return None
        pair = _pair((old, piece.own), (_part(on, piece.number, work, broken), piece.own), work)
        if pair is None:
            return None
        found += [(piece.source, path, was, text) for path, was, text in pair]
    return found


def _lasting_before(on: sqlite3.Connection, row: _Row, work: _Work, broken: Broken) -> _Shown:
    parts = [_part(on, part, work, broken) for part in _listed(row.parts, work)]
    try:
        own = iter(rows_of(row.own, sum(part.mode in (KEYED, OWN) for part in parts)))
    except (ValueError, TypeError) as error:
        raise broken("the values of a look", error) from error
    return _shown((part, None if part.mode == SHARED else next(own)) for part in parts if part.mode < PASSING)


def _lasting_after(on: sqlite3.Connection, after: _After, work: _Work, broken: Broken) -> _Shown:
    own = iter(json.loads(f"[{after.own.replace(_LINE, ',')}]"))
    return _shown(
        (_part(on, piece.number, work, broken), None if piece.mode == SHARED else next(own))
        for piece, _ in after.cut
        if piece.mode < PASSING
    )


_LINE = "\n"


def _shown(parts: Iterable[tuple[Part, Any]]) -> _Shown:
    shown: _Shown = {}
    for part, own in parts:
        shown.setdefault((part.source, part.kind, part.mode), []).append((part, own))
    return shown


def _differences(old: _Shown, new: _Shown, work: _Work) -> Iterator[tuple[str, str, str | None, str]]:
    """(source, path, old value or None, new value) of all that is another value, is known now, or is not known any more."""
    left: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for key in dict.fromkeys((*old, *new)):
        before, now = old.get(key, []), new.get(key, [])
        if [(part.no, own) for part, own in before] == [(part.no, own) for part, own in now]:
            continue
        if len(before) == len(now) == 1 and (pair := _pair(before[0], now[0], work)) is not None:
            yield from ((key[0], path, was, text) for path, was, text in pair)
            continue
        values = left.setdefault(key[0], ({}, {}))
        for shown, into in ((before, values[0]), (now, values[1])):
            for part, own in shown:
                into |= part.values(own)
    for source, (was, now_) in left.items():
        yield from ((source, *each) for each in _compared(was, now_))


def _pair(before: tuple[Part, Any], now: tuple[Part, Any], work: _Work) -> _Differences | None:
    """The differences of two parts that many nodes may show one after the other; None when they must be compared in full."""
    (old, own), (new, own_now) = before, now
    if old.mode == OWN or (old.mode == KEYED and own != own_now):
        return None
    pair = (old.no, new.no)
    if pair not in work.differing:
        if old.mode == SHARED:
            work.differing[pair] = tuple(_compared(old.content, new.content))
        elif old.content[1] != new.content[1]:
            return None
        else:
            work.differing[pair] = tuple(_compared(_flat(old.content[0]), _flat(new.content[0])))
    found = work.differing[pair]
    if old.mode == SHARED:
        return found
    keys = own[0]
    return tuple((f"{old.kind}[{keys[place]}]{rest}", was, text) for (place, rest), was, text in found)


def _flat(members: Sequence[Mapping[str, Any]]) -> Mapping[tuple[int, str], Any]:
    return {(place, rest): value for place, member in enumerate(members) for rest, value in member.items()}


def _compared(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterator[tuple[Any, str | None, str]]:
    for path, value in new.items():
        was = old.get(path)
        if was.__class__ is value.__class__ and was == value:  # True == 1 in Python, not in a fact
            continue
        before = None if was is None or isinstance(was, dict) else _codec.json_of(was)
        if before is not None or not isinstance(value, dict):
            yield path, before, _codec.json_of(value)
    for path, was in old.items():
        if path not in new and not isinstance(was, dict):
            yield path, _codec.json_of(was), _GONE_TEXT


def load(on: sqlite3.Connection, broken: Broken) -> tuple[NodeFacts, ...]:
    """The last look of every node, by name; their facts are read when they are asked for."""
    parts = {
        number: Part(number, kind, mode, body, broken)
        for number, kind, mode, body in on.execute("SELECT id, kind, mode, body FROM look_parts")
    }
    listings: dict[str, Listing] = {}
    places: Places = {}
    found = []
    rows = on.execute("SELECT node, observed_at, trouble, parts, own, passing FROM looks ORDER BY node")
    for node, observed_at, trouble, listed, own, passing in rows:
        try:
            if listed not in listings:
                listings[listed] = _listing(listed, parts.__getitem__, places)
            observed = _codec.time_of(observed_at)
        except (ValueError, TypeError, KeyError) as error:
            raise broken(f"the facts of {node}", error) from error
        facts = Facts(listings[listed], own, passing, observed, broken)
        found.append(NodeFacts(node, observed, facts, None if trouble is None else Unknown(trouble)))
    return tuple(found)


def load_one(on: sqlite3.Connection, node: str, broken: Broken) -> NodeFacts | None:
    """The last look of one node."""
    row = _row(on, node)
    return None if row is None else _node_facts(on, node, row, broken)


def _listing(listed: str, part_of: Callable[[int], Part], places: Places | None = None) -> Listing:
    return Listing([(part_of(part), at) for part, at in json.loads(listed)], places)


def _node_facts(on: sqlite3.Connection, node: str, row: _Row, broken: Broken) -> NodeFacts:
    work = _Work()
    try:
        listing = _listing(row.parts, lambda part: _part(on, part, work, broken))
        observed = _codec.time_of(row.observed_at)
    except (ValueError, TypeError) as error:
        raise broken(f"the facts of {node}", error) from error
    facts = Facts(listing, row.own, row.passing, observed, broken)
    return NodeFacts(node, observed, facts, None if row.trouble is None else Unknown(row.trouble))


def _row(on: sqlite3.Connection, node: str) -> _Row | None:
    found = on.execute(
        "SELECT no, observed_at, trouble, seq, parts, own, passing FROM looks WHERE node = ?", (node,)
    ).fetchone()
    return None if found is None else _Row(*found)


def _part(on: sqlite3.Connection, part: int, work: _Work, broken: Broken) -> Part:
    known = work.read.get(part)
    if known is None:
        found = on.execute("SELECT kind, mode, body FROM look_parts WHERE id = ?", (part,)).fetchone()
        if found is None:
            raise broken(f"part {part} of a look", KeyError(part))
        if len(work.read) >= _MOST_PARTS_READ:
            work.read.clear()
            work.differing.clear()
        kind, mode, body = found
        known = work.read[part] = Part(part, kind, mode, body, broken)
    return known


def history(on: sqlite3.Connection, node: str, broken: Broken) -> tuple[Fact, ...]:
    """See `ports.Store.history`."""
    row = _row(on, node)
    if row is None:
        return ()
    found = _first_look(on, row.no, broken)
    rows = on.execute(
        "SELECT c.seq, s.source, s.shape, m.member, c.at, c.value FROM fact_changes c JOIN fact_shapes s ON s.id = c.shape "
        "LEFT JOIN fact_members m ON m.id = c.member WHERE c.node = ?",
        (row.no,),
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


def _first_look(on: sqlite3.Connection, no: int, broken: Broken) -> Sequence[Fact]:
    """What was known at a node's first look, by path."""
    row = on.execute("SELECT at, parts, own FROM first_looks WHERE node = ?", (no,)).fetchone()
    if row is None:
        return ()
    at, parts, own = row
    work = _Work()
    try:
        listing = _listing(parts, lambda part: _part(on, part, work, broken))
    except (ValueError, TypeError) as error:
        raise broken("the first look at a node", error) from error
    seen = _time(at)
    facts = Facts(listing, own, "", seen, broken).lasting()
    known = [Fact(fact.path, fact.value, fact.source, seen) for fact in facts if not isinstance(fact.value, Unknown)]
    return sorted(known, key=lambda fact: fact.path)


def _split(path: str) -> tuple[str, str | None]:
    """A path without the key of its list member, and the key: `gpu[].ecc.mode`, `GPU-1f`."""
    start, end = path.find("["), path.find("]")
    return (path, None) if not 0 <= start < end else (path[: start + 1] + path[end:], path[start + 1 : end])


def _shape_id(on: sqlite3.Connection, source: str, shape: str, work: _Work) -> int:
    key = (source, shape)
    if key not in work.shapes:
        found = on.execute("SELECT id FROM fact_shapes WHERE source = ? AND shape = ?", key).fetchone()
        if found is None:
            work.shapes[key] = on.execute("INSERT INTO fact_shapes VALUES (NULL, ?, ?)", key).lastrowid or 0
        else:
            work.shapes[key] = found[0]
    return work.shapes[key]


def _member_id(on: sqlite3.Connection, member: str | None, work: _Work) -> int:
    if member is None:
        return _NO_MEMBER
    if member not in work.members:
        found = on.execute("SELECT id FROM fact_members WHERE member = ?", (member,)).fetchone()
        if found is None:
            work.members[member] = on.execute("INSERT INTO fact_members VALUES (NULL, ?)", (member,)).lastrowid or 0
        else:
            work.members[member] = found[0]
    return work.members[member]


def add_history(on: sqlite3.Connection, node: str, facts: Sequence[Fact]) -> None:
    """Put changes that an older form of the store held, oldest first, in the place of the history of a node's one look."""
    work = _Work()
    row = _row(on, node)
    assert row is not None
    for seq, fact in enumerate(facts, start=1):
        shape, member = _split(fact.path)
        text = _codec.json_of(_codec.value_json(fact.value))
        ids = (_shape_id(on, fact.source, shape, work), _member_id(on, member, work))
        work.changes.append((row.no, seq, *ids, _micros(fact.observed_at), text))
    on.executemany("INSERT INTO fact_changes VALUES (?, ?, ?, ?, ?, ?)", work.changes)
    _gpu_counts.add(on, row.no, facts)
    for part in _listed(row.parts, work):
        on.execute("UPDATE look_parts SET refs = refs - 1 WHERE id = ?", (part,))
    on.execute("DELETE FROM first_looks WHERE node = ?", (row.no,))
    on.execute("UPDATE looks SET seq = ? WHERE no = ?", (len(facts), row.no))


def _micros(at: datetime) -> int:
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no time zone")
    return (at - _EPOCH) // _MICRO


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
