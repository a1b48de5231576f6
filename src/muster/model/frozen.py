"""Dataclasses whose methods are made when they are first used.

`dataclasses.dataclass(frozen=True, slots=True)` writes and compiles six functions for each class, 0.5 ms of CPU. A command knows two hundred
such classes and uses a few dozen: their making was a third of its start. These are the same classes to whoever uses them (`fields`, `replace`,
`match`, equality, hashing, text), and no others: what `dataclass` can do beside `frozen=True` and `slots=True` is left to it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        """`dataclasses.dataclass`, for a class made late."""
        if cls is None:
            return lambda each: dataclass(each, **options)
        bases = any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])
        if options.keys() - {"frozen", "slots"} or bases or _is_special(cls):
            return dataclasses.dataclass(cls, **options)
        return _late(cls, frozen=options.get("frozen", False), slots=options.get("slots", False))


__all__ = ["dataclass"]


def _is_special(cls: type) -> bool:
    hints = map(str, vars(cls).get("__annotations__", {}).values())
    own = [
        name
        for name in ("__init__", "__eq__", "__hash__", "__repr__", "__setattr__", "__getstate__")
        if name in vars(cls)
    ]
    keyword = any(isinstance(each, dataclasses.Field) and each.kw_only is True for each in vars(cls).values())
    return bool(own) or keyword or any("InitVar" in each or "KW_ONLY" in each for each in hints)


class _Late:
    """A method that is made, and takes this one's place, when somebody first asks for it."""

    def __init__(self, cls: type, name: str, make: Callable[[type], Callable[..., Any]]) -> None:
        self._cls, self._name, self._make = cls, name, make

    def __get__(self, instance: object, owner: type) -> Any:
        method = self._make(self._cls)
        method.__name__ = self._name
        method.__qualname__ = f"{self._cls.__qualname__}.{self._name}"
        setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)


def _late(cls: type, *, frozen: bool, slots: bool) -> type:
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # or `dataclass` would read the signature of a class that has none yet
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    params = made.__dataclass_params__
    params.init = params.repr = params.eq = True
    params.frozen = frozen
    for name, make in (("__init__", _init), ("__eq__", _eq), ("__repr__", _repr)):
        setattr(made, name, _Late(made, name, make))
    made.__hash__ = _Late(made, "__hash__", _hash) if frozen else None
    if not frozen:
        return made  # type: ignore[no-any-return]
    made.__setattr__, made.__delattr__ = _no_setting, _no_deleting
    if slots:
        made.__getstate__, made.__setstate__ = _state, _set_state
    return made  # type: ignore[no-any-return]


def _no_setting(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deleting(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _compiled(text: str, names: dict[str, Any]) -> Callable[..., Any]:
    exec(text, names)  # the text is made of the names of fields alone, as `dataclasses` does it
    method: Callable[..., Any] = names["method"]
    return method


def _init(cls: type) -> Callable[..., Any]:
    names: dict[str, Any] = {"_set": object.__setattr__}
    given: list[str] = []
    values: dict[str, str] = {}
    for field in dataclasses.fields(cls):
        names[f"_{field.name}"] = field.default_factory if field.default is dataclasses.MISSING else field.default
        is_made, has_default = (
            field.default_factory is not dataclasses.MISSING,
            field.default is not dataclasses.MISSING,
        )
        value = field.name
        if not field.init:
            if not is_made and not has_default:
                continue
            value = f"_{field.name}()" if is_made else f"_{field.name}"
        elif is_made:
            names["_missing"] = dataclasses.MISSING
            given.append(f"{field.name}=_missing")
            value = f"_{field.name}() if {field.name} is _missing else {field.name}"
        else:
            given.append(f"{field.name}=_{field.name}" if has_default else field.name)
        values[field.name] = value
    lines = _filling(cls, values, names)
    if hasattr(cls, "__post_init__"):
        lines.append("  self.__post_init__()")
    method = _compiled("\n".join([f"def method({', '.join(['self', *given])}):", *(lines or ["  pass"])]), names)
    hints = {field.name: field.type for field in dataclasses.fields(cls) if field.init}
    method.__annotations__ = {**hints, "return": None}
    return method


def _filling(cls: type, values: Mapping[str, str], names: dict[str, Any]) -> list[str]:
    """The lines that give a new object its values, past the guard that makes it frozen."""
    if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return [f"  self.{name} = {value}" for name, value in values.items()]
    guarded = [f"_set(self, {name!r}, {value})" for name, value in values.items()]
    twin = _twin(cls) if guarded else None
    if twin is None:
        return [f"  {line}" for line in guarded]
    # `object.__setattr__` is a quarter of a microsecond for each field, and commands make ten thousand objects of ten fields. While nobody else
    # knows the new object, it is of a class with the same slots and no guard.
    names |= {"_cls": cls, "_twin": twin, "_become": vars(object)["__class__"].__set__, "_fill": _fill}
    made = [(name, value) for name, value in values.items() if value != name]
    return [
        *(f"  {name} = {value}" for name, value in made),
        "  if self.__class__ is _cls:",
        "    _become(self, _twin)",
        *(f"    self.{name} = {name}" for name in values),
        "    _become(self, _cls)",
        "  else:",
        f"    _fill(self, {tuple(values)!r}, ({', '.join(values)},))",
    ]


def _fill(self: object, names: Iterable[str], values: Iterable[object]) -> None:
    for name, value in zip(names, values, strict=True):
        object.__setattr__(self, name, value)


def _twin(cls: type) -> type | None:
    """A class with the slots of `cls`, and nothing else; None where there can be none."""
    slots = vars(cls).get("__slots__")
    if slots is None or cls.__bases__ != (object,):
        return None
    return type(f"{cls.__name__} being made", (), {"__slots__": slots})


def _compared(cls: type, of: str, *, hashed: bool = False) -> str:
    fields = [
        field
        for field in dataclasses.fields(cls)
        if (field.compare if not hashed or field.hash is None else field.hash)
    ]
    return f"({''.join(f'{of}.{field.name}, ' for field in fields)})"


def _eq(cls: type) -> Callable[..., Any]:
    pair = f"{_compared(cls, 'self')} == {_compared(cls, 'other')}"
    return _compiled(
        f"def method(self, other):\n  if other.__class__ is self.__class__:\n    return {pair}\n  return NotImplemented",
        {},
    )


def _hash(cls: type) -> Callable[..., Any]:
    return _compiled(f"def method(self):\n  return hash({_compared(cls, 'self', hashed=True)})", {})


def _repr(cls: type) -> Callable[..., Any]:
    shown = ", ".join(f"{field.name}={{self.{field.name}!r}}" for field in dataclasses.fields(cls) if field.repr)
    method = _compiled(f"def method(self):\n  return f'{{self.__class__.__qualname__}}({shown})'", {})
    return recursive_repr()(method)
