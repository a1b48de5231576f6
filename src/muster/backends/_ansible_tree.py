"""An Ansible inventory as a tree of groups, and what it comes to for each host by Ansible's own order of precedence. Pure.

Nothing is run, looked up or decrypted: a value that is a template or a vault's stays out, under its name, with a warning that never shows
it. The readers of INI and YAML fill the tree; every fault of every file is kept, each with its line.
"""

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from operator import attrgetter
from typing import Final, TypeAlias

from muster.model.errors import DocumentFaults
from muster.model.frozen import dataclass
from muster.model.inventory import Listing
from muster.model.node import LOCAL_ADDRESS, Node

MOST_HOSTS: Final = 200_000
"""A range such as `n[000000:999999]` is a slip of the keyboard, not a fleet."""

MOST_FAULTS: Final = 200
MOST_LABEL: Final = 256
"""A longer text is a document and no label."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is no text: a list, a mapping, nothing, a template, a secret. It still hides what stands below it."""

    kind: str


Value: TypeAlias = str | Opaque


@dataclass(slots=True)
class Group:
    """One group while it is read."""

    name: str
    variables: dict[str, Value] = field(default_factory=dict)
    parents: dict[str, None] = field(default_factory=dict)
    priority: int = 1


@dataclass(slots=True)
class Host:
    """One host while it is read; `line` is where it stood first, as `file:line`."""

    name: str
    line: str
    groups: dict[str, None] = field(default_factory=dict)
    variables: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands in group_vars/ and host_vars/ beside the inventory, by group and by host."""

    groups: Mapping[str, Mapping[str, Value]]
    hosts: Mapping[str, Mapping[str, Value]]


NOTHING_BESIDE: Final = Beside({}, {})

_HOST_PORT = re.compile(r"((?:[^:\[\]]|\[[^\]]*\])+):([0-9]+)$", re.ASCII)
_BRACKETED_PORT = re.compile(r"\[(.+)\]:([0-9]+)$", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_RANGE = re.compile(r"\[([^\[\]]*:[^\[\]]*)\]")
_TEMPLATE: Final = ("{{", "{%", "{#")
_SECRET = re.compile(
    r"pass(wd|word|phrase)?$|passw|secret|token|credential|api_?key|private_?key|^vault_", re.IGNORECASE
)
_PLAIN_GROUPS: Final = ("all", "ungrouped")


class Tree:
    """What the files of an inventory say so far."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {name: Group(name) for name in _PLAIN_GROUPS}
        self.hosts: dict[str, Host] = {}
        self.faults: list[tuple[str, int, str]] = []
        self.warnings: dict[str, None] = {}

    def fault(self, file: str, line: int, what: str) -> None:
        """Something that Ansible would refuse too."""
        self.faults.append((file, line, what))

    def warn(self, file: str, line: int, what: str) -> None:
        """Something that is left out."""
        self.warnings[f"{file}:{line}: {what}"] = None

    def group(self, name: str) -> Group:
        """The group of that name, made when it is new."""
        return self.groups.setdefault(name, Group(name))

    def add_child(self, parent: str, child: str) -> None:
        """Put a group under another one. Rings are found at the end."""
        self.group(parent)
        self.group(child).parents[parent] = None

    def set_group(self, group: str, key: str, value: Value, file: str, line: int) -> None:
        """Give a group a variable."""
        if key != "ansible_group_priority":
            self.group(group).variables[key] = value
        elif isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value, re.ASCII):
            self.group(group).priority = int(value)
        else:
            self.fault(file, line, "ansible_group_priority is not a whole number")

    def add_hosts(self, pattern: str, group: str, variables: Mapping[str, Value], file: str, line: int) -> None:
        """Put the hosts of a pattern (`n[01:16].site:2222`) into a group, with variables of their own."""
        most = MOST_HOSTS - len(self.hosts)
        try:
            port, names = (None, (pattern,)) if _is_name(pattern) and most > 0 else _hosts(pattern, most)
        except ValueError as error:
            self.fault(file, line, str(error))
            return
        self.group(group)
        for name in names:
            host = self.hosts.get(name)
            if host is None:
                host = self.hosts[name] = Host(name, f"{file}:{line}")
                if port is not None:
                    host.variables["ansible_port"] = port
            host.groups[group] = None
            host.variables.update(variables)


def text_value(text: str) -> Value:
    """A text, or what it is instead when it must stay out."""
    return Opaque("template") if any(mark in text for mark in _TEMPLATE) else text


def _is_name(pattern: str) -> bool:
    """Whether a pattern is the name of one host, as nearly all are."""
    return _NAME.fullmatch(pattern) is not None and pattern != "---"


def _hosts(pattern: str, most: int) -> tuple[str | None, Sequence[str]]:
    """The port and the names of a pattern. Raises ValueError in words."""
    port: str | None = None
    matched = _BRACKETED_PORT.match(pattern) or _HOST_PORT.match(pattern)
    if matched is not None:
        pattern, port = matched[1], matched[2]
    elif pattern.endswith(":"):
        raise ValueError(f"{_short(pattern)} ends in a colon, which begins a port")
    if pattern.strip() == "---":
        raise ValueError("`---` begins a YAML file; name it .yml or .yaml")
    names = [pattern]
    while any(_RANGE.search(name) for name in names):
        grown: list[str] = []
        for name in names:
            found = _RANGE.search(name)
            if found is None:
                grown.append(name)
                continue
            for each in _range(found[1], most):
                grown.append(name[: found.start()] + each + name[found.end() :])
                if len(grown) > most:
                    raise ValueError(f"{_short(pattern)} names more than {MOST_HOSTS} hosts")
        names = grown
    if len(names) > most:
        raise ValueError(f"more than {MOST_HOSTS} hosts")
    return port, names


def _range(text: str, most: int) -> Iterator[str]:
    """`01:16`, `a:f`, `0:100:2`, as Ansible counts."""
    low, high, *rest = (part.strip() for part in text.split(":"))
    step = rest[0] if rest else "1"
    low = low or "0"
    if len(rest) > 1 or not _whole(step) or int(step) < 1:
        raise ValueError(f"[{_short(text)}] is not a range: begin:end or begin:end:step")
    letters = string.ascii_letters
    if len(low) == len(high) == 1 and low in letters and high in letters:
        if letters.index(low) > letters.index(high):
            raise ValueError(f"[{_short(text)}] ends before it begins")
        yield from letters[letters.index(low) : letters.index(high) + 1 : int(step)]
        return
    if not _whole(low) or not _whole(high):
        raise ValueError(f"[{_short(text)}] is not a range of numbers or letters")
    padded = low[0] == "0" and len(low) > 1
    if padded and len(low) != len(high):
        raise ValueError(f"[{_short(text)}] begins with zeros: write both ends with as many digits")
    if int(low) > int(high):
        raise ValueError(f"[{_short(text)}] ends before it begins")
    if (int(high) - int(low)) // int(step) >= most:
        raise ValueError(f"[{_short(text)}] names more than {MOST_HOSTS} hosts")
    for number in range(int(low), int(high) + 1, int(step)):
        yield str(number).zfill(len(low)) if padded else str(number)


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


class _Resolved:
    """Ansible's answer for every host: its groups, the nearer ones last, and its variables."""

    def __init__(self, tree: Tree, beside: Beside) -> None:
        self._tree = tree
        self._beside = beside
        self._depths = self._depth()
        self._known: dict[frozenset[str], tuple[tuple[str, ...], Mapping[str, Value]]] = {}

    def _depth(self) -> Mapping[str, int]:
        """The longest way down from `all`, for each group. A ring is a fault, and its groups have no depth."""
        groups = self._tree.groups
        waiting = {name: sum(parent in groups for parent in group.parents) for name, group in groups.items()}
        children: dict[str, list[str]] = {}
        for name, group in groups.items():
            for parent in group.parents:
                children.setdefault(parent, []).append(name)
        depths = {name: (0 if name == "all" else 1) for name, count in waiting.items() if count == 0}
        ready = list(depths)
        while ready:
            parent = ready.pop()
            for child in children.get(parent, ()):
                depths[child] = max(depths.get(child, 1), depths[parent] + 1)
                waiting[child] -= 1
                if waiting[child] == 0:
                    ready.append(child)
        rings = sorted(name for name, count in waiting.items() if count > 0)
        if rings:
            self._tree.fault(
                self._tree_name(), 1, f"the groups {', '.join(rings[:6])} stand under each other in a ring"
            )
        return {name: depth for name, depth in depths.items() if waiting[name] == 0}

    def _tree_name(self) -> str:
        return next((host.line.rpartition(":")[0] for host in self._tree.hosts.values()), "inventory")

    def of(self, host: Host) -> tuple[tuple[str, ...], dict[str, Value]]:
        direct = frozenset(host.groups)
        if direct not in self._known:
            self._known[direct] = self._shared(direct)
        groups, shared = self._known[direct]
        return groups, {**shared, **host.variables, **self._beside.hosts.get(host.name, {})}

    def _shared(self, direct: frozenset[str]) -> tuple[tuple[str, ...], Mapping[str, Value]]:
        groups = self._tree.groups
        found: dict[str, None] = {}
        waiting = sorted(direct)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = None
                waiting += groups[name].parents
        named = [name for name in found if name not in _PLAIN_GROUPS]
        if not named:
            named = ["ungrouped"]
        ordered = sorted(named, key=lambda name: (self._depths.get(name, 0), groups[name].priority, name))
        merged = dict(groups["all"].variables)
        for name in ordered:
            merged |= groups[name].variables
        merged |= self._beside.groups.get("all", {})
        for name in ordered:
            merged |= self._beside.groups.get(name, {})
        return tuple(name for name in ordered if name != "ungrouped"), merged


def variables_of(tree: Tree, beside: Beside = NOTHING_BESIDE) -> Mapping[str, Mapping[str, Value]]:
    """What each host's variables come to. Rings and other faults are added to the tree."""
    resolved = _Resolved(tree, beside)
    return {name: resolved.of(host)[1] for name, host in tree.hosts.items()}


def listing(tree: Tree, name: str, beside: Beside = NOTHING_BESIDE) -> Listing:
    """The nodes of an inventory, by name. Raises DocumentFaults with every fault of its files."""
    resolved = _Resolved(tree, beside)
    if not tree.hosts and not tree.faults:
        tree.fault(name, 1, "names no host")
    for both in sorted(set(tree.hosts) & set(tree.groups)):
        file, _, line = tree.hosts[both].line.rpartition(":")
        tree.warn(
            file,
            int(line),
            f"{both} is a host and a group; Ansible gives the host's variables to the group, Muster to the host",
        )
    nodes = [_node(tree, host, *resolved.of(host)) for host in tree.hosts.values()]
    if tree.faults:
        found = sorted(set(tree.faults))
        lines = [f"{file}:{line}: {what}" for file, line, what in found[:MOST_FAULTS]]
        if len(found) > MOST_FAULTS:
            lines.append(f"{name}: {len(found) - MOST_FAULTS} more faults not shown")
        hint = "`ansible-inventory -i FILE --list` shows how Ansible reads it"
        raise DocumentFaults("\n".join(lines), faults=tuple(lines), hint=hint)
    return Listing(name, tuple(sorted(nodes, key=attrgetter("name"))), tuple(tree.warnings))


def _node(tree: Tree, host: Host, groups: tuple[str, ...], variables: Mapping[str, Value]) -> Node:
    keys, is_plain = _labels_among(tuple(variables))
    labels = {key: value for key in keys if isinstance(value := variables[key], str) and _is_short(value)}
    for group in groups:
        labels[f"group.{group}"] = "true"
    if is_plain:
        return Node(host.name, host.name, None, None, labels, host.line)
    file, _, line = host.line.rpartition(":")

    def text(*keys: str) -> str | None:
        for key in keys:
            value = variables.get(key)
            if isinstance(value, str) and value:
                return value
            if isinstance(value, Opaque) and value.kind in ("template", "vault"):
                tree.warn(
                    file,
                    int(line),
                    f"{key} of {host.name} is a {value.kind} and was not read: the node is reached without it",
                )
        return None

    connection = text("ansible_connection") or "ssh"
    if connection not in (
        "ssh",
        "local",
        "smart",
        "paramiko",
        "paramiko_ssh",
        "ansible.builtin.ssh",
        "ansible.builtin.local",
    ):
        tree.warn(file, int(line), f"{host.name} has ansible_connection {_short(connection)}; it is reached by SSH")
    port = text("ansible_ssh_port", "ansible_port")
    if port is not None and not (_whole(port) and 0 < int(port) < 65536):
        tree.fault(file, int(line), f"ansible_port {_short(port)} of {host.name} is not a port")
        port = None
    return Node(
        name=host.name,
        address=LOCAL_ADDRESS
        if connection.endswith("local")
        else text("ansible_ssh_host", "ansible_host") or host.name,
        port=int(port) if port else None,
        user=text("ansible_ssh_user", "ansible_user"),
        labels=labels,
        source=host.line,
    )


def _is_short(value: str) -> bool:
    return len(value) <= MOST_LABEL and "\n" not in value


@lru_cache(maxsize=4096)
def _labels_among(keys: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """Which of these variables may be labels, not being named like a secret; and whether none of them says how to reach the host."""
    theirs = tuple(key for key in keys if not key.startswith("ansible_"))
    return tuple(key for key in theirs if not _SECRET.search(key)), len(theirs) == len(keys)
