"""A frozen dataclass made late is to everybody the one that the standard library makes."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any, Generic, TypeVar

import pytest

from muster.model.frozen import dataclass as late

T = TypeVar("T")


def classes(dataclass: Callable[..., Any]) -> dict[str, Any]:
    @dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        x: int
        y: int = 2
        names: dict[str, int] = field(default_factory=dict)

        @property
        def both(self) -> int:
            return self.x + self.y

    @dataclass(frozen=True, slots=True)
    class Odd(Generic[T]):
        a: T
        hidden: int = field(default=1, repr=False, compare=False)
        made: list[int] = field(default_factory=list, init=False, compare=False)

        def __post_init__(self) -> None:
            if self.a == "bad":
                raise ValueError("bad")

    @dataclass(frozen=True)
    class Open:
        a: int

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclass(slots=True)
    class Draft:
        a: int
        names: dict[str, int] = field(default_factory=dict)

    return {"Point": Point, "Odd": Odd, "Open": Open, "Empty": Empty, "Draft": Draft}


@dataclasses.dataclass
class Pair:
    """The same class twice: as the standard library makes it, and late."""

    plain: Any
    late: Any


PAIRS = {name: Pair(classes(dataclasses.dataclass)[name], made) for name, made in classes(late).items()}


def same(pair: Pair, use: Callable[[Any], object]) -> object:
    """What `use` gives for both, which must be equal; or the error of both."""
    got = []
    for cls in (pair.plain, pair.late):
        try:
            got.append(use(cls))
        except Exception as error:  # noqa: BLE001 - whatever the one raises, the other must
            got.append((type(error), str(error)))
    assert got[0] == got[1]
    return got[1]


def test_it_is_made_with_the_same_arguments_and_refuses_the_same() -> None:
    for arguments in ((1,), (1, 3), (1, 3, {"a": 1}), (), (1, 2, 3, 4)):
        same(PAIRS["Point"], lambda cls, a=arguments: repr(cls(*a)))
    assert same(PAIRS["Point"], lambda cls: repr(cls(y=5, x=4))).endswith("Point(x=4, y=5, names={})")  # type: ignore[attr-defined]
    same(PAIRS["Odd"], lambda cls: repr(cls("bad")))
    same(PAIRS["Odd"], lambda cls: (repr(cls("x", 9)), cls("x").made, cls("x", 3) == cls("x", 4)))
    same(PAIRS["Empty"], lambda cls: (repr(cls()), cls() == cls(), hash(cls())))
    assert PAIRS["Point"].late(1).names is not PAIRS["Point"].late(1).names


def test_it_is_equal_hashed_and_matched_alike() -> None:
    same(PAIRS["Point"], lambda cls: (cls(1) == cls(1, 2), cls(1) == cls(2), cls(1) == (1, 2), cls(1) != cls(1)))
    same(PAIRS["Open"], lambda cls: (hash(cls(1)), hash(cls(1)) == hash(cls(True)), {cls(1): 2}[cls(1)]))
    same(PAIRS["Point"], lambda cls: hash(cls(1)))
    same(PAIRS["Point"], lambda cls: (cls.__match_args__, cls.__slots__, cls(1).both, cls.__doc__))
    assert hash(PAIRS["Odd"].late("x", 3)) == hash(PAIRS["Odd"].late("x", 4))


def test_one_that_is_not_frozen_can_be_changed_and_is_no_key() -> None:
    def changed(cls: Any) -> object:
        one = cls(1)
        one.names["x"] = 1
        one.a = 5
        return repr(one), one == cls(5, {"x": 1}), one == cls(5), cls(3).names

    same(PAIRS["Draft"], changed)
    same(PAIRS["Draft"], lambda cls: hash(cls(1)))
    same(PAIRS["Draft"], lambda cls: setattr(cls(1), "other", 1))
    assert not PAIRS["Draft"].late.__dataclass_params__.frozen


def test_nothing_of_it_can_be_changed() -> None:
    for name in ("Point", "Open"):
        for change in (
            lambda one: setattr(one, "x", 2),
            lambda one: delattr(one, "x"),
            lambda one: setattr(one, "z", 2),
        ):
            with pytest.raises(FrozenInstanceError):
                change(PAIRS[name].late(1))


def test_the_tools_for_dataclasses_take_it() -> None:
    cls = PAIRS["Point"].late
    assert replace(cls(1), y=7) == cls(1, 7)
    assert [each.name for each in fields(cls)] == ["x", "y", "names"]
    assert dataclasses.asdict(cls(1)) == {"x": 1, "y": 2, "names": {}}
    assert copy.deepcopy(cls(1, 2, {"a": 1})) == cls(1, 2, {"a": 1})
    assert copy.copy(Kept(1)) == pickle.loads(pickle.dumps(Kept(1))) == Kept(1)
    same(PAIRS["Point"], lambda each: list(inspect.signature(each).parameters))
    assert cls.__dataclass_params__.frozen
    with pytest.raises(TypeError, match="made"):
        replace(cls(1), made=3)


@late(frozen=True, slots=True)
class Kept:
    a: int


def test_an_object_of_a_class_below_is_filled_too() -> None:
    class Below(Kept):
        pass

    assert (Below(3).a, type(Below(3)), type(Kept(3))) == (3, Below, Kept)
    with pytest.raises(FrozenInstanceError):
        Kept(3).a = 4  # type: ignore[misc]


def test_what_it_cannot_do_the_standard_library_does() -> None:
    @late(frozen=True, slots=True, order=True)
    class Ordered:
        a: int

    @late(frozen=True, slots=True)
    class Child(Kept):
        b: int = 2

    assert Ordered(1) < Ordered(2)
    assert Child(1) == Child(1, 2)
    assert repr(Child(1)).endswith("Child(a=1, b=2)")
