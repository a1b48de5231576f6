"""KiB that one look sends over a node's wire, both ways, with the TCP and SSH of the connection it makes."""

from __future__ import annotations

import time

from bench.collect_50 import desk, run
from bench.harness import Benchmark, Sample

_COUNT = "awk '/eth0:/ { print $2, $10 }' /proc/net/dev"


def _sample() -> Sample:
    name, node = next(iter(desk().lab.machines.items()))
    before = [int(each) for each in node.inside(_COUNT).split()]
    began = time.perf_counter()
    taken = run("muster", "--limit", name)
    after = [int(each) for each in node.inside(_COUNT).split()]
    return Sample(value=(sum(after) - sum(before)) / 1024, wall_s=time.perf_counter() - began, cpu_s=taken.cpu_s)


BENCHMARK = Benchmark(
    name="look-bytes",
    about="KiB over a node's wire for one look, connection and all",
    unit="KiB",
    sample=_sample,
    runs=3,
    bar=64,
)
