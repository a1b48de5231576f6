"""Nodes from an Ansible inventory: a file in INI or YAML, what `ansible-inventory --list` prints, or a folder of them.

Groups become labels `group.<name>` = `true`; variables that do not begin with `ansible_`, and the files of group_vars/ and host_vars/ beside
the inventory, become labels of their own name, by Ansible's order of precedence. Nothing is run: a dynamic inventory is refused by name, a
template is not evaluated, a vault is not opened.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from muster.backends import _ansible_ini, _ansible_yaml
from muster.backends._ansible_tree import Beside, Tree, Value, listing
from muster.documents import MAX_BYTES
from muster.model.errors import BadInput
from muster.model.inventory import Listing

HINT: Final = "the policy's `inventory: - ansible:` names it"
MOST_FILES: Final = 100_000
YAML: Final = (".yml", ".yaml", ".json")

_PASSED_OVER: Final = (
    ".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry",
)  # fmt: skip
_NO_SOURCES: Final = ("host_vars", "group_vars", "vars_plugins")


def read(path: Path) -> Listing:
    """The nodes of the inventory at `path`. Raises BadInput when it cannot be read, DocumentFaults with every fault of its files."""
    tree = Tree()
    files = list(_sources(path))
    if not files:
        raise BadInput(f"{path}: holds no inventory", hint=HINT)
    for file in files:
        _read_file(tree, file)
    folder = path if path.is_dir() else path.parent
    beside = Beside(
        _vars_files(tree, folder / "group_vars", tree.groups), _vars_files(tree, folder / "host_vars", tree.hosts)
    )
    return listing(tree, str(path), beside)


def from_text(text: str, name: str) -> Listing:
    """The nodes of one INI text without anything beside it. Raises DocumentFaults."""
    tree = Tree()
    _ansible_ini.read(tree, text, name)
    return listing(tree, name)


def from_yaml(text: str, name: str) -> Listing:
    """The nodes of one YAML text without anything beside it. Raises DocumentFaults."""
    tree = Tree()
    _read_yaml(tree, text, name)
    return listing(tree, name)


def _sources(path: Path, depth: int = 0) -> Iterator[Path]:
    """The files of an inventory, in Ansible's order."""
    if depth > 8 or not path.is_dir():
        yield path
        return
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}", hint=HINT) from None
    for name in names:
        if not (name.startswith(".") or name in _NO_SOURCES or name.endswith(_PASSED_OVER)):
            yield from _sources(path / name, depth + 1)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}", hint=HINT) from None
    if len(content) > MAX_BYTES:
        raise BadInput(
            f"{path}: is longer than {MAX_BYTES} bytes", hint="split it: a folder of inventories is read too"
        )
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path}:{line}: is not text in UTF-8", hint="save it as UTF-8") from None


def _read_file(tree: Tree, path: Path) -> None:
    text, name = _text(path), str(path)
    if text.startswith("#!"):
        raise BadInput(
            f"{path}: is a program; no program is run to find nodes",
            hint=f"write down what it says: {path} --list > inventory.json",
        )
    if text.startswith(_ansible_yaml.VAULT):
        raise BadInput(
            f"{path}: is encrypted by ansible-vault; no vault is opened",
            hint="keep secrets in group_vars/, the hosts in the open",
        )
    if path.suffix == ".toml":
        raise BadInput(f"{path}: TOML inventories are not read", hint="ansible-inventory --list > inventory.json")
    if path.suffix in YAML:
        _read_yaml(tree, text, name)
        return
    if not path.suffix:
        try:
            root = _ansible_yaml.compose(text)
        except _ansible_yaml.NotYaml:
            root = None
        if root is not None:
            _ansible_yaml.read(tree, root, name)
            return
    _ansible_ini.read(tree, text, name)


def _read_yaml(tree: Tree, text: str, name: str) -> None:
    try:
        root = _ansible_yaml.compose(text)
    except _ansible_yaml.NotYaml as fault:
        tree.fault(name, fault.line, fault.what)
        return
    if root is None:
        tree.fault(name, 1, "is empty")
        return
    _ansible_yaml.read(tree, root, name)


def _vars_files(tree: Tree, folder: Path, names: object) -> dict[str, dict[str, Value]]:
    """The variables in `folder` for those of `names` that have files there."""
    found: dict[str, dict[str, Value]] = {}
    if not folder.is_dir() or not isinstance(names, dict):
        return found
    try:
        present = sorted(os.listdir(folder))[:MOST_FILES]
    except OSError as error:
        raise BadInput(f"{folder}: cannot be read: {error.strerror}", hint="Ansible would read it too") from None
    for name in present:
        stem = next((name.removesuffix(ext) for ext in YAML if name.endswith(ext)), name)
        # As for Ansible the first of NAME, NAME.yml, NAME.yaml, NAME.json counts, and a folder only without an ending.
        for owner in dict.fromkeys((name, stem)):
            if owner in names and owner not in found:
                found[owner] = _vars_of(tree, folder, owner)
    return found


def _vars_of(tree: Tree, folder: Path, owner: str) -> dict[str, Value]:
    for ending in ("", *YAML):
        path = folder / (owner + ending)
        if path.is_dir():
            if ending == "":
                merged: dict[str, Value] = {}
                for file in _files_under(path):
                    merged |= _vars_file(tree, file)
                return merged
        elif path.exists():
            return _vars_file(tree, path)
    return {}


def _files_under(folder: Path, depth: int = 0) -> Iterator[Path]:
    for name in sorted(os.listdir(folder)) if depth <= 8 else ():
        path = folder / name
        if name.startswith(".") or name.endswith("~"):
            continue
        if path.is_dir():
            yield from _files_under(path, depth + 1)
        elif path.suffix in ("", *YAML):
            yield path


def _vars_file(tree: Tree, path: Path) -> dict[str, Value]:
    text, name = _text(path), str(path)
    if text.startswith(_ansible_yaml.VAULT):
        tree.warn(name, 1, "is encrypted by ansible-vault and left out")
        return {}
    try:
        root = _ansible_yaml.compose(text)
    except _ansible_yaml.NotYaml as fault:
        tree.fault(name, fault.line, fault.what)
        return {}
    return {} if root is None else _ansible_yaml.variables(tree, root, name)


BACKEND = read
