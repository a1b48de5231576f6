"""The audit chain: each entry's hash covers the entry and the hash before it, one chain per rollout.

Pure: the Store appends inside the transaction of the change it records. A chain alone does not prove that its tail was not cut off; its head
is exported (report, log), and `verify` compares against a head kept elsewhere.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from muster.model.frozen import dataclass

GENESIS = "0" * 64


@dataclass(frozen=True, slots=True)
class Record:
    """What is to be written: who did what, where. `body` holds JSON values without floats; `at` is RFC 3339 UTC."""

    at: str
    actor: str
    node: str
    kind: str
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Entry:
    """A record in its chain."""

    chain: str
    seq: int
    record: Record
    prev: str
    hash: str


def canonical(value: object) -> bytes:
    """Canonical JSON: sorted keys, UTF-8, no spaces. Raises TypeError for a float (they have no one text) and for a key that is no text."""
    _one_text(value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> object:
    # json knows dict alone; our borders carry any Mapping (a read-only proxy, for one).
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no canonical JSON")


_SURE = frozenset((str, int, bool, type(None)))
"""Classes of which every value has one text: most of what there is, and not worth a call."""


def _one_text(value: object) -> None:
    if isinstance(value, float):
        raise TypeError("canonical JSON holds no floats")
    if value.__class__ is dict or isinstance(value, Mapping):
        for key, member in value.items():
            # json would write the keys 1 and "1", or None and "null", as one text.
            if not isinstance(key, str):
                raise TypeError(f"canonical JSON has texts as keys, not {type(key).__name__}")
            if member.__class__ not in _SURE:
                _one_text(member)
    elif value.__class__ is list or (isinstance(value, Sequence) and not isinstance(value, str | bytes)):
        for member in value:
            if member.__class__ not in _SURE:
                _one_text(member)


def entry_hash(chain: str, seq: int, record: Record, prev: str) -> str:
    """SHA-256 over the entry's canonical JSON and the hash before it, in hex."""
    body = {
        "chain": chain, "seq": seq, "at": record.at, "actor": record.actor, "node": record.node, "kind": record.kind,
        "body": record.body, "prev": prev,
    }  # fmt: skip
    return hashlib.sha256(canonical(body)).hexdigest()


def append(chain: str, seq: int, record: Record, prev: str) -> Entry:
    """The next entry of `chain`, after the entry whose hash is `prev` (GENESIS for the first, seq 1)."""
    return Entry(chain, seq, record, prev, entry_hash(chain, seq, record, prev))


def faults(entries: Iterable[Entry], *, head: str | None = None) -> tuple[str, ...]:
    """What is wrong with a chain, in order; empty when it holds. With `head` (kept elsewhere) a cut tail is found too."""
    found: list[str] = []
    prev, expected, heads = GENESIS, 1, [GENESIS]
    for entry in entries:
        if entry.seq != expected:
            found.append(f"entry {entry.seq}: entry {expected} is missing")
        if entry.prev != prev:
            found.append(f"entry {entry.seq}: does not follow the entry before it")
        if entry_hash(entry.chain, entry.seq, entry.record, entry.prev) != entry.hash:
            found.append(f"entry {entry.seq}: its content was changed")
        prev, expected = entry.hash, entry.seq + 1
        heads.append(entry.hash)
    if head is not None and head not in heads:
        found.append(f"the head {head[:16]} is not in the chain: entries were cut off or replaced")
    return tuple(found)
