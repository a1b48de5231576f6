"""Largest resident memory of `muster plan` over 100,000 stored nodes of 80 classes with 30,000 jobs, in MiB."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench.benchmarks.plan_100k import JOBS, NODES
from bench.harness import Benchmark, CommandFailedError, Sample
from bench.plans import site


def _sample() -> Sample:
    began = time.perf_counter()
    with subprocess.Popen(
        (sys.executable, "-m", "muster", "plan"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **site(NODES, JOBS)},
    ) as child:
        _pid, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise CommandFailedError(f"exit {child.returncode}: muster plan")
    wall_s = time.perf_counter() - began
    return Sample(value=used.ru_maxrss / 1024, wall_s=wall_s, cpu_s=used.ru_utime + used.ru_stime)


BENCHMARK = Benchmark(
    name="plan-100k-rss",
    about="MiB of memory of `muster plan` over 100,000 stored nodes of 80 classes, with 30,000 jobs",
    unit="MiB",
    sample=_sample,
    runs=1,
    bar=1536,
)
