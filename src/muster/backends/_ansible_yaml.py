"""Reads Ansible's YAML: inventories, what `ansible-inventory --list` prints, and the files of group_vars/ and host_vars/. Pure.

People's inventories use anchors, merge keys and Ansible's own tags, which the strict reader of `documents` refuses; here they are read, in
bounded time. A vault's value is never decrypted and never shown, not even in a fault.
"""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from muster.backends._ansible_tree import Opaque, Tree, Value, text_value
from muster.documents import MAX_BYTES, MAX_DEPTH

MOST_VISITS: Final = 2_000_000
"""Aliases can make a small file name a world; a 100,000-node inventory has fewer places than this."""

VAULT: Final = "$ANSIBLE_VAULT"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL: Final = "tag:yaml.org,2002:null"
_MERGE: Final = "tag:yaml.org,2002:merge"


class NotYaml(Exception):
    """The text is no mapping in YAML; `line` says where, `what` why, without quoting the text."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what


def compose(text: str) -> yaml.MappingNode | None:
    """The root mapping of `text`; None when it is empty. Raises NotYaml."""
    if len(text) > MAX_BYTES:
        raise NotYaml(1, f"is longer than {MAX_BYTES} characters")
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):  # the composer would follow any depth until the process dies
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise NotYaml(_line(event), f"is nested deeper than {MAX_DEPTH} levels")
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotYaml(mark.line + 1 if mark is not None else 1, f"is not YAML: {error.problem or 'broken'}") from None
    except (yaml.YAMLError, RecursionError):
        raise NotYaml(1, "is not YAML: a character that it does not allow") from None
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == _NULL):
        return None
    if not isinstance(root, yaml.MappingNode):
        raise NotYaml(_line(root), "is not a mapping of keys")
    return root


def read(tree: Tree, root: yaml.MappingNode, file: str) -> None:
    """Add what an inventory says to `tree`, with its faults."""
    _Reader(tree, file).inventory(root)


def variables(tree: Tree, root: yaml.MappingNode, file: str) -> dict[str, Value]:
    """The variables of a file of group_vars/ or host_vars/; what is left out is said in `tree`."""
    return _Reader(tree, file).variables(root)


class _Bound(Exception):
    """Too many places."""


class _Reader:
    def __init__(self, tree: Tree, file: str) -> None:
        self._tree = tree
        self._file = file
        self._visits = 0

    def inventory(self, root: yaml.MappingNode) -> None:
        try:
            self._inventory(root)
        except _Bound:
            self._tree.fault(self._file, 1, f"its aliases name more than {MOST_VISITS} places")

    def variables(self, root: yaml.MappingNode) -> dict[str, Value]:
        try:
            return {key: self._value(key, node) for key, node in self._pairs(root)}
        except _Bound:
            self._tree.fault(self._file, 1, f"its aliases name more than {MOST_VISITS} places")
            return {}

    def _inventory(self, root: yaml.MappingNode) -> None:
        for key, node in self._pairs(root):
            if key == "plugin" and isinstance(node, yaml.ScalarNode):
                self._fault(
                    node,
                    "is the configuration of a dynamic inventory, which is not run; write down what it says: ansible-inventory --list",
                )
            elif key == "_meta":
                self._meta(node)
            else:
                self._group(key, node, 0)

    def _meta(self, node: yaml.Node) -> None:
        """Variables of hosts, as `ansible-inventory --list` prints them."""
        for key, hostvars in self._pairs(node):
            if key == "hostvars":
                for host, variables in self._pairs(hostvars):
                    self._tree.add_hosts(host, "all", dict(self._values(variables)), self._file, _line(variables))

    def _group(self, name: str, node: yaml.Node, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._fault(node, f"group {name} stands under itself")
            return
        if not (isinstance(node, yaml.MappingNode) or _is_null(node)):
            self._tree.warn(self._file, _line(node), f"{name} is not a group and is left out")
            return
        self._tree.group(name)
        for key, section in self._pairs(node):
            match key:
                case "vars":
                    for variable, value in self._pairs(section):
                        self._tree.set_group(name, variable, self._value(variable, value), self._file, _line(value))
                case "children":
                    for child, inner in self._entries(section, key, name):
                        self._group(child, inner, depth + 1)
                        self._tree.add_child(name, child)
                case "hosts":
                    for pattern, inner in self._entries(section, key, name):
                        self._tree.add_hosts(pattern, name, dict(self._values(inner)), self._file, _line(inner))
                case _:
                    self._tree.warn(
                        self._file,
                        _line(section),
                        f"{key} of group {name} is left out: a group has hosts, children and vars",
                    )

    def _entries(self, node: yaml.Node, key: str, group: str) -> Iterator[tuple[str, yaml.Node]]:
        """`{name: ...}`, one name, or a list of names."""
        nothing = yaml.ScalarNode(_NULL, "", node.start_mark, node.end_mark)
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                if isinstance(item, yaml.ScalarNode) and item.value:
                    yield item.value, yaml.ScalarNode(_NULL, "", item.start_mark, item.end_mark)
                else:
                    self._fault(item, f"{key} of group {group} is a list of names, or a mapping")
        elif isinstance(node, yaml.ScalarNode) and not _is_null(node):
            yield node.value, nothing
        else:
            yield from self._pairs(node)

    def _values(self, node: yaml.Node) -> Iterator[tuple[str, Value]]:
        for key, value in self._pairs(node):
            yield key, self._value(key, value)

    def _value(self, key: str, node: yaml.Node) -> Value:
        """A scalar as it was written, whatever YAML would make of it."""
        if node.tag in ("!vault", "!vault-encrypted"):
            self._tree.warn(self._file, _line(node), f"{key} is encrypted by ansible-vault and left out")
            return Opaque("vault")
        if not isinstance(node, yaml.ScalarNode):
            return Opaque("list")
        if _is_null(node):
            return Opaque("nothing")
        if node.value.startswith(VAULT):
            self._tree.warn(self._file, _line(node), f"{key} is encrypted by ansible-vault and left out")
            return Opaque("vault")
        if node.tag == "!unsafe":
            return str(node.value)
        value = text_value(node.value)
        if isinstance(value, Opaque):
            self._tree.warn(self._file, _line(node), f"{key} is a template; it is not evaluated and left out")
        return value

    def _pairs(self, node: yaml.Node, depth: int = 0) -> Iterator[tuple[str, yaml.Node]]:
        """The keys of a mapping with merge keys followed, an own key before a merged one; the last of a key counts, as for Ansible."""
        if _is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            self._fault(node, "is not a mapping of keys")
            return
        merged: dict[str, yaml.Node] = {}
        own: dict[str, yaml.Node] = {}
        for key, value in node.value:
            self._visits += 1
            if self._visits > MOST_VISITS or depth > MAX_DEPTH:
                raise _Bound
            if key.tag == _MERGE:
                for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    merged = {**dict(self._pairs(each, depth + 1)), **merged}
            elif not isinstance(key, yaml.ScalarNode):
                self._fault(key, "a key is a plain word")
            else:
                if key.value in own:
                    self._tree.warn(self._file, _line(key), f"{key.value} stands twice; the last one counts")
                own[key.value] = value
        yield from {**merged, **own}.items()

    def _fault(self, node: yaml.Node, what: str) -> None:
        self._tree.fault(self._file, _line(node), what)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
