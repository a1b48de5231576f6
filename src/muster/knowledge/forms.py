"""A record's dataclass is its schema: how a map of YAML becomes the record.

Why it exists: forty kinds of records must obey the same rules (texts only, no unknown key, every fault at its line, provenance on each),
and a rule written forty times is kept thirty times. A field's name is its key, its type says how its text is read, its default says that
it may be absent, and `X | None` that it may also be null, which means "not found". It opens no file and knows no kind of record.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin

from muster.documents import Entry, Fields, Map, Node, Reader, Scalar
from muster.documents import Sequence as NodeList
from muster.knowledge.schema import Confidence, Provenance
from muster.model.frozen import dataclass
from muster.model.versions.base import Version

R = TypeVar("R")

PROVENANCE: Final = ("source", "as_of", "confidence", "confidence_note", "via", "notes")
"""The keys that every record may carry beside its own."""

_CONFIDENCES: Final = {each.value: each for each in Confidence}
_DAY = re.compile(r"20[0-9]{2}-[01][0-9](?:-[0-3][0-9])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,5}", re.ASCII)
_BOOLS: Final = {"true": True, "false": False}
_UNIONS: Final = (Union, UnionType)


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
