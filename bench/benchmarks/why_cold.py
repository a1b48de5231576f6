"""What `muster why NODE` takes from its start to its end, over a store of a thousand nodes that were looked at just now."""

import asyncio
import sys
from functools import cache
from pathlib import Path

from bench.classes import seen
from bench.fleet import command_sample, filled
from bench.harness import Benchmark, Sample
from muster.backends.store.sqlite import open_store

NODES = 1000


@cache
def _site() -> dict[str, str]:
    env = dict(filled(NODES))
    store = open_store(str(Path(env["MUSTER_STORE"])))
    asyncio.run(store.save_facts([seen(number) for number in range(NODES)]))
    asyncio.run(store.close())
    return env


def sample() -> Sample:
    # 1 is the answer "no".
    return command_sample([sys.executable, "-m", "muster", "why", "gpu00042"], _site(), (0, 1))


BENCHMARK = Benchmark(
    name="why-cold",
    about="CPU seconds of `muster why NODE`, cold, over a store of 1,000 nodes",
    unit="cpu s",
    sample=sample,
    runs=7,
    bar=0.4,
)
