"""A record's dataclass is its schema: how a map of YAML becomes the record, and how a record becomes plain JSON and comes back.

Why it exists: forty kinds of records must obey the same rules (texts only, no unknown key, every fault at its line, provenance on each),
and a rule written forty times is kept thirty times. A field's name is its key, its type says how its text is read, its default says that
it may be absent, and `X | None` that it may also be null, which means "not found". It opens no file and knows no kind of record.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin

from muster.documents import Entry, Fields, Map, Node, Reader, Scalar
from muster.documents import Sequence as NodeList
from muster.knowledge.schema import Confidence, Provenance
from muster.model.versions.base import Version

R = TypeVar("R")

PROVENANCE: Final = ("source", "as_of", "confidence", "confidence_note", "via", "notes")
"""The keys that every record may carry beside its own."""

_CONFIDENCES: Final = {each.value: each for each in Confidence}
_DAY = re.compile(r"20[0-9]{2}-[01][0-9](?:-[0-3][0-9])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,5}", re.ASCII)
_BOOLS: Final = {"true": True, "false": False}
_UNIONS: Final = (Union, UnionType)


@dataclass(frozen=True, slots=True)
class Check:
    """What a text must look like, as `Annotated[str, Check(...)]`; `kind` names it in messages (`driver branch`)."""

    kind: str
    pattern: str

    def __call__(self, text: str) -> str:
        """The text itself; raises ValueError for any other form."""
        if not re.fullmatch(self.pattern, text, re.ASCII):
            raise ValueError(f"{text!r} is no {self.kind}")
        return text


class Taking:
    """The reading of one file: its Reader, and the day that holds where a record gives none."""

    def __init__(self, reader: Reader, as_of: str) -> None:
        self.reader = reader
        self.as_of = as_of

    def record(self, cls: type[R], node: Node, what: str, outer: Provenance | None = None) -> R | None:
        """The record in a map; None after a fault that leaves nothing to make it of. Faults go to the Reader."""
        form = _form(cast(Any, cls))
        given = self.reader.fields(node, f"{what} record", form.keys, form.required)
        values: dict[str, Any] = {}
        complete = isinstance(node, Map)
        if form.provenance:
            self._ask_for_source(given, outer)
            values["provenance"] = self.provenance(given, outer)
        for column in form.columns:
            found = given.node_of(column.name)
            if found is None:
                complete = complete and not column.required
            else:
                value = column.read(self, found, f"{given.what}: {column.name}", values.get("provenance", outer))
                complete = complete and value is not _FAULT
                values[column.name] = value
        return cls(**values) if complete else None

    def _ask_for_source(self, given: Fields, outer: Provenance | None) -> None:
        if outer is None and "source" not in given:
            self.reader.fault(given.node, f"{given.what} lacks the key 'source'", "say where it was read")

    def provenance(self, given: Fields, outer: Provenance | None = None) -> Provenance:
        """Where a record comes from; what it does not say itself it has from `outer`, and the day from the file."""
        if outer is not None and not any(key in given for key in PROVENANCE):
            return outer
        own = any(key in given for key in ("source", "confidence", "as_of"))
        inherited = outer if outer is not None and not own else None
        return Provenance(
            sources=given.texts("source") or (() if outer is None else outer.sources),
            as_of=given.value("as_of", day, self.as_of if outer is None else outer.as_of),
            confidence=given.choice(
                "confidence", _CONFIDENCES, Confidence.STATED if inherited is None else inherited.confidence
            ),
            confidence_note=given.text("confidence_note") or None,
            via=given.text("via") or None,
            notes=given.text("notes") or None,
        )


def day(text: str) -> str:
    """A day or month of reading, kept as text; raises ValueError."""
    if not _DAY.fullmatch(text):
        raise ValueError(f"{text!r} is no day (YYYY-MM-DD)")
    return text


_FAULT: Final = object()
_Read = Callable[[Taking, Node, str, Provenance | None], Any]


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    required: bool
    read: _Read


@dataclass(frozen=True, slots=True)
class _Form:
    columns: tuple[_Column, ...]
    keys: tuple[str, ...]
    required: tuple[str, ...]
    provenance: bool


@cache
def _form(cls: type) -> _Form:
    columns = tuple(
        _Column(each.name, each.default is MISSING, _reader(each.type))
        for each in fields(cls)
        if each.name != "provenance"
    )
    provenance = any(each.name == "provenance" for each in fields(cls))
    own = tuple(column.name for column in columns)
    extra = tuple(key for key in PROVENANCE if key not in own) if provenance else ()
    return _Form(columns, (*own, *extra), tuple(c.name for c in columns if c.required), provenance)


def _reader(kind: Any) -> _Read:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _converted(parts[1])
    if origin in _UNIONS:
        return _nullable(_reader(next(part for part in parts if part is not NoneType)))
    if origin is tuple:
        return _many(_reader(parts[0]))
    if origin is Mapping:
        return _mapped(_reader(parts[1]))
    if kind is str:
        return _text
    if kind is int:
        return _converted(_whole)
    if kind is bool:
        return _chosen(_BOOLS)
    if issubclass(kind, Enum):
        return _chosen({each.value: each for each in kind})
    if issubclass(kind, Version):
        return _converted(kind.parse)
    return _nested(kind)


def _whole(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def _text(taking: Taking, node: Node, what: str, _outer: Provenance | None) -> Any:
    return taking.reader.text(node, what) or _FAULT


def _converted(convert: Callable[[str], Any]) -> _Read:
    return lambda taking, node, what, _outer: taking.reader.value(node, what, convert, _FAULT)


def _chosen(choices: Mapping[str, Any]) -> _Read:
    return lambda taking, node, what, _outer: taking.reader.choice(node, what, choices, _FAULT)


def _nullable(inner: _Read) -> _Read:
    def read(taking: Taking, node: Node, what: str, outer: Provenance | None) -> Any:
        return None if isinstance(node, Scalar) and node.text is None else inner(taking, node, what, outer)

    return read


def _many(inner: _Read) -> _Read:
    def read(taking: Taking, node: Node, what: str, outer: Provenance | None) -> Any:
        found = tuple(inner(taking, item, what, outer) for item in taking.reader.items(node, what))
        return found if isinstance(node, NodeList) and _FAULT not in found else _FAULT

    return read


def _mapped(inner: _Read) -> _Read:
    def read(taking: Taking, node: Node, what: str, outer: Provenance | None) -> Any:
        entries: Sequence[Entry] = taking.reader.entries(node, what)
        found = {entry.key: inner(taking, entry.value, f"{what}.{entry.key}", outer) for entry in entries}
        return MappingProxyType(found) if isinstance(node, Map) and _FAULT not in found.values() else _FAULT

    return read


def _nested(cls: type) -> _Read:
    def read(taking: Taking, node: Node, what: str, outer: Provenance | None) -> Any:
        found: Any = taking.record(cls, node, what, outer)
        return _FAULT if found is None else found

    return read


# To JSON and back ----------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A record as people read it in JSON: maps by field name, versions and choices as text; absent fields left out."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Version):
        return value.text
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if is_dataclass(value):
        named = ((each.name, getattr(value, each.name)) for each in fields(value))
        return {name: plain(each) for name, each in named if each is not None and each != ()}
    return value


class Packer:
    """Packs records into lists without names, each provenance once: the compiled form."""

    def __init__(self) -> None:
        self.provenances: dict[Provenance, int] = {}

    def pack(self, value: Any) -> Any:
        """The value in terms of JSON; `unpacker` of its type brings it back."""
        if isinstance(value, Provenance):
            return self.provenances.setdefault(value, len(self.provenances))
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, Version):
            return value.text
        if isinstance(value, tuple):
            return [self.pack(each) for each in value]
        if isinstance(value, Mapping):
            return {key: self.pack(each) for key, each in value.items()}
        if is_dataclass(value):
            return [self.pack(getattr(value, each.name)) for each in fields(value)]
        return value

    def table(self) -> list[Any]:
        """The provenances met, in the order of their numbers."""
        return [
            [list(p.sources), p.as_of, p.confidence.value, p.confidence_note, p.via, p.notes] for p in self.provenances
        ]


def unpack_provenances(table: Sequence[Any]) -> tuple[Provenance, ...]:
    """The provenances of a compiled part, by number."""
    return tuple(Provenance(tuple(row[0]), row[1], _CONFIDENCES[row[2]], row[3], row[4], row[5]) for row in table)


_Unpack = Callable[[Any, Sequence[Provenance]], Any]


@cache
def _same(kind: Any) -> bool:
    """Whether the packed value of this type is the value itself."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _same(parts[0])
    if origin in _UNIONS:
        return all(part is NoneType or _same(part) for part in parts)
    return kind in (str, int, bool)


@cache
def unpacker(kind: Any) -> _Unpack:
    """The function that makes a value of this type from its packed form."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Provenance:
        return lambda packed, known: known[packed]
    if _same(kind):
        return lambda packed, known: packed
    if origin in _UNIONS:
        inner = unpacker(next(part for part in parts if part is not NoneType))
        return lambda packed, known: None if packed is None else inner(packed, known)
    if origin is tuple:
        return _unpack_tuple(parts)
    if origin is Mapping:
        of = unpacker(parts[1])
        return lambda packed, known: MappingProxyType({key: of(each, known) for key, each in packed.items()})
    if issubclass(kind, Version | Enum):
        # Every text was read as this kind before it was packed, so the cache only saves work, and the type still checks.
        make = cache(cast(Callable[[str], Any], kind))
        return lambda packed, known: make(packed)
    return _unpack_record(kind)


def _unpack_tuple(parts: tuple[Any, ...]) -> _Unpack:
    if len(parts) == 2 and parts[1] is not Ellipsis:
        first, second = unpacker(parts[0]), unpacker(parts[1])
        return lambda packed, known: (first(packed[0], known), second(packed[1], known))
    if _same(parts[0]):
        return lambda packed, known: tuple(packed)
    inner = unpacker(parts[0])
    return lambda packed, known: tuple([inner(each, known) for each in packed])


def _unpack_record(cls: type) -> _Unpack:
    # Only the places whose packed form differs are worked on: most fields of most records are texts.
    kinds: list[Any] = [each.type for each in fields(cls)]
    places = tuple((at, unpacker(kind)) for at, kind in enumerate(kinds) if not _same(kind))

    def unpack(packed: Any, known: Sequence[Provenance]) -> Any:
        values = list(packed)
        for at, make in places:
            values[at] = make(values[at], known)
        return cls(*values)

    return unpack
