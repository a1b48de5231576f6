"""Puts the base together from all its files, those that a site added included: strict, with the faults of all files at once. Pure.

A site's file bears the name of the release's file to which it adds (`driver_releases.yaml`, `driver_releases.2027.yaml`) and is named by its
path. Its records stand beside the release's, or in the place of those with the same key, each with its own source and day.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from muster.documents import Document, Fault, compose, did_you_mean, plain, refused
from muster.knowledge.catalog import KINDS
from muster.knowledge.reading import (
    read_architectures,
    read_branches,
    read_package_sets,
    read_releases,
    read_toolkits,
)
from muster.knowledge.schema import Confidence, KnowledgeBase, PackageSet, Provenance
from muster.knowledge.shelves import Shelves, file_of, read_shelves, together
from muster.model.errors import DocumentFaults

A = TypeVar("A")
T = TypeVar("T")

CORE: Final[Mapping[str, tuple[str, ...]]] = {
    "cuda_toolkits.yaml": ("toolkits", "legacy_toolkits"),
    "driver_branches.yaml": ("branches",),
    "driver_releases.yaml": ("linux_releases",),
    "gpu_architectures.yaml": ("architectures", "open_module_required_from"),
    "package_sets.yaml": ("package_sets",),
}
"""The lists that `reading` reads and not their kind alone, because their records are put together from several keys."""


FILES: Final = tuple(sorted({*CORE, *(kind.file for kind in KINDS)}))
"""The files of the release."""


class _Faults:
    """The faults of all files, so that people mend them in one go."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def of(self, read: Callable[[A], T], given: A, default: T) -> T:
        """What `read` makes of the given; the default where it has faults, which are kept."""
        try:
            return read(given)
        except DocumentFaults as error:
            self.lines += (line for line in error.faults if line not in self.lines)
            return default


def read_base(texts: Mapping[str, str]) -> KnowledgeBase:
    """The base in these files (name -> text): FILES, and a site's by their paths. Raises DocumentFaults with the faults of all of them."""
    faults = _Faults()
    documents: dict[str, Document] = {}
    for name in _in_order(texts):
        document = faults.of(_composed, (name, texts[name]), None)
        if document is not None:
            documents[name] = document
    nothing: Shelves = MappingProxyType({})
    more = [faults.of(_shelves, document, nothing) for document in documents.values()]
    core = _Core(documents.values(), faults)
    if faults.lines:
        raise DocumentFaults("\n".join(faults.lines), faults=tuple(faults.lines))
    return KnowledgeBase(
        revision=revision_of(documents),
        branches=_sorted(core.branches, lambda branch: branch.number),
        releases=_sorted(core.releases, lambda release: release.version),
        toolkits=_sorted(core.toolkits, lambda toolkit: toolkit.version),
        architectures=MappingProxyType(core.architectures),
        open_only_from=core.open_only_from,
        package_sets=tuple(core.package_sets.values()),
        more=together(more),
    )


def _composed(named: tuple[str, str]) -> Document | None:
    name, text = named
    document = compose(text, name)
    if file_of(name) not in FILES:
        message = f"no file of the knowledge base is called {file_of(name)!r}"
        raise refused(name, (Fault(1, 1, message, did_you_mean(file_of(name), FILES)),))
    return document


def _shelves(document: Document) -> Shelves:
    return read_shelves(document, CORE.get(file_of(document.name), ()))


def _in_order(names: Iterable[str]) -> list[str]:
    """The release's own files first, so that what a site says stands in their place."""
    return sorted(names, key=lambda name: ("/" in name, name))


class _Core:
    """The records that are put together from several keys, by their keys; a later file's in the place of an earlier one's."""

    def __init__(self, documents: Iterable[Document], faults: _Faults) -> None:
        self.branches: dict[Any, Any] = {}
        self.releases: dict[Any, Any] = {}
        self.toolkits: dict[Any, Any] = {}
        self.architectures: dict[str, Any] = {}
        self.package_sets: dict[str, PackageSet] = {}
        self.open_only_from: tuple[str, Provenance] = ("R000", Provenance((), "", Confidence.MEMORY))
        readers = {
            "driver_branches.yaml": self._branches, "driver_releases.yaml": self._releases, "cuda_toolkits.yaml": self._toolkits,
            "gpu_architectures.yaml": self._architectures, "package_sets.yaml": self._package_sets,
        }  # fmt: skip
        for document in documents:
            reader = readers.get(file_of(document.name))
            if reader is not None:
                faults.of(reader, document, None)

    def _branches(self, document: Document) -> None:
        self.branches.update((each.name, each) for each in read_branches(document))

    def _releases(self, document: Document) -> None:
        self.releases.update((each.version, each) for each in read_releases(document))

    def _toolkits(self, document: Document) -> None:
        self.toolkits.update((each.version, each) for each in read_toolkits(document))

    def _architectures(self, document: Document) -> None:
        found, open_only_from = read_architectures(document)
        self.architectures.update((each.name, each) for each in found)
        self.open_only_from = open_only_from or self.open_only_from

    def _package_sets(self, document: Document) -> None:
        # A site's sets come first: its own repository answers before the release's records of the same question.
        self.package_sets = {each.id: each for each in read_package_sets(document)} | self.package_sets


def revision_of(documents: Mapping[str, Document]) -> str:
    """SHA-256 over the canonical JSON of all files: the same whatever their comments, quotes and order of keys, and wherever they lie."""
    content = [(name.rpartition("/")[2], "/" in name, plain(document.root)) for name, document in documents.items()]
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _sorted(records: Mapping[Any, T], key: Callable[[T], Any]) -> Mapping[Any, T]:
    return MappingProxyType(dict(sorted(records.items(), key=lambda item: key(item[1]))))
