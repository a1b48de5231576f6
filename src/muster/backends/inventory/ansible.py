"""Nodes from an Ansible inventory file in INI form: hosts with ranges, groups, children, group and host variables.

Groups become labels `group.<name>` = `true`; variables that do not begin with `ansible_` become labels of their own name. Anything that would
run a program (`ansible_*_command`, dynamic inventories, lookups) is not followed.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from muster.model.errors import BadInput, DocumentFaults
from muster.model.node import Node

MOST_HOSTS = 200_000
"""A range such as `n[000000:999999]` is a slip of the keyboard, not a fleet."""

_SECTION = re.compile(r"^\[([^\[\]:\s]+)(?::(vars|children))?\]$")
_RANGE = re.compile(r"\[([0-9]+|[a-z]):([0-9]+|[a-z])(?::([0-9]+))?\]")


class _Inventory:
    """What a file says, line by line, with every fault."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hosts: dict[str, tuple[int, dict[str, str]]] = {}
        self.groups: dict[str, list[str]] = {}
        self.children: dict[str, list[str]] = {}
        self.variables: dict[str, dict[str, str]] = {}
        self.faults: list[tuple[int, str]] = []

    def read(self, text: str) -> None:
        section, kind = "ungrouped", ""
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.strip()
            if not line or line[0] in "#;":
                continue
            if line[0] == "[" and "=" not in line.split("]", 1)[0]:
                matched = _SECTION.match(line.partition("#")[0].strip())
                if matched is None:
                    self.faults.append(
                        (number, f"{line!r} is not a section (as [group], [group:vars] or [group:children])")
                    )
                    continue
                section, kind = matched[1], matched[2] or ""
                continue
            self._line(section, kind, line, number)

    def _line(self, section: str, kind: str, line: str, number: int) -> None:
        if kind == "children":
            self.children.setdefault(section, []).append(line.split()[0])
        elif kind == "vars":
            key, equals, value = line.partition("=")
            if not equals:
                self.faults.append((number, f"{line!r} is not `name=value`"))
            self.variables.setdefault(section, {})[key.strip()] = value.strip().strip("'\"")
        else:
            self._host(section, line, number)

    def _host(self, section: str, line: str, number: int) -> None:
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            self.faults.append((number, f"cannot be read: {error}"))
            return
        found: dict[str, str] = {}
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if not equals:
                self.faults.append((number, f"{word!r} is not `name=value`"))
            found[key] = value
        for host in _expand(words[0]):
            if len(self.hosts) >= MOST_HOSTS:
                self.faults.append((number, f"more than {MOST_HOSTS} hosts"))
                return
            known = self.hosts.setdefault(host, (number, {}))
            known[1].update(found)
            members = self.groups.setdefault(section, [])
            if host not in members:
                members.append(host)

    def groups_of(self, host: str) -> tuple[str, ...]:
        """The groups of a host and the groups above those, the nearer ones last."""
        found = [group for group, members in self.groups.items() if host in members and group != "ungrouped"]
        for _ in range(len(self.children)):
            above = [p for p, kids in self.children.items() if p not in found and any(kid in found for kid in kids)]
            if not above:
                break
            found = above + found
        return tuple(found)


def _expand(pattern: str) -> Iterator[str]:
    matched = _RANGE.search(pattern)
    if matched is None:
        yield pattern
        return
    low, high, step = matched[1], matched[2], int(matched[3] or 1)
    if low.isdigit() and high.isdigit():
        names: Iterator[str] = (str(n).zfill(len(low)) for n in range(int(low), int(high) + 1, max(step, 1)))
    else:
        names = (chr(c) for c in range(ord(low), ord(high) + 1, max(step, 1)))
    for name in names:
        yield from _expand(pattern[: matched.start()] + name + pattern[matched.end() :])


def nodes_from_text(text: str, name: str) -> tuple[Node, ...]:
    """The nodes of an inventory, by name. Raises DocumentFaults with every fault of the file."""
    inventory = _Inventory(name)
    inventory.read(text)
    if not inventory.hosts and not inventory.faults:
        inventory.faults.append((1, "names no host"))
    nodes = [_node(inventory, host, line, own) for host, (line, own) in inventory.hosts.items()]
    if inventory.faults:
        lines = tuple(f"{name}:{line}: {what}" for line, what in sorted(inventory.faults))
        raise DocumentFaults(
            "\n".join(lines), faults=lines, hint="`ansible-inventory -i FILE --list` shows how Ansible reads it"
        )
    return tuple(sorted(nodes, key=lambda node: node.name))


def _node(inventory: _Inventory, host: str, line: int, own: Mapping[str, str]) -> Node:
    groups = inventory.groups_of(host)
    merged = dict(inventory.variables.get("all", {}))
    for group in groups:
        merged |= inventory.variables.get(group, {})
    merged |= own
    labels = {key: value for key, value in merged.items() if not key.startswith("ansible_")}
    labels |= {f"group.{group}": "true" for group in groups}
    port = merged.get("ansible_port")
    if port is not None and not (port.isdigit() and 0 < int(port) < 65536):
        inventory.faults.append((line, f"ansible_port {port!r} of {host} is not a port"))
        port = None
    return Node(
        name=host,
        address=merged.get("ansible_host", host),
        port=int(port) if port else None,
        user=merged.get("ansible_user"),
        labels=labels,
        source=f"{inventory.name}:{line}",
    )


def read(path: Path) -> tuple[Node, ...]:
    """The nodes in the inventory file at `path`. Raises BadInput when it cannot be read."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: cannot be read: {error}", hint="the policy's `inventory: - ansible:` names it"
        ) from None
    return nodes_from_text(text, str(path))


BACKEND = read
