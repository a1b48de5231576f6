"""The whole base as lists by kind, for people: what there is, one record in full, what differs between two bases. Pure.

Why it exists: `muster knowledge` and the documentation show every kind in one way, those that rules decide from like the others.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from muster.knowledge.catalog import KINDS
from muster.knowledge.packing import plain
from muster.knowledge.records_more import Fact
from muster.knowledge.schema import Confidence, KnowledgeBase, Provenance
from muster.model.errors import UnknownName
from muster.model.frozen import dataclass
from muster.model.nearest import nearest

# The fields that say most about a record in a line, the best first.
_TELLING: Final = (
    "says", "refuses", "symptom", "summary", "title", "issue", "builds_up_to", "fails_with", "about", "meaning", "name", "label", "kernel",
    "driver", "min_driver", "default_driver", "cuda", "cudart", "status", "subject", "family", "boards",
    "distributions", "repository", "channel",
)  # fmt: skip
_LINE: Final = 100


@dataclass(frozen=True, slots=True)
class KindView:
    """One kind with its records by key. `file` is where the release keeps them."""

    name: str
    file: str
    about: str
    records: Mapping[str, Any]


def views(base: KnowledgeBase) -> tuple[KindView, ...]:
    """Every kind of the base; first those that are put together, then the catalog's in its order, then facts."""
    core = (
        KindView("branch", "driver_branches.yaml", "driver branches: kind, ends, native CUDA", base.branches),
        KindView("release", "driver_releases.yaml", "Linux driver builds", _by_text(base.releases)),
        KindView("toolkit", "cuda_toolkits.yaml", "CUDA toolkits: driver, oldest driver, code", _by_text(base.toolkits)),
        KindView("architecture", "gpu_architectures.yaml", "GPUs: branches, modules, products", base.architectures),
        KindView("package-set", "package_sets.yaml", "names of packages by repository", {each.id: each for each in base.package_sets}),
    )  # fmt: skip
    more = tuple(KindView(kind.name, kind.file, kind.about, base.of(kind.record)) for kind in KINDS)
    return (*core, *more, KindView("fact", "", "what no rule is made of yet", base.of(Fact)))


def _by_text(records: Mapping[Any, Any]) -> Mapping[str, Any]:
    return {str(key): record for key, record in records.items()}


def kind_named(base: KnowledgeBase, name: str) -> KindView:
    """The kind of this name, also in the plural. Raises UnknownName with the nearest ones."""
    known = {view.name: view for view in views(base)}
    if name in known:
        return known[name]
    singular = [each for each in known if name in (f"{each}s", f"{each}es")]
    if singular:
        return known[singular[0]]
    near = nearest(name, known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    raise UnknownName(f"no kind of record is called {name!r}", hint=hint)


def record_named(view: KindView, key: str) -> tuple[str, Any]:
    """The record of this key, of a unique beginning of it, or of it in another case; with its key. Raises UnknownName."""
    if key in view.records:
        return key, view.records[key]
    alike = [each for each in view.records if each.casefold() == key.casefold()] or [
        each for each in view.records if each.casefold().startswith(key.casefold())
    ]
    if len(alike) == 1:
        return alike[0], view.records[alike[0]]
    near = tuple(alike[:3]) or nearest(key, view.records)
    hint = f"did you mean {' or '.join(near)}?" if near else f"see: muster knowledge show {view.name}"
    learn = "newer knowledge: muster knowledge import FILE"
    raise UnknownName(f"no {view.name} is called {key!r}", hint=f"{hint}; {learn}")


def line_of(record: Any) -> str:
    """The most telling thing about a record, in at most a line."""
    for name in _TELLING:
        value = getattr(record, name, None)
        if value not in (None, "", ()):
            text = _flat(plain(value))
            return text if len(text) <= _LINE else f"{text[: _LINE - 3].rstrip()}..."
    return ""


def lines_of(record: Any) -> Iterator[str]:
    """A record in full: a line a field, lists and nested records indented, where it comes from at the end."""
    fields = plain(record)
    provenance = fields.pop("provenance", None)
    for name, value in fields.items():
        yield from _field(name, value, "")
    if provenance is not None:
        yield from source_lines(record.provenance)


def _field(name: str, value: Any, indent: str) -> Iterator[str]:
    words = name.replace("_", " ")
    if isinstance(value, dict):
        yield f"{indent}{words}:"
        for key, each in value.items():
            if key != "provenance":  # a nested record's own; --json has it
                yield from _field(key, each, f"{indent}  ")
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        yield f"{indent}{words}:"
        for each in value:
            yield f"{indent}  - {_flat(each)}"
    elif isinstance(value, list):
        yield f"{indent}{words}: {', '.join(map(_flat, value))}"
    else:
        yield f"{indent}{words}: {_flat(value)}"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_flat(each)}" for key, each in value.items() if key != "provenance")
    if isinstance(value, list):
        return ", ".join(map(_flat, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def source_lines(provenance: Provenance) -> Iterator[str]:
    """Where a record comes from, and what that is worth."""
    for source in provenance.sources:
        yield f"source: {source}" + (f" (read in {provenance.via})" if provenance.via else "")
    worth = _WORTH[provenance.confidence]
    noted = f" ({provenance.confidence_note})" if provenance.confidence_note else ""
    yield f"confidence: {provenance.confidence.value}{noted}, {worth}; as of {provenance.as_of}"
    if provenance.notes:
        yield f"note: {provenance.notes}"


_WORTH: Final = {
    Confidence.STATED: "read where NVIDIA says it",
    Confidence.THIRD_PARTY: "read where others say it",
    Confidence.DERIVED: "computed from other records",
    Confidence.MEMORY: "found written nowhere: it may warn, and decides nothing",
    Confidence.CONFLICTING: "sources disagree: it may warn, and decides nothing",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One record that differs between two bases: `added`, `removed` or `changed`, and for the last which fields, from what to what."""

    what: str
    kind: str
    key: str
    fields: tuple[tuple[str, str, str], ...] = ()


def changes(before: KnowledgeBase, after: KnowledgeBase) -> tuple[Change, ...]:
    """What differs, kind by kind, in the order of the kinds and of the keys."""
    found: list[Change] = []
    for old, new in zip(views(before), views(after), strict=True):
        for key in dict.fromkeys((*old.records, *new.records)):
            if key not in old.records:
                found.append(Change("added", new.name, key))
            elif key not in new.records:
                found.append(Change("removed", old.name, key))
            elif old.records[key] != new.records[key]:
                found.append(Change("changed", new.name, key, _differing(old.records[key], new.records[key])))
    return tuple(found)


def _differing(old: Any, new: Any) -> tuple[tuple[str, str, str], ...]:
    before, after = plain(old), plain(new)
    return tuple(
        (name, _flat(before.get(name, "nothing")), _flat(after.get(name, "nothing")))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )
