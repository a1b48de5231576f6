"""CPU seconds of `muster plan` over 10,000 stored nodes of 80 classes with 3,000 jobs, with the start of the program and what Slurm says."""

from __future__ import annotations

import sys

from bench.fleet import command_sample
from bench.harness import Benchmark, Sample
from bench.plans import site

NODES, JOBS = 10_000, 3_000


def _sample() -> Sample:
    return command_sample((sys.executable, "-m", "muster", "plan"), site(NODES, JOBS), (0,))


BENCHMARK = Benchmark(
    name="plan-10k",
    about="CPU seconds of `muster plan` over 10,000 stored nodes of 80 classes, with 3,000 jobs",
    unit="s",
    sample=_sample,
    runs=3,
    bar=2,
)
