"""The lists of a knowledge file to records by key, for every kind of the catalog: strict, all faults of the file at once. Pure."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from muster.documents import Document, Fields, Node, Reader
from muster.knowledge.catalog import FACTS, KINDS, Kind
from muster.knowledge.forms import Taking, day
from muster.knowledge.records_more import Fact
from muster.knowledge.schema import Shelf

Shelves = Mapping[type, Mapping[str, Any]]
"""Records by class and key."""

FACTS_PART: Final = "facts"


def file_of(name: str) -> str:
    """The file of the catalog to which a document's name belongs: `driver_releases.yaml` for `/site/driver_releases.2027.yaml` too."""
    return f"{name.rpartition('/')[2].partition('.')[0]}.yaml"


def parts_of(name: str) -> tuple[str, ...]:
    """The keys of a document under which lists of the catalog's kinds stand, `facts` included where its file has them."""
    file = file_of(name)
    own = tuple(kind.part for kind in KINDS if kind.file == file)
    return (*own, FACTS_PART) if file in FACTS else own


def read_shelves(document: Document, core: tuple[str, ...] = ()) -> Shelves:
    """The records of the catalog's kinds in one file; `core` names its lists that are read elsewhere. Raises DocumentFaults."""
    reader = Reader(document)
    parts, file = parts_of(document.name), file_of(document.name)
    top = reader.fields(document.root, document.name, ("as_of", *core, *parts), required=("as_of",))
    taking = Taking(reader, top.value("as_of", day, ""))
    found: dict[type, Mapping[str, Any]] = {}
    for kind in KINDS:
        if kind.file == file:
            found[kind.record] = _shelf(taking, top, kind)
    if FACTS_PART in parts:
        stem = file.removesuffix(".yaml")
        found[Fact] = _records(taking, top, FACTS_PART, Fact, lambda fact: f"{stem}:{fact.id}")
    reader.finish()
    return MappingProxyType(found)


def _shelf(taking: Taking, top: Fields, kind: Kind) -> Mapping[str, Any]:
    return _records(taking, top, kind.part, kind.record, kind.key)


def _records(taking: Taking, top: Fields, part: str, cls: type, key: Callable[[Any], str]) -> Mapping[str, Any]:
    node = top.node_of(part)
    found: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for item in () if node is None else taking.reader.items(node, part):
        record = taking.record(cls, item, part)
        if record is not None:
            name = key(record)
            refuse_second(taking.reader, item, part, name, lines)
            found[name] = record
    return MappingProxyType(found)


def refuse_second(reader: Reader, item: Node, part: str, name: str, lines: dict[str, int]) -> None:
    """Record a fault where a record of this name stood before; `lines` remembers where each stands."""
    if name in lines:
        reader.fault(item, f"{part} record {name!r} stands twice, first on line {lines[name]}", "keep one of the two")
    lines.setdefault(name, item.line)


def together(shelves: Iterable[Shelves]) -> Mapping[str, Shelf]:
    """All shelves as one, by the name of the class; a later record of the same class and key stands in the place of an earlier one."""
    found: dict[type, dict[str, Any]] = {}
    for each in shelves:
        for cls, records in each.items():
            found.setdefault(cls, {}).update(records)
    return MappingProxyType({cls.__name__: shelf_of(records) for cls, records in found.items()})


def shelf_of(records: Mapping[str, Any]) -> Shelf:
    """A shelf of records that are there already."""
    content = MappingProxyType(dict(records))
    return lambda _record: content
