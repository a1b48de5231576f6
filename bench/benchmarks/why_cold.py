"""CPU seconds of `muster why NODE --json` over the stored facts of 10,000 nodes: a question of a person, from the start of the program on."""

from __future__ import annotations

import sys

from bench.fleet import command_sample, filled, name
from bench.harness import Benchmark, Sample


def _sample() -> Sample:
    return command_sample((sys.executable, "-m", "muster", "why", name(4321), "--json"), filled(), (0, 1))


BENCHMARK = Benchmark(
    name="why-cold",
    about="CPU seconds of `muster why NODE` with 10,000 stored nodes, program start included",
    unit="s",
    sample=_sample,
    runs=5,
    bar=0.4,
)
