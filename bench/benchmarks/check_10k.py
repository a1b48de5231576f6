"""CPU seconds of `muster check --json` over the stored facts of 10,000 nodes, with the start of the program."""

from __future__ import annotations

import sys

from bench.fleet import command_sample, filled
from bench.harness import Benchmark, Sample


def _sample() -> Sample:
    return command_sample((sys.executable, "-m", "muster", "check", "--json"), filled(), (0, 1, 5))


BENCHMARK = Benchmark(
    name="check-10k",
    about="CPU seconds of `muster check` over 10,000 stored nodes",
    unit="s",
    sample=_sample,
    runs=3,
    bar=3,
)
