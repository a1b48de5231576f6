"""Nodes from a plain file: one name a line, `#` begins a comment. How a name is reached is left to the SSH configuration."""

from pathlib import Path

from muster.documents import MAX_BYTES
from muster.model.errors import BadInput, DocumentFaults
from muster.model.node import Node


def nodes_from_text(text: str, name: str) -> tuple[Node, ...]:
    """The nodes of a hosts file, by name. Raises DocumentFaults with every fault of the file."""
    found: dict[str, Node] = {}
    faults: list[str] = []
    for number, raw in enumerate(text.splitlines(), 1):
        words = raw.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 1:
            faults.append(f"{name}:{number}: one name a line, not {len(words)}")
        elif words[0] in found:
            faults.append(
                f"{name}:{number}: {words[0]} stands already in line {found[words[0]].source.rpartition(':')[2]}"
            )
        else:
            found[words[0]] = Node(words[0], words[0], None, None, {}, f"{name}:{number}")
    if not found and not faults:
        faults.append(f"{name}:1: names no node")
    if faults:
        raise DocumentFaults("\n".join(faults), faults=tuple(faults), hint="write one node name a line")
    return tuple(found[key] for key in sorted(found))


def read(path: Path) -> tuple[Node, ...]:
    """The nodes in the hosts file at `path`. Raises BadInput when it cannot be read."""
    hint = "the policy's `inventory: - hosts:` names it"
    try:
        with path.open("rb") as file:
            # Bounded, so that a device or an endless pipe given by mistake is refused and not read for ever.
            content = file.read(MAX_BYTES + 1)
        text = content.decode().removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}", hint=hint) from None
    if len(content) > MAX_BYTES:
        raise BadInput(f"{path}: cannot be read: it is longer than {MAX_BYTES} bytes", hint=hint)
    return nodes_from_text(text, str(path))


BACKEND = read
