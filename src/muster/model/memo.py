"""Judges nodes that look alike once: ten thousand nodes of a fleet are dozens of cases. Pure.

What a judgement reads of a node's facts is written down while it reads; another node with equal values there gets the same answer unasked: at
once where it read nothing that is each node's own and the other one is `alike`, or shares all of the kinds that were read; else after a look
at those values. The
facts' names, times and sources are no part of it, so a judgement that depends on them may not be remembered.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from muster.model.fact import ByKind, Fact, FactValue, NodeFacts, Unknown, kind_of

_MOST_SHAPES = 16
"""So many ways to read are tried for a node before it is judged afresh: a judgement has a few branches, not hundreds."""

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
_Shape = tuple[tuple[str, ...], tuple[str, ...]]


class _Reads(ByKind):
    """Facts that write down what is asked of them."""

    __slots__ = ("_facts", "all_of_it", "kinds", "own", "plain")

    def __init__(self, facts: ByKind) -> None:
        self._facts = facts
        self.own = facts.alike is None
        self.plain: dict[str, None] = {}
        self.kinds: dict[str, None] = {}
        self.all_of_it = False

    def _read(self, path: str) -> None:
        kind = kind_of(path)
        self.own = self.own or self._facts.is_own(path)
        if kind:
            self.kinds[kind] = None
        else:
            self.plain[path] = None

    def __getitem__(self, path: str) -> Fact:
        self._read(path)
        return self._facts[path]

    def value_of(self, path: str) -> FactValue | None:
        self._read(path)
        return self._facts.value_of(path)

    def __contains__(self, path: object) -> bool:
        self._read(str(path))
        return path in self._facts

    def __iter__(self) -> Iterator[str]:
        self.all_of_it = True
        return iter(self._facts)

    def __len__(self) -> int:
        self.all_of_it = True
        return len(self._facts)

    def __bool__(self) -> bool:
        return bool(self._facts)

    def paths_of(self, kind: str) -> tuple[str, ...]:
        if not kind:
            self.all_of_it = True
        self.kinds[kind] = None
        self.own = self.own or self._facts.is_own_list(kind)
        return self._facts.paths_of(kind)

    def token(self, kind: str) -> Hashable:
        self.kinds[kind] = None
        self.own = True
        return self._facts.token(kind)

    def keys_of(self, kind: str) -> tuple[str, ...]:
        self.kinds[kind] = None
        self.own = self.own or self._facts.is_own_list(kind)
        return self._facts.keys_of(kind)

    def column(self, kind: str, rest: str) -> Mapping[str, FactValue]:
        self.kinds[kind] = None
        self.own = self.own or self._facts.is_own_list(kind)
        return self._facts.column(kind, rest)


class Remembered(Generic[K, R]):
    """`judge(facts, key)`, asked once for all nodes that are alike in what it reads. Facts that are no `ByKind` are judged each time."""

    def __init__(self, judge: Callable[[NodeFacts, K], R]) -> None:
        self._judge = judge
        self._shapes: dict[K, dict[_Shape, dict[Hashable, R]]] = {}
        self._alike: dict[tuple[Hashable, Unknown | None, K], R] = {}
        self._kinds: dict[K, dict[tuple[str, ...], dict[Hashable, R]]] = {}

    def __call__(self, facts: NodeFacts, key: K) -> R:
        whole = (getattr(facts.facts, "alike", None), facts.trouble, key)
        try:
            return self._alike[whole]
        except KeyError:
            pass
        if not isinstance(facts.facts, ByKind):
            return self._judge(facts, key)
        for kinds, answers in self._kinds.setdefault(key, {}).items():
            shared = _shared(facts, facts.facts, kinds)
            if shared in answers:
                if facts.facts.alike is not None:
                    self._alike[whole] = answers[shared]
                return answers[shared]
        for shape, answers in self._shapes.setdefault(key, {}).items():
            seen = _seen(facts, facts.facts, shape)
            if seen in answers:
                return answers[seen]
        return self._asked(facts, facts.facts, key)

    def is_shared(self, facts: NodeFacts, key: K) -> bool:
        """Whether the answer that these facts got is that of all nodes with their `alike` and trouble."""
        return facts.alike is not None and (facts.alike, facts.trouble, key) in self._alike

    def _asked(self, facts: NodeFacts, by_kind: ByKind, key: K) -> R:
        reads = _Reads(by_kind)
        answer = self._judge(replace(facts, facts=reads), key)
        if not reads.own and not reads.all_of_it:
            self._alike[by_kind.alike, facts.trouble, key] = answer
            kinds = tuple(dict.fromkeys((*reads.kinds, *([""] if reads.plain else []))))
            by_kinds = self._kinds.setdefault(key, {})
            if kinds in by_kinds or len(by_kinds) < _MOST_SHAPES:
                by_kinds.setdefault(kinds, {})[_shared(facts, by_kind, kinds)] = answer
        shapes = self._shapes.setdefault(key, {})
        shape = (tuple(reads.plain), tuple(reads.kinds))
        if not reads.all_of_it and (shape in shapes or len(shapes) < _MOST_SHAPES):
            shapes.setdefault(shape, {})[_seen(facts, by_kind, shape)] = answer
        return answer


class RememberedTogether(Generic[K, R]):
    """The answers of several judgements on a node, each remembered for itself: where one source tells each node something else, the judgements
    that do not read it are made once all the same. Nodes with one `alike` get one and the same tuple, where no judgement read what is their own.
    """

    def __init__(self, judges: Sequence[Callable[[NodeFacts, K], R]]) -> None:
        self._judges = tuple(Remembered(judge) for judge in judges)
        self._alike: dict[tuple[Hashable, Unknown | None, K], tuple[R, ...]] = {}

    def __call__(self, facts: NodeFacts, key: K) -> tuple[R, ...]:
        whole = (facts.alike, facts.trouble, key)
        known = self._alike.get(whole)
        if known is None:
            known = tuple([judge(facts, key) for judge in self._judges])
            if all(judge.is_shared(facts, key) for judge in self._judges):
                self._alike[whole] = known
        return known

    def is_shared(self, facts: NodeFacts, key: K) -> bool:
        """As `Remembered.is_shared`, of all the judgements."""
        return (facts.alike, facts.trouble, key) in self._alike


def _shared(facts: NodeFacts, by_kind: ByKind, kinds: tuple[str, ...]) -> Hashable:
    return facts.trouble, bool(by_kind), tuple([by_kind.shared(kind) for kind in kinds])


def _seen(facts: NodeFacts, by_kind: ByKind, shape: _Shape) -> Hashable:
    plain, kinds = shape
    values = []
    for path in plain:
        fact = by_kind.get(path)
        # True == 1 in Python, not in a fact.
        values.append(None if fact is None else (fact.value.__class__, fact.value))
    return facts.trouble, bool(by_kind), tuple(values), tuple(by_kind.token(kind) for kind in kinds)
