"""CPU seconds of `muster plan` over 100,000 stored nodes of 80 classes with 30,000 jobs, with the start of the program and what Slurm says."""

from __future__ import annotations

import sys

from bench.fleet import command_sample
from bench.harness import Benchmark, Sample
from bench.plans import site

NODES, JOBS = 100_000, 30_000


def _sample() -> Sample:
    return command_sample((sys.executable, "-m", "muster", "plan"), site(NODES, JOBS), (0,))


BENCHMARK = Benchmark(
    name="plan-100k",
    about="CPU seconds of `muster plan` over 100,000 stored nodes of 80 classes, with 30,000 jobs",
    unit="s",
    sample=_sample,
    runs=1,
    bar=20,
)
