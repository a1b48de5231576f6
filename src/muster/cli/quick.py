"""Reads a plain command line itself: Typer's own reader loads a validation library, which costs as much as all that a command does.

It takes what can mean one thing alone: options by their whole names, values that need no judging, arguments in their places. All else (help, a
mistake, a short form) it leaves to Typer, which has the words for it. It prints nothing and knows no command.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from muster.cli.declare import App, BadParameter, Exit, Said


class _NotPlain(Exception):
    """This command line, or this command, is for Typer to read."""


def run(app: App, words: Sequence[str]) -> bool:
    """Run the command of `app` that `words` name, when they are plain; False, with nothing done, when they are not.

    Raises SystemExit with the command's exit code. A command's own complaint about its options (Typer's errors, raised before it has done
    anything) is left to Typer too.
    """
    try:
        command, rest = _command(app, words)
        values = _values(command, rest)
    except _NotPlain:
        return False
    try:
        command(**values)
    except Exit as end:
        raise SystemExit(end.exit_code) from None
    except BadParameter:
        return False
    raise SystemExit(0)


def _command(app: App, words: Sequence[str]) -> tuple[Callable[..., Any], Sequence[str]]:
    if len(app.commands) == 1:
        return app.commands[0].callback, words
    for each in app.commands:
        if words and each.name == words[0]:
            return each.callback, words[1:]
    raise _NotPlain


class _Parameter:
    """One parameter of a command: how it is written, and what it becomes."""

    def __init__(self, name: str, hint: Any, default: Any) -> None:
        if get_origin(hint) is not Annotated:
            raise _NotPlain
        kind, said, *more = get_args(hint)
        if more or not isinstance(said, Said) or said.envvar is not None:
            raise _NotPlain
        self.name = name
        self.default = default
        self.names = said.names
        self.is_option = bool(said.names)
        self.kind, self.many = _kind(kind)
        if not all(each.startswith("--") and "/" not in each for each in self.names):
            raise _NotPlain

    def value(self, text: str) -> object:
        if self.kind is str:
            return text
        if self.kind is Path:
            return Path(text)
        for member in self.kind:
            if member.value == text:
                return member
        raise _NotPlain


def _kind(hint: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several."""
    if isinstance(hint, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    many = get_origin(hint) is list
    if many:
        (hint,) = get_args(hint)
    if hint in (str, bool, Path) or (isinstance(hint, type) and issubclass(hint, Enum)):
        return hint, many
    raise _NotPlain


def _values(command: Callable[..., Any], words: Sequence[str]) -> Mapping[str, object]:
    hints = get_type_hints(command, include_extras=True)
    parameters = [
        _Parameter(name, hints[name], each.default) for name, each in inspect.signature(command).parameters.items()
    ]
    options = {name: each for each in parameters if each.is_option for name in each.names}
    places = [each for each in parameters if not each.is_option]
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            if not places or places[0].many or places[0].kind is bool:
                raise _NotPlain
            place = places.pop(0)
            found[place.name] = place.value(word)
            continue
        name, has_value, text = word.partition("=")
        if name not in options:
            raise _NotPlain
        _take(options[name], text if has_value else None, left, found)
    for each in parameters:
        if each.name not in found:
            if each.default is inspect.Parameter.empty:
                raise _NotPlain
            found[each.name] = each.default
    return found


def _take(option: _Parameter, text: str | None, left: list[str], found: dict[str, Any]) -> None:
    """The value of an option, written after `=` or as the next word."""
    if option.kind is bool:
        if text is not None or option.many:
            raise _NotPlain
        found[option.name] = True
        return
    if text is None:
        if not left or left[0].startswith("-"):
            raise _NotPlain
        text = left.pop(0)
    value = option.value(text)
    if option.many:
        found.setdefault(option.name, []).append(value)
    else:
        found[option.name] = value
