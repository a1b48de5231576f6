"""A mapping and a sequence that are made when they are first asked, so that a command pays only for the records it reads.

Each makes its content once, by the function it was given, and then answers like a dict or a tuple. They know nothing of knowledge.
"""

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import TypeVar, overload

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class LazyMap(Mapping[K, V_co]):
    """A read-only mapping, made on first use; iteration is in the order it was made in."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], dict[K, V_co]]) -> None:
        self._make = make
        self._made: dict[K, V_co] | None = None

    def _all(self) -> dict[K, V_co]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, key: K) -> V_co:
        return self._all()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._all()

    def __iter__(self) -> Iterator[K]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def keys(self) -> KeysView[K]:
        """The keys, as a dict's."""
        return self._all().keys()

    def values(self) -> ValuesView[V_co]:
        """The values, as a dict's."""
        return self._all().values()

    def items(self) -> ItemsView[K, V_co]:
        """The items, as a dict's."""
        return self._all().items()


class LazySequence(Sequence[V_co]):
    """A read-only sequence, made on first use."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], tuple[V_co, ...]]) -> None:
        self._make = make
        self._made: tuple[V_co, ...] | None = None

    def _all(self) -> tuple[V_co, ...]:
        if self._made is None:
            self._made = self._make()
        return self._made

    @overload
    def __getitem__(self, index: int) -> V_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[V_co]: ...
    def __getitem__(self, index: int | slice) -> V_co | Sequence[V_co]:
        return self._all()[index]

    def __iter__(self) -> Iterator[V_co]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
