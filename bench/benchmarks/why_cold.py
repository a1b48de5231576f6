"""What `muster why NODE` takes from its start to its end, over a store of ten thousand nodes that were looked at just now."""

from __future__ import annotations

import sys

from bench.classes import seen
from bench.fleet import NODES, command_sample, filled
from bench.harness import Benchmark, Sample


def sample() -> Sample:
    # 1 is the answer "no".
    return command_sample([sys.executable, "-m", "muster", "why", "gpu00042"], filled(NODES, seen), (0, 1))


BENCHMARK = Benchmark(
    name="why-cold",
    about="CPU seconds of `muster why NODE`, cold, over a store of 10,000 nodes",
    unit="cpu s",
    sample=sample,
    runs=7,
    bar=0.4,
)
