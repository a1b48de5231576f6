"""What a node's sources told in one look, cut into the parts that a store keeps: what nodes share apart from what is each node's own. Pure.

How the parts become rows is in `_looks`; the modes are said in `_parts`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from muster.backends._parts import KEYED, OWN, PASSING, PASSING_LIST, SHARED
from muster.model.fact import BySource, Fact, FactValue, NodeFacts, Told
from muster.model.frozen import dataclass

OWN_PATHS = frozenset({"machine.id", "boot_id"})
OWN_MEMBERS = frozenset({".serial"})
OWN_KEYS = ("GPU-", "MIG-")
"""Plain paths, what follows the key in paths of lists, and how keys begin, that differ on every node. One that is missing here costs space and
time and no truth."""


@dataclass(slots=True)
class Piece:
    """A part of a look before it is written. `own` is what the row has of it."""

    kind: str
    mode: int
    source: str
    content: Any
    own: Any
    number: int = 0


def told_in(look: NodeFacts) -> list[Told]:
    """What the look's sources told, in an order that depends on nothing but that."""
    told = look.facts.told if isinstance(look.facts, BySource) else _by_source(look.facts.values())
    return sorted(told, key=_order)


def _order(told: Told) -> tuple[str, bool, datetime]:
    return told.source, told.momentary, told.observed_at


def _by_source(facts: Iterable[Fact]) -> Iterable[Told]:
    grouped: dict[tuple[str, datetime, bool], dict[str, FactValue]] = {}
    for fact in facts:
        grouped.setdefault((fact.source, fact.observed_at, fact.momentary), {})[fact.path] = fact.value
    return [Told(source, at, values, momentary) for (source, at, momentary), values in grouped.items()]


def pieces(told: Told) -> Iterator[Piece]:
    """What one source told, in parts."""
    plain, lists = _by_list(told.values)
    source = told.source
    if told.momentary:
        if plain:
            yield Piece("", PASSING, source, sorted(plain), [plain[path] for path in sorted(plain)])
        for kind, values in sorted(lists.items()):
            yield Piece(kind, PASSING_LIST, source, [], values)
        return
    if not OWN_PATHS.isdisjoint(plain):
        own = sorted(OWN_PATHS.intersection(plain))
        yield Piece("", OWN, source, own, [plain.pop(path) for path in own])
    if plain:
        yield Piece("", SHARED, source, plain, None)
    for kind, values in sorted(lists.items()):
        keyed = _keyed(kind, values)
        content, data = (values, None) if keyed is None else keyed
        yield Piece(kind, SHARED if keyed is None else KEYED, source, content, data)


def _by_list(values: Mapping[str, FactValue]) -> tuple[dict[str, FactValue], dict[str, dict[str, FactValue]]]:
    """The values whose paths have no key, and those of each list by its kind."""
    plain: dict[str, FactValue] = {}
    lists: dict[str, dict[str, FactValue]] = {}
    kind, begin, members = "", "\0", plain
    for path, value in values.items():
        if path.startswith(begin):  # the next of the same list, as nearly always
            members[path] = value
            continue
        at = path.find("[")
        if at < 0:
            plain[path] = value
            continue
        kind, begin = path[:at], path[: at + 1]
        members = lists.setdefault(kind, {})
        members[path] = value
    return plain, lists


def _keyed(kind: str, values: Mapping[str, FactValue]) -> tuple[Any, Any] | None:
    """The members of a list without their keys, and what the row has: the keys, and the members' own values. None where the keys are not own."""
    start = len(kind) + 1
    if not next(iter(values)).startswith(OWN_KEYS, start):
        return None
    members: dict[str, dict[str, FactValue]] = {}
    places: list[tuple[int, str]] = []
    own: list[FactValue] = []
    for path, value in values.items():
        named, end, rest = path.partition("]")
        if not end:
            return None
        member = members.get(named)
        if member is None:
            member = members[named] = {}
        if rest in OWN_MEMBERS:
            places.append((list(members).index(named), rest))
            own.append(value)
        else:
            member[rest] = value
    return [list(members.values()), places], [[named[start:] for named in members], own]
