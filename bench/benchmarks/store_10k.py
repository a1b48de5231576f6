"""CPU seconds to parse and store what 10,000 nodes print at their first look, from memory: all of it new."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.fleet import NODES, cpu_sample, looked, outputs
from bench.harness import Benchmark, Sample
from muster.backends.store.sqlite import open_store
from muster.model.fact import RawOutput


def _sample() -> Sample:
    told = [outputs(number) for number in range(1000)]
    with TemporaryDirectory(prefix="muster-bench-") as folder:
        store = open_store(str(Path(folder) / "muster.db"))

        def keep(start: int, texts: Sequence[Mapping[str, RawOutput]]) -> None:
            asyncio.run(store.save_facts([looked(start + at, text) for at, text in enumerate(texts)]))

        taken = []
        # A thousand texts at a time: all ten thousand would be a gigabyte. Each node has its own ids, which is not what is measured.
        for start in range(0, NODES, len(told)):
            texts = [text if not start else _own(text, start) for text in told]
            taken.append(cpu_sample(partial(keep, start, texts)))
        asyncio.run(store.close())
    cpu_s, wall_s = sum(each.cpu_s for each in taken), sum(each.wall_s for each in taken)
    return Sample(value=cpu_s, wall_s=wall_s, cpu_s=cpu_s)


def _own(told: Mapping[str, RawOutput], start: int) -> Mapping[str, RawOutput]:
    return {
        name: type(raw)(
            raw.exit_status, raw.stdout.replace(b"GPU-", b"GPU-%x" % start) if name == "gpu" else raw.stdout
        )
        for name, raw in told.items()
    }


BENCHMARK = Benchmark(
    name="store-10k",
    about="CPU seconds to parse and store the facts of 10,000 nodes, from memory",
    unit="s",
    sample=_sample,
    runs=1,
    bar=20,
)
