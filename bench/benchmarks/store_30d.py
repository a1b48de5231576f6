"""GiB of SQLite for thirty days of hourly looks at 10,000 nodes, with 1 % of the lasting facts of every node changed at each look.

The sample looks at every fiftieth node in the first 72 of the 720 hours, and goes on from its growth; `--full` takes the whole.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.fleet import NODES, T0, cpu_sample, looked, outputs
from bench.harness import Benchmark, Sample
from muster.backends.store.sqlite import open_store
from muster.model.fact import BySource, FactValue, NodeFacts, Told

ROUNDS = 720
EVERY_NODE, EVERY_ROUND = 50, 10
SETTLED = 12
"""After so many rounds the pages that every look uses anew are there; from then on the store grows by its history alone."""
_GIB = 1024**3


def _after(before: NodeFacts, number: int, at: int) -> NodeFacts:
    """The look `at` at a node: one in a hundred of its lasting facts has another value, of the same length or a little longer."""
    now = T0 + timedelta(hours=at)
    assert isinstance(before.facts, BySource)
    told, place = [], 0
    for each in before.facts.told:
        first = (-place - 37 * at - 11 * number) % 100
        place += len(each.values)
        values = each.values
        others = [] if each.momentary else list(values)[first::100]
        if others:
            values = {**values, **{path: _other(values[path], at) for path in others}}
        told.append(Told(each.source, now, values, each.momentary))
    return NodeFacts(before.node, now, BySource(told))


def _other(value: FactValue, at: int) -> FactValue:
    if isinstance(value, str):
        return f"{value[:-4]}{at:04d}"
    return not value if isinstance(value, bool) else value


def _size(nodes: int, rounds: int, tell: Callable[[int, float], None]) -> tuple[float, float]:
    """Bytes after the first rounds, and bytes that each later one added. `tell` is told of each round and of the bytes after it."""
    with TemporaryDirectory(prefix="muster-bench-") as folder:
        file = Path(folder) / "muster.db"
        store = open_store(str(file))
        known = [looked(number, outputs(number)) for number in range(nodes)]
        asyncio.run(store.save_facts(known))
        for at in range(1, rounds):
            known = [_after(look, number, at) for number, look in enumerate(known)]
            asyncio.run(store.save_facts(known))
            tell(at, file.stat().st_size)
            if at == SETTLED:
                settled = _bytes(file)
        grown = _bytes(file) - settled
        asyncio.run(store.close())
        return settled, grown / (rounds - 1 - SETTLED)


def _bytes(file: Path) -> float:
    with closing(sqlite3.connect(file)) as on:
        on.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.stat().st_size


class _Progress:
    """A line on standard error for every round, over the one before: the whole takes hours."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self._began = rounds, time.monotonic()

    def __call__(self, at: int, size: float) -> None:
        if not sys.stderr.isatty() and at % EVERY_ROUND and at + 1 < self._rounds:
            return  # in a log a line for every tenth is enough
        spent_s = time.monotonic() - self._began
        left_s = spent_s / at * (self._rounds - 1 - at)
        line = f"store-30d: round {at} of {self._rounds - 1}, {size / _GIB:.3f} GiB, {spent_s / 60:.0f} min, {left_s / 60:.0f} min to go"
        print(
            f"\r{line}" if sys.stderr.isatty() else line,
            end="" if sys.stderr.isatty() else "\n",
            file=sys.stderr,
            flush=True,
        )


def _sample(node_scale: int = EVERY_NODE, round_scale: int = EVERY_ROUND) -> Sample:
    sizes: list[tuple[float, float]] = []
    rounds = ROUNDS // round_scale
    tell = _Progress(rounds) if round_scale == 1 else lambda at, size: None
    used = cpu_sample(lambda: sizes.append(_size(NODES // node_scale, rounds, tell)))
    settled, a_round = sizes[0]
    value = (settled + a_round * (ROUNDS - 1 - SETTLED)) * node_scale / _GIB
    return Sample(value=value, wall_s=used.wall_s, cpu_s=used.cpu_s)


BENCHMARK = Benchmark(
    name="store-30d",
    about=f"GiB for 720 looks at 10,000 nodes, 1 % changed each (a sample at 1/{EVERY_NODE * EVERY_ROUND}; --full: the whole)",
    unit="GiB",
    sample=_sample,
    runs=1,
    bar=2,
    full=lambda: _sample(1, 1),
)
