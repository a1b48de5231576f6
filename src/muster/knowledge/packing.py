"""Records to plain JSON and back, by their dataclass: the compiled form, and what `--json` shows. It reads no YAML and opens no file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

from muster.knowledge.schema import Confidence, Provenance
from muster.model.versions.base import Version

_CONFIDENCES: Final = {each.value: each for each in Confidence}
_UNIONS: Final = (Union, UnionType)


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
