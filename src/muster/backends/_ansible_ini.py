"""Reads an Ansible inventory in INI form into a tree, line by line, as Ansible's own reader does. Pure."""

import ast
import re
import shlex
import warnings
from typing import Final

from muster.backends._ansible_tree import Opaque, Tree, Value, text_value
from muster.model.frozen import dataclass

_SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:#.*)?$")
# A host may begin with a range or an address in brackets. Ansible takes any other open bracket for a host's name, and nobody means that.
_HOST_BRACKET = re.compile(r"\[[^\]]*:[^\]]*\]")
_GROUP = re.compile(r"([^:\]\s]+)\s*(?:#.*)?$")
_NUMBER = re.compile(r"([-+]?[0-9][0-9_.eE+-]*)\s*#.*$", re.ASCII)
_PLAIN = re.compile(r"[ \t!$-&(-\[\]-~]+")
"""A line in which no quote, backslash or comment makes words other than by blanks: `shlex` needs thirty times as long for it."""
_KINDS: Final = ("hosts", "vars", "children")

MOST_LITERAL: Final = 4096
MOST_LINE: Final = 65_536
"""A longer line is no line that anybody wrote, and splitting it into words costs by its length."""


@dataclass(slots=True)
class _Place:
    """Where in the file we are."""

    file: str
    line: int
    group: str
    kind: str


def read(tree: Tree, text: str, file: str) -> None:
    """Add what `text` says to `tree`, with its faults."""
    place = _Place(file, 0, "ungrouped", "hosts")
    declared: dict[str, None] = {}
    mentioned: dict[str, tuple[int, str]] = {}
    for place.line, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if len(line) > MOST_LINE:
            tree.fault(file, place.line, f"is longer than {MOST_LINE} characters")
        elif line[0] != "[":
            _line(tree, place, line, mentioned)
        elif (matched := _SECTION.match(line)) is not None:
            _section(tree, place, matched[1], matched[2] or "hosts", declared, mentioned)
        elif line[-1] == "]" or not _HOST_BRACKET.match(line):
            tree.fault(
                file, place.line, f"{_short(line)} is not a section (as [group], [group:vars] or [group:children])"
            )
        else:
            _line(tree, place, line, mentioned)
    for group, (number, words) in mentioned.items():
        if group not in declared and group not in ("all", "ungrouped"):
            tree.fault(file, number, words)


def _section(
    tree: Tree, place: _Place, group: str, kind: str, declared: dict[str, None], mentioned: dict[str, tuple[int, str]]
) -> None:
    if kind not in _KINDS:
        tree.fault(place.file, place.line, f"[{group}:{kind}]: a section is [group], [group:vars] or [group:children]")
        kind = ""
    elif kind == "vars":
        mentioned.setdefault(group, (place.line, f"[{group}:vars]: there is no group {group}"))
    else:
        declared[group] = None
        tree.group(group)
    place.group, place.kind = group, kind


def _line(tree: Tree, place: _Place, line: str, mentioned: dict[str, tuple[int, str]]) -> None:
    if place.kind == "hosts":
        _host(tree, place, line)
        return
    match place.kind:
        case "vars":
            key, equals, value = line.partition("=")
            if not equals:
                tree.fault(place.file, place.line, f"{_short(line)} is not `name=value`")
                return
            tree.set_group(
                place.group, key.strip(), _value(tree, place, key.strip(), value.strip()), place.file, place.line
            )
        case "children":
            matched = _GROUP.match(line)
            if matched is None:
                tree.fault(place.file, place.line, f"{_short(line)} is not the name of a group")
                return
            mentioned.setdefault(matched[1], (place.line, f"[{place.group}:children]: there is no group {matched[1]}"))
            tree.add_child(place.group, matched[1])
        case _:
            return  # in a section that was refused


def _host(tree: Tree, place: _Place, line: str) -> None:
    try:
        words = line.split() if _PLAIN.fullmatch(line) else shlex.split(line, comments=True)
    except ValueError as error:
        tree.fault(place.file, place.line, f"cannot be read: {error}")
        return
    if not words:
        return
    found: dict[str, Value] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals:
            tree.fault(place.file, place.line, f"{_short(word)} is not `name=value`")
            continue
        found[key] = _value(tree, place, key, value)
    tree.add_hosts(words[0], place.group, found, place.file, place.line)


def _value(tree: Tree, place: _Place, key: str, text: str) -> Value:
    """A text without its quotes and the comment behind it, where Ansible would see a Python literal; otherwise as written."""
    if text.isalnum() and text.isascii() and text != "None":
        return text  # most are: neither quoted, nor a template, nor a list
    value = text_value(_literal(text))
    if isinstance(value, Opaque):
        tree.warn(place.file, place.line, f"{key} is a template; it is not evaluated and left out")
        return value
    if value[:1] in ("[", "{", "(") and value[-1:] in ("]", "}", ")"):
        return Opaque("list")
    return Opaque("nothing") if value == "None" else value


def _literal(text: str) -> str:
    if (matched := _NUMBER.match(text)) is not None:
        return matched[1]
    if text[:1] not in ("'", '"') or len(text) > MOST_LITERAL:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return found if isinstance(found, str) else text


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
