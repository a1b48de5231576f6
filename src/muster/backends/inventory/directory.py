"""Nodes from a folder of carried outputs, for sites that no connection reaches.

    DIR/<node>.out                what the text of `muster facts script` printed on the node
    DIR/<node>/<source>.txt       or the output of single sources, named as `muster facts list` names them

A source that has no file is Unknown, never absent. Links and devices are not followed: the folder may come from anywhere.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from muster.model.errors import BadInput
from muster.model.fact import Fact, FactSpec, FactValue, NodeFacts, RawOutput, Unknown
from muster.model.inventory import Carried, Listing
from muster.model.nearest import nearest
from muster.model.node import FILES_PREFIX, Node
from muster.node.carry import parse_carried

MOST_NODES: Final = 200_000
MOST_BYTES: Final = 4 * 1024 * 1024
AHEAD_S: Final = 300
"""Clocks differ by seconds; one that is further ahead is wrong, and the file's own time is believed instead."""

HINT: Final = "DIR/<node>.out as `muster facts script` prints it, or DIR/<node>/<source>.txt"

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)


def read(path: Path) -> Listing:
    """The nodes in the folder, by name. Raises BadInput when it is none, or holds none."""
    entries, warnings = _entries(path)
    if not entries:
        raise BadInput(f"{path}: holds no outputs of nodes", hint=HINT)
    nodes = tuple(
        Node(name, f"{FILES_PREFIX}{path}", None, None, {}, str(path / entry))
        for name, entry in sorted(entries.items())
    )
    return Listing(str(path), nodes, tuple(warnings))


def carried(path: Path, specs: Sequence[FactSpec], now: datetime) -> Carried:
    """What the outputs in the folder say of each node, with the time at which each was made. Raises BadInput as `read` does."""
    entries, warnings = _entries(path)
    if not entries:
        raise BadInput(f"{path}: holds no outputs of nodes", hint=HINT)
    facts = []
    for name, entry in sorted(entries.items()):
        file = path / entry
        found = (
            _from_script(file, name, specs, now, warnings)
            if entry.endswith(".out")
            else _from_files(file, name, specs, now, warnings)
        )
        facts.append(found)
    return Carried(tuple(facts), tuple(warnings))


def _entries(path: Path) -> tuple[dict[str, str], list[str]]:
    """Node -> its file or folder."""
    found: dict[str, str] = {}
    warnings: list[str] = []
    try:
        listed = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}", hint=HINT) from None
    for entry in listed:
        if entry.name.startswith("."):
            continue
        plain, folder = entry.is_file(follow_symlinks=False), entry.is_dir(follow_symlinks=False)
        name = entry.name.removesuffix(".out") if plain else entry.name
        if not (folder or (plain and entry.name.endswith(".out"))):
            warnings.append(f"{path}/{_shown(entry.name)}: is neither NODE.out nor a node's folder")
        elif not _NODE.fullmatch(name):
            warnings.append(f"{path}/{_shown(entry.name)}: is not the name of a node")
        elif name in found:
            warnings.append(f"{path}/{entry.name}: {name} has a folder too; the script's output counts")
            found[name] = f"{name}.out"
        elif len(found) >= MOST_NODES:
            raise BadInput(f"{path}: holds more than {MOST_NODES} nodes")
        else:
            found[name] = entry.name
    return found, warnings


def _from_script(file: Path, name: str, specs: Sequence[FactSpec], now: datetime, warnings: list[str]) -> NodeFacts:
    content, made = _content(file, MOST_BYTES)
    if content is None:
        return NodeFacts(name, now, {}, Unknown(f"{file}: cannot be read"))
    told = parse_carried(content)
    if told is None:
        return NodeFacts(name, made, {}, Unknown(f"{file}: is not the output of `muster facts script`"))
    at = datetime.fromtimestamp(told.epoch_s, UTC)
    if at > now + timedelta(seconds=AHEAD_S):
        warnings.append(f"{file}: the node's clock was ahead ({at:%Y-%m-%d}); the file's own time is taken")
        at = made
    if told.hostname.lower().partition(".")[0] != name.lower().partition(".")[0]:
        warnings.append(f"{file}: was made on a node that calls itself {told.hostname}")
    raw = {
        key: RawOutput(frame.exit_status, frame.stdout, frame.truncated, frame.note)
        for key, frame in told.frames.items()
    }
    return _facts(name, {key: (each, at) for key, each in raw.items()}, specs, at)


def _from_files(folder: Path, name: str, specs: Sequence[FactSpec], now: datetime, warnings: list[str]) -> NodeFacts:
    caps = {spec.name: spec.cap_bytes for spec in specs}
    raw: dict[str, tuple[RawOutput, datetime]] = {}
    for file in _plain_files(folder, warnings):
        source = file.name.removesuffix(".txt")
        if source not in caps or not file.name.endswith(".txt"):
            near = nearest(source, list(caps))
            warnings.append(
                f"{folder}/{_shown(file.name)}: is no source of facts"
                + (f"; did you mean {near[0]}.txt?" if near else "")
            )
            continue
        content, made = _content(file, caps[source] + 1)
        if content is not None:
            raw[source] = (RawOutput(0, content[: caps[source]], len(content) > caps[source]), min(made, now))
    if not raw:
        return NodeFacts(name, now, {}, Unknown(f"{folder}: holds no output of a source of facts"))
    return _facts(name, raw, specs, min(at for _, at in raw.values()))


def _facts(
    name: str, raw: Mapping[str, tuple[RawOutput, datetime]], specs: Sequence[FactSpec], observed_at: datetime
) -> NodeFacts:
    facts: dict[str, Fact] = {}
    for spec in specs:
        if spec.name in raw:
            output, at = raw[spec.name]
            values: Mapping[str, FactValue] = spec.read(output)
        else:
            at = observed_at
            values = {
                path: Unknown(f"{spec.name}: no output of it was carried here")
                for path in spec.provides
                if "*" not in path
            }
        facts |= {path: Fact(path, value, spec.name, at, spec.momentary) for path, value in values.items()}
    return NodeFacts(name, observed_at, facts)


def _plain_files(folder: Path, warnings: list[str]) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        warnings.append(f"{folder}: cannot be read: {error.strerror}")
        return
    for entry in entries:
        if entry.is_file(follow_symlinks=False):
            if not entry.name.startswith("."):
                yield folder / entry.name
        else:
            warnings.append(f"{folder}/{_shown(entry.name)}: is no plain file and is not read")


def _content(file: Path, most: int) -> tuple[bytes | None, datetime]:
    """The beginning of a file, and when it was written."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            made = datetime.fromtimestamp(int(os.fstat(opened.fileno()).st_mtime), UTC)
            return opened.read(most), made
    except (OSError, ValueError, OverflowError):
        return None, datetime.fromtimestamp(0, UTC)


def _shown(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()[:80]


BACKEND = read
