"""What was seen, as it is read back: the parts that looks are kept in, and a node's facts made of them, each when somebody asks for it.

Writes nothing. How a look is cut into parts, and what the modes below keep where, is said in `_looks`.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from muster.backends import _codec
from muster.model.fact import ByKind, Fact, FactValue, keys_in, kind_of

SHARED, KEYED, OWN, PASSING, PASSING_LIST = range(5)
"""The modes of a part: what of it stands in its body, and what in the look's own row.

SHARED: all in the body. KEYED: a list whose keys are the node's own (GPUs by UUID): the members' values in the body in the order of the keys.
OWN: the paths in the body, lasting values that no two nodes share in the row. PASSING: likewise for momentary values. PASSING_LIST: a
momentary list, all in the row.
"""

Broken = Callable[[str, Exception], Exception]
"""Makes the error for stored content that cannot be what was written: what it is, and what was found."""

Raw = Any
"""A value as JSON has it."""


class Part:
    """The content of a part, decoded when first asked for. `no` is its number in the store."""

    __slots__ = ("_body", "_broken", "_columns", "_content", "_in_rows", "_keys", "_source", "kind", "mode", "no")

    def __init__(self, no: int, kind: str, mode: int, body: str, broken: Broken) -> None:
        self.no = no
        self.kind = kind
        self.mode = mode
        self._body: str | None = body
        self._broken = broken
        self._source = ""
        self._content: Any = None
        self._in_rows: dict[str, list[tuple[int, int]]] = {}
        self._keys: tuple[str, ...] | None = None
        self._columns: dict[str, Mapping[str, FactValue]] = {}

    def keys(self) -> tuple[str, ...]:
        """Of a SHARED part of a list, the keys of its members, sorted."""
        if self._keys is None:
            self._keys = keys_in(self.content).get(self.kind, ())
        return self._keys

    def column(self, rest: str) -> Mapping[str, FactValue]:
        """Of a SHARED part of a list, key -> value of the members that have `rest`. Raises ValueError for what no fact can be."""
        known = self._columns.get(rest)
        if known is None:
            start = len(self.kind) + 1
            cut = ((path[start:].partition("]"), value) for path, value in self.content.items())
            known = self._columns[rest] = {
                key: _codec.value_from(value) for (key, end, after), value in cut if end and after == rest
            }
        return known

    def in_rows(self, rest: str) -> Sequence[tuple[int, int]]:
        """Of a KEYED part, whose values of `rest` stand in the row: (place of the member, place in the row) of each."""
        known = self._in_rows.get(rest)
        if known is None:
            places = self.content[1]
            known = self._in_rows[rest] = [(member, at) for at, (member, after) in enumerate(places) if after == rest]
        return known

    def _decoded(self) -> Any:
        if self._body is not None:
            try:
                source, content = json.loads(self._body)
                if not isinstance(source, str) or not isinstance(content, _KINDS[self.mode]):
                    raise ValueError("it does not hold a part of a look")
            except (ValueError, TypeError, LookupError) as error:
                raise self._broken("a part of a look", error) from error
            self._source, self._content, self._body = source, content, None
        return self._content

    @property
    def source(self) -> str:
        """The source that told it."""
        self._decoded()
        return self._source

    @property
    def content(self) -> Any:
        """SHARED: path -> value. KEYED: [a mapping of what follows the key to the value, for each member; (place of the member, what follows
        the key) of each value in the row]. OWN, PASSING: paths. PASSING_LIST: nothing.
        """
        return self._decoded()

    def values(self, own: Any) -> Mapping[str, Raw]:
        """Path -> value, with what the look's row has of it."""
        content = self.content
        if self.mode == SHARED:
            return content  # type: ignore[no-any-return]
        if self.mode == KEYED:
            keys, values = own
            members, places = content
            found = {
                f"{self.kind}[{key}]{rest}": value
                for key, member in zip(keys, members, strict=True)
                for rest, value in member.items()
            }
            for (place, rest), value in zip(places, values, strict=True):
                found[f"{self.kind}[{keys[place]}]{rest}"] = value
            return found
        if self.mode == PASSING_LIST:
            return own  # type: ignore[no-any-return]
        return dict(zip(content, own, strict=True))


_KINDS = (dict, list, list, list, list)


Places = dict[tuple[int, ...], Mapping[str, tuple[int, int]]]
"""What `Listing.plain` gives, by the numbers of the plain parts: one for all listings that share those."""


class Listing:
    """What looks have in common that are made of the same parts: which, of what kinds. One for all of them."""

    __slots__ = ("_numbers", "_own_paths", "_places", "_plain", "kinds", "lasting", "parts", "passing")

    def __init__(self, parts: Sequence[tuple[Part, str | None]], places: Places | None = None) -> None:
        self.parts = tuple(parts)
        self._numbers: dict[str, tuple[int, ...]] = {}
        self._places = {} if places is None else places
        self._plain: Mapping[str, tuple[int, int]] | None = None
        self.kinds: dict[str, list[tuple[Part, str | None, int]]] = {}
        self.lasting = self.passing = 0
        self._own_paths: frozenset[str] | None = None
        for part, at in parts:
            place = -1
            if part.mode in (KEYED, OWN):
                place, self.lasting = self.lasting, self.lasting + 1
            elif part.mode != SHARED:
                place, self.passing = self.passing, self.passing + 1
            self.kinds.setdefault(part.kind, []).append((part, at, place))

    def numbers(self, kind: str) -> tuple[int, ...]:
        """The numbers of the parts of a kind."""
        known = self._numbers.get(kind)
        if known is None:
            known = self._numbers[kind] = tuple([part.no for part, _, _ in self.kinds.get(kind, ())])
        return known

    @property
    def plain(self) -> Mapping[str, tuple[int, int]]:
        """For each path without a key which of `kinds[""]` has it, and where among that part's paths."""
        if self._plain is None:
            numbers = self.numbers("")
            if numbers not in self._places:
                self._places[numbers] = {
                    path: (which, at)
                    for which, (part, _, _) in reversed(list(enumerate(self.kinds.get("", ()))))
                    for at, path in enumerate(part.content)
                }
            self._plain = self._places[numbers]
        return self._plain

    @property
    def own_paths(self) -> frozenset[str]:
        """The paths without a key whose values stand in the rows."""
        if self._own_paths is None:
            self._own_paths = frozenset(
                path for part, _, _ in self.kinds.get("", ()) if part.mode in (OWN, PASSING) for path in part.content
            )
        return self._own_paths

    def is_own(self, kind: str) -> bool:
        """Whether the rows have something of this kind."""
        return any(place >= 0 for _, _, place in self.kinds.get(kind, ()))


class Facts(ByKind):
    """A node's facts by path, read when asked for. Equal to any mapping with the same facts."""

    __slots__ = (
        "_broken",
        "_lasting",
        "_listing",
        "_observed",
        "_own",
        "_passing",
        "_passing_own",
        "_resolved",
        "alike",
    )

    def __init__(self, listing: Listing, lasting: str, passing: str, observed: datetime, broken: Broken) -> None:
        self._listing = self.alike = listing
        self._lasting = lasting
        self._passing = passing
        self._observed = observed
        self._broken = broken
        self._own: list[Any] | None = None
        self._passing_own: list[Any] | None = None
        self._resolved: dict[tuple[bool, int], Mapping[str, Raw]] = {}

    def _row(self, part: Part, place: int) -> Any:
        """What the row has for a part: of the texts of all parts that one alone is decoded."""
        passing = part.mode >= PASSING
        rows = self._passing_own if passing else self._own
        try:
            if rows is None:
                rows = self._split(passing=passing)
            row = rows[place]
            if row.__class__ is str:
                row, end = _decode(row)
                if end != len(rows[place]) or row.__class__ is str:
                    raise ValueError("it does not hold one part a line")
                rows[place] = row
        except (ValueError, TypeError, LookupError) as error:
            raise self._broken("the values of a look", error) from error
        return row

    def _split(self, *, passing: bool) -> list[Any]:
        text, count = (self._passing, self._listing.passing) if passing else (self._lasting, self._listing.lasting)
        rows: list[Any] = text.split(_LINE) if text else []
        if len(rows) != count:
            raise ValueError(f"it does not hold {count} parts")
        if passing:
            self._passing_own = rows
        else:
            self._own = rows
        return rows

    def _values(self, part: Part, place: int) -> Mapping[str, Raw]:
        if part.mode == SHARED:
            return part.values(None)
        at = (part.mode >= PASSING, place)  # not the part's number: a look may show one part twice, with different rows
        known = self._resolved.get(at)
        if known is None:
            row = self._row(part, place)
            try:
                known = part.values(row)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise self._broken("the values of a look", error) from error
            self._resolved[at] = known
        return known

    def _fact(self, part: Part, path: str, raw: Raw, at: str | None) -> Fact:
        seen = self._observed if at is None else _codec.time_of(at)
        if raw.__class__ is not str and raw.__class__ is not int:
            try:
                raw = _codec.value_from(raw)
            except ValueError as error:
                raise self._broken(f"the fact {path}", error) from error
        return Fact(path, raw, part.source, seen, part.mode >= PASSING)

    def __getitem__(self, path: str) -> Fact:
        kind = kind_of(path)
        if not kind:
            return self._plain_fact(path)
        for part, at, place in self._listing.kinds.get(kind, ()):
            values = self._values(part, place)
            if path in values:
                return self._fact(part, path, values[path], at)
        raise KeyError(path)

    def value_of(self, path: str) -> FactValue | None:
        if "[" in path:
            return self._value_in_list(path)
        where = self._listing.plain.get(path)
        if where is None:
            return None
        part, _, raw = self._plain_raw(path, *where)
        return raw if raw.__class__ is str else self._fact(part, path, raw, None).value

    def _value_in_list(self, path: str) -> FactValue | None:
        for part, _, place in self._listing.kinds.get(kind_of(path), ()):
            raw = self._values(part, place).get(path)
            if raw is not None:
                return raw if raw.__class__ is str else self._fact(part, path, raw, None).value
        return None

    def _plain_fact(self, path: str) -> Fact:
        part, at, raw = self._plain_raw(path, *self._listing.plain[path])
        return self._fact(part, path, raw, at)

    def _plain_raw(self, path: str, which: int, position: int) -> tuple[Part, str | None, Raw]:
        part, at, place = self._listing.kinds[""][which]
        if part.mode == SHARED:
            return part, at, part.content[path]
        row = self._row(part, place)
        try:
            return part, at, row[position]
        except (TypeError, LookupError) as error:
            raise self._broken("the values of a look", error) from error

    def told_at(self, path: str) -> tuple[FactValue, datetime] | None:
        where = self._listing.plain.get(path)
        if where is None:
            return super().told_at(path)
        part, at, raw = self._plain_raw(path, *where)
        seen = self._observed if at is None else _codec.time_of(at)
        return (raw if raw.__class__ is int else self._fact(part, path, raw, None).value), seen

    @classmethod
    def marks_of(cls, several: Sequence[ByKind], kind: str, rest: str) -> list[str]:
        lines: list[str] = []
        others: list[ByKind] = []
        for facts in several:
            line = facts._line(kind, rest) if isinstance(facts, Facts) else None
            if line is None:
                others.append(facts)
            else:
                lines.append(line)
        try:
            rows, _ = _decode(f"[{','.join(lines)}]")  # at once: each alone costs thrice as much
            found = [mark for keys, _ in rows for mark in keys]
            found += [value for _, values in rows for value in values if value.__class__ is str]
        except (ValueError, TypeError):
            return super().marks_of(several, kind, rest)  # which says whose is broken
        return found + super().marks_of(others, kind, rest)

    def _line(self, kind: str, rest: str) -> str | None:
        """The row's text for a list of which it has the keys and the values of `rest`; None where it is no such list."""
        parts = self._listing.kinds.get(kind, ())
        if len(parts) != 1 or parts[0][0].mode != KEYED or not parts[0][0].in_rows(rest):
            return None
        rows = self._own or self._split(passing=False)
        line = rows[parts[0][2]]
        return line if line.__class__ is str else json.dumps(line)

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str):
            return False
        kind = kind_of(path)
        if not kind:
            return path in self._listing.plain
        return any(path in self._values(part, place) for part, _, place in self._listing.kinds.get(kind, ()))

    def __iter__(self) -> Iterator[str]:
        for parts in self._listing.kinds.values():
            for part, _, place in parts:
                yield from self._values(part, place)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self._listing.parts)

    def lasting(self) -> Iterator[Fact]:
        """The facts that are not momentary."""
        for parts in self._listing.kinds.values():
            for part, at, place in parts:
                if part.mode < PASSING:
                    for path, raw in self._values(part, place).items():
                        yield self._fact(part, path, raw, at)

    def paths_of(self, kind: str) -> tuple[str, ...]:
        return tuple(path for part, _, place in self._listing.kinds.get(kind, ()) for path in self._values(part, place))

    def shared(self, kind: str) -> Hashable:
        return self._listing.numbers(kind)

    def token(self, kind: str) -> Hashable:
        numbers = self._listing.numbers(kind)
        return (numbers, self._lasting, self._passing) if self._listing.is_own(kind) else numbers

    def is_own(self, path: str) -> bool:
        kind = kind_of(path)
        return self._listing.is_own(kind) if kind else path in self._listing.own_paths

    def is_own_list(self, kind: str) -> bool:
        return self._listing.is_own(kind)

    def keys_of(self, kind: str) -> tuple[str, ...]:
        parts = self._listing.kinds.get(kind, ())
        if len(parts) == 1 and parts[0][0].mode == SHARED:
            return parts[0][0].keys()
        if not all(part.mode == KEYED for part, _, _ in parts):
            return super().keys_of(kind)
        try:
            return tuple(sorted({key for part, _, place in parts for key in self._row(part, place)[0]}))
        except (TypeError, LookupError) as error:
            raise self._broken("the values of a look", error) from error

    def column(self, kind: str, rest: str) -> Mapping[str, FactValue]:
        found: dict[str, FactValue] = {}
        parts = self._listing.kinds.get(kind, ())
        if len(parts) == 1 and parts[0][0].mode == SHARED:
            try:
                return parts[0][0].column(rest)
            except ValueError as error:
                raise self._broken(f"the facts {kind}[..]{rest}", error) from error
        for part, _, place in parts:
            if part.mode != KEYED:
                return super().column(kind, rest)
            members = part.content[0]
            keys, values = self._row(part, place)
            own = part.in_rows(rest)
            raw: dict[str, Raw] = {keys[member]: values[at] for member, at in own}
            if not own:
                raw = {key: member[rest] for key, member in zip(keys, members, strict=True) if rest in member}
            for key, value in raw.items():
                found[key] = value if value.__class__ is str else _codec.value_from(value)
        return found


def rows_of(text: str, count: int) -> list[Any]:
    """What a row has for each of its `count` parts, of which it holds one JSON text a line. Raises ValueError."""
    whole = f"[{text.replace(_LINE, ',')}]"
    rows: list[Any]
    rows, end = _decode(whole)  # what `json.loads` does, less its search for white space: this is asked twice a node
    if end != len(whole) or len(rows) != count:
        raise ValueError(f"it does not hold {count} parts")
    return rows


_LINE = "\n"
_decode = json.JSONDecoder().raw_decode
