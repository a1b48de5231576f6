"""The compiled form of the base: one text, a line of JSON for each kind of record, read line by line when a kind is asked for.

Why it exists: reading all files strictly costs a quarter of a second, most of what a whole command may. The form holds plain JSON and
nothing that runs; a line is a table of provenances, the keys, and the records as lists without names. The first line names the content it
was made of and the digest of the rest, so that a form of other content, a damaged or a cut one is found and not used. Pure: `compiling`
makes it, `loader` keeps it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from muster.knowledge.lazy import LazyMap, LazySequence
from muster.knowledge.packing import unpack_provenances, unpacker
from muster.knowledge.schema import (
    Architecture,
    CudaToolkit,
    DriverBranch,
    DriverRelease,
    KnowledgeBase,
    PackageSet,
    Provenance,
    Shelf,
)
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion

K = TypeVar("K")

MAGIC: Final = "muster-knowledge/1"
CORE_PARTS: Final = ("branches", "releases", "toolkits", "architectures", "package_sets")


def digest(body: str) -> str:
    """What the first line says of the rest."""
    return hashlib.sha256(body.encode()).hexdigest()


def restored(text: str, key: str) -> KnowledgeBase | None:
    """The base of a compiled form that was made of this content; None for any other text. Records are made when they are asked for."""
    first, _, body = text.partition("\n")
    try:
        head = json.loads(first)
    except ValueError:
        return None
    fits = isinstance(head, dict) and (head.get("magic"), head.get("key")) == (MAGIC, key)
    if not fits or head.get("digest") != digest(body):
        return None
    lines = dict(zip(head["parts"], body.split("\n"), strict=True))
    branch, table = head["open_only_from"]
    return KnowledgeBase(
        revision=head["revision"],
        branches=LazyMap(lambda: _records(lines["branches"], DriverBranch, str)),
        releases=LazyMap(lambda: _records(lines["releases"], DriverRelease, DriverVersion)),
        toolkits=LazyMap(lambda: _records(lines["toolkits"], CudaToolkit, CudaVersion)),
        architectures=LazyMap(lambda: _records(lines["architectures"], Architecture, str)),
        open_only_from=(branch, unpack_provenances(table)[0]),
        package_sets=LazySequence(lambda: tuple(_records(lines["package_sets"], PackageSet, str).values())),
        more=MappingProxyType({name: _shelf(line) for name, line in lines.items() if name not in CORE_PARTS}),
    )


def _shelf(line: str) -> Shelf:
    made: dict[type, Mapping[str, Any]] = {}

    def shelf(record: type[Any]) -> Mapping[str, Any]:
        if record not in made:
            made[record] = LazyMap(lambda: _records(line, record, str))
        return made[record]

    return shelf


def _records(line: str, record: type, key: Callable[[str], K]) -> dict[K, Any]:
    table, keys, packed = json.loads(line)
    known: tuple[Provenance, ...] = unpack_provenances(table)
    make = unpacker(record)
    return {key(name): make(each, known) for name, each in zip(keys, packed, strict=True)}
