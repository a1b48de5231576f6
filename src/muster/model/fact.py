"""What was seen on a node: never a bare value, always with its source and time. `Unknown` says why something was not seen.

A fact path is dotted lower snake (`module.nvidia.loaded_version`), list members by a stable key (`gpu[GPU-1f..].ecc.mode`).
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Unknown:
    """The absence of knowledge, with its reason. It never equals, and is never counted as, a good value."""

    why: str


GONE = "not reported any more"
"""Why a value is Unknown in a node's history that its source told before, and does not tell now."""

FactValue: TypeAlias = str | int | bool | tuple[str, ...] | Unknown
"""Texts, whole numbers, yes/no, lists of texts; versions are texts. No floats: facts are hashed."""


@dataclass(frozen=True, slots=True)
class RawOutput:
    """What a fact's command gave on the node.

    `exit_status` is None when this is not known to be its answer; `note` says why as the look does: `deadline` (also where it is empty),
    `stuck`, `unwritten`.
    """

    exit_status: int | None
    stdout: bytes
    truncated: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """One value seen on one node: by which source, at what time (UTC, by the control machine's clock).

    A `momentary` value (of a momentary `FactSpec`: a temperature, a clock) keeps no history.
    """

    path: str
    value: FactValue
    source: str
    observed_at: datetime
    momentary: bool = False


@dataclass(frozen=True, slots=True)
class FactSpec:
    """A source of facts: the POSIX-sh command that looks and the pure parser that understands.

    `parse` gets the raw output and returns path -> value; it never raises for any bytes. `provides` lists the paths (with `*` for list
    keys) that become Unknown together when the command could not answer. `momentary` values keep no history. A `whole_only` source is left
    out of the many looks of a running rollout, which decide nothing by it.
    """

    name: str
    command: str
    deadline_s: int
    cap_bytes: int
    parse: Callable[[RawOutput], Mapping[str, FactValue]]
    provides: tuple[str, ...]
    momentary: bool = False
    whole_only: bool = False

    def read(self, raw: RawOutput) -> Mapping[str, FactValue]:
        """What `parse` makes of `raw`. Ten thousand nodes print a few dozen texts: what a short one says is remembered, and shared by all."""
        if len(raw.stdout) > _REMEMBERED_BYTES:
            return self.parse(raw)
        return _remembered(self.parse, raw)


_REMEMBERED_BYTES = 16 * 1024
_REMEMBERED_TEXTS = 1024
"""Together at most 16 MiB of outputs, however different the nodes are."""


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def _remembered(parse: Callable[[RawOutput], Mapping[str, FactValue]], raw: RawOutput) -> Mapping[str, FactValue]:
    return parse(raw)


class ByKind(Mapping[str, Fact]):
    """Facts that know their paths by kind: the word before the first bracket (`package` of `package[x].hold`), empty for a path without one."""

    __slots__ = ()

    alike: Hashable = None
    """Equal for two nodes only when they have the same paths and values but for what is each node's own (see `is_own`). None tells nothing."""

    @abstractmethod
    def paths_of(self, kind: str) -> tuple[str, ...]:
        """The paths of this kind."""

    @abstractmethod
    def token(self, kind: str) -> Hashable:
        """Equal for two nodes only when all their facts of this kind have equal values."""

    @abstractmethod
    def __bool__(self) -> bool:
        """Whether there is any fact."""

    def value_of(self, path: str) -> FactValue | None:
        """The value at `path`, without the fact around it; None where there is none."""
        fact = self.get(path)
        return None if fact is None else fact.value

    def told_at(self, path: str) -> tuple[FactValue, datetime] | None:
        """The value at `path` and when it was seen; None where there is none."""
        fact = self.get(path)
        return None if fact is None else (fact.value, fact.observed_at)

    def shared(self, kind: str) -> Hashable:
        """Equal for two nodes only when their facts of this kind are equal but for what is each node's own (see `is_own`)."""
        return self.token(kind)

    @classmethod
    def marks_of(cls, several: Sequence["ByKind"], kind: str, rest: str) -> list[str]:
        """Of several, all of this class: see `marks`."""
        return [mark for facts in several for mark in _marks(facts.keys_of(kind), facts.column(kind, rest))]

    def is_own(self, path: str) -> bool:
        """Whether what stands at `path`, or that nothing does, may differ between nodes whose `alike` is equal."""
        return True

    def is_own_list(self, kind: str) -> bool:
        """Whether the paths of a kind may differ between nodes whose `alike` is equal."""
        return True

    def keys_of(self, kind: str) -> tuple[str, ...]:
        """The keys of `kind[<key>]...` paths, sorted."""
        return keys_in(self.paths_of(kind)).get(kind, ())

    def column(self, kind: str, rest: str) -> Mapping[str, FactValue]:
        """Key -> value of `kind[<key>]rest`, for the members that have one."""
        found: dict[str, FactValue] = {}
        for path in self.paths_of(kind):
            key, end, after = path[len(kind) + 1 :].partition("]")
            if end and after == rest:
                found[key] = self[path].value
        return found


def kind_of(path: str) -> str:
    """The kind of a path; empty when it is no list member's."""
    return path.partition("[")[0] if "[" in path else ""


CLOCK_SLACK_S = 300
"""How far two clocks may be apart before ages mean nothing: Kerberos and TLS give up there too."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one source told in one look: path -> value. The look holds for all of them: when, and whether the values are momentary."""

    source: str
    observed_at: datetime
    values: Mapping[str, FactValue]
    momentary: bool = False


class BySource(ByKind):
    """The facts of a look as its sources told them; a fact is made when it is asked for. Of a path that several told the last one counts."""

    __slots__ = ("told",)

    def __init__(self, told: Iterable[Told]) -> None:
        kept: list[Told] = []
        met: set[str] = set()
        for each in reversed(tuple(told)):
            values = each.values
            if not met.isdisjoint(values):
                values = {path: value for path, value in values.items() if path not in met}
            met.update(values)
            kept.append(each if values is each.values else replace(each, values=values))
        self.told = tuple(reversed(kept))

    def __getitem__(self, path: str) -> Fact:
        for each in self.told:
            if path in each.values:
                return Fact(path, each.values[path], each.source, each.observed_at, each.momentary)
        raise KeyError(path)

    def __contains__(self, path: object) -> bool:
        return any(path in each.values for each in self.told)

    def __iter__(self) -> Iterator[str]:
        for each in self.told:
            yield from each.values

    def __len__(self) -> int:
        return sum(len(each.values) for each in self.told)

    def __bool__(self) -> bool:
        return any(each.values for each in self.told)

    def paths_of(self, kind: str) -> tuple[str, ...]:
        return tuple(path for path in self if kind_of(path) == kind)

    def token(self, kind: str) -> Hashable:
        return frozenset((path, (fact := self[path]).value.__class__, fact.value) for path in self.paths_of(kind))


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """All that is known of one node from its last look. `trouble` is set when the node could not be looked at at all.

    `partial`: only some sources were asked; what the others said before still stands, each fact with its own time.
    """

    node: str
    observed_at: datetime
    facts: Mapping[str, Fact]
    trouble: Unknown | None = None
    partial: bool = False
    # Below the facts are asked for a method of `ByKind` and not for that class: for an abstract one the answer takes thrice as long.
    _lists: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def is_older_than(self, age_s: int, now: datetime) -> bool:
        """Whether the look is older than that, or its age cannot be told: it is later than `now` by more than `CLOCK_SLACK_S`."""
        return now - self.observed_at > _span(age_s) or self.is_from_the_future(now)

    def is_from_the_future(self, now: datetime) -> bool:
        """Whether the look is later than `now`, by more than clocks may differ: the clock was set back since, or was wrong then."""
        return self.observed_at - now > _span(CLOCK_SLACK_S)

    @property
    def alike(self) -> Hashable:
        """See `ByKind.alike`; None of facts that cannot tell."""
        return getattr(self.facts, "alike", None)

    def value(self, path: str) -> FactValue:
        """The value at `path`; Unknown, with the reason, where there is none. Never raises."""
        value_of: Callable[[str], FactValue | None] | None = getattr(self.facts, "value_of", None)
        if value_of is not None:
            value = value_of(path)
        else:
            fact = self.facts.get(path)
            value = None if fact is None else fact.value
        return value if value is not None else self.trouble or Unknown("not collected")

    def told_at(self, path: str) -> tuple[FactValue, datetime] | None:
        """The value at `path` and when it was seen; None where there is none."""
        told_at: Callable[[str], tuple[FactValue, datetime] | None] | None = getattr(self.facts, "told_at", None)
        if told_at is not None:
            return told_at(path)
        fact = self.facts.get(path)
        return None if fact is None else (fact.value, fact.observed_at)

    def text(self, path: str) -> str | None:
        """The value at `path` when it is a text, else None."""
        value = self.value(path)
        return value if isinstance(value, str) else None

    def members(self, kind: str) -> tuple[str, ...]:
        """The keys of `kind[<key>]...` paths, sorted. `*` is no key: it stands for a list that could not be read (see `unread`)."""
        return tuple(key for key in self._keys_of(kind) if key != "*")

    def column(self, kind: str, rest: str) -> Mapping[str, FactValue]:
        """Key -> value of `kind[<key>]rest` (as `.serial`), for the members that have one; many times cheaper than one by one."""
        if isinstance(self.facts, ByKind):
            return self.facts.column(kind, rest)
        paths = {key: f"{kind}[{key}]{rest}" for key in self._keys_of(kind)}
        return {key: self.facts[path].value for key, path in paths.items() if path in self.facts}

    def unread(self, kind: str) -> str | None:
        """Why the list `kind[...]` could not be read; None when it was read, be it empty."""
        if "*" in self._keys_of(kind):
            for path in self.facts.paths_of(kind) if isinstance(self.facts, ByKind) else self.facts:
                value = self.facts[path].value if path.startswith(f"{kind}[*]") else None
                if isinstance(value, Unknown):
                    return value.why
        return None if self.facts else (self.trouble or Unknown("not collected")).why

    def _keys_of(self, kind: str) -> tuple[str, ...]:
        # A check asks a dozen times what lists there are, and a node has hundreds of facts: they are gone through once.
        if isinstance(self.facts, ByKind):
            if kind not in self._lists:
                self._lists[kind] = self.facts.keys_of(kind)
        elif not self._lists:
            self._lists.update({"": (), **keys_in(self.facts)})
        return self._lists.get(kind, ())


@lru_cache(maxsize=64)
def _span(seconds: int) -> timedelta:
    return timedelta(seconds=seconds)


def marks(looks: Iterable[NodeFacts], kind: str, rest: str) -> Sequence[str]:
    """Of all the looks the keys of `kind[<key>]...` paths, and the texts among the values of `kind[<key>]rest`, in no order, and perhaps more
    texts that are each node's own: where no text is here twice, no two nodes share a key or such a text.
    """
    found: list[str] = []
    together: dict[type[ByKind], list[ByKind]] = {}
    for look in looks:
        if isinstance(look.facts, ByKind):
            together.setdefault(look.facts.__class__, []).append(look.facts)
        else:
            found += _marks(look.members(kind), look.column(kind, rest))
    for by_kind, several in together.items():
        found += by_kind.marks_of(several, kind, rest)
    return found


def _marks(keys: Iterable[str], column: Mapping[str, FactValue]) -> Sequence[str]:
    return (*keys, *(value for value in column.values() if isinstance(value, str)))


def keys_in(paths: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """The sorted keys of each list in these paths."""
    lists: dict[str, dict[str, None]] = {}
    for path in paths:
        name, bracket, rest = path.partition("[")
        key, end, _ = rest.partition("]")
        if bracket and end:
            lists.setdefault(name, {})[key] = None
    return {name: tuple(sorted(keys)) for name, keys in lists.items()}
