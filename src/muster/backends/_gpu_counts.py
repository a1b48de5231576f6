"""How many GPUs each node has had, in a small table of its own.

Every check asks it of all nodes, and in the history it would have to be looked for among millions of rows.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from muster.model.fact import Fact, NodeFacts

TABLE = """
CREATE TABLE IF NOT EXISTS gpu_counts (
  node INTEGER NOT NULL, at INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (node, at)) WITHOUT ROWID
"""
"""`node` is the number of the node's look, `at` microseconds since 1970: when this count was first seen after another one."""

_PATH = "gpu.count"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def note(on: sqlite3.Connection, no: int, look: NodeFacts) -> None:
    """Keep the count of a look that changed, if it is another one than the last."""
    fact = look.facts.get(_PATH)
    if fact is None or fact.value.__class__ is not int:
        return
    last = on.execute("SELECT count FROM gpu_counts WHERE node = ? ORDER BY at DESC LIMIT 1", (no,)).fetchone()
    if last is None or last[0] != fact.value:
        on.execute("INSERT OR REPLACE INTO gpu_counts VALUES (?, ?, ?)", (no, _micros(fact.observed_at), fact.value))


def add(on: sqlite3.Connection, no: int, past: Sequence[Fact]) -> None:
    """Keep the counts in a history that an older form of the store held."""
    counts = [each for each in past if each.path == _PATH and each.value.__class__ is int]
    rows = [(no, _micros(each.observed_at), each.value) for each in counts]
    on.executemany("INSERT OR IGNORE INTO gpu_counts VALUES (?, ?, ?)", rows)


def most(on: sqlite3.Connection, since: datetime) -> Mapping[str, int]:
    """See `ports.Store.most_gpus`."""
    rows = on.execute(
        "SELECT l.node, max(c.count) FROM gpu_counts c JOIN looks l ON l.no = c.node WHERE c.at >= "
        "coalesce((SELECT max(b.at) FROM gpu_counts b WHERE b.node = c.node AND b.at <= ?), 0) GROUP BY c.node",
        (_micros(since),),
    )
    return dict(rows.fetchall())


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
