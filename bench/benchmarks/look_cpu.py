"""CPU milliseconds that one look costs a node with recorded answers of four H100 and a driver stack's packages and logs."""

from __future__ import annotations

import time

from bench.collect_50 import desk
from bench.harness import Benchmark, Sample

ROUNDS = 10


def _sample() -> Sample:
    node = next(iter(desk().lab.machines.values()))
    text = (desk().folder / "look-packed.sh").read_text(encoding="utf-8")
    began = time.perf_counter()
    # The environment that sshd gives.
    clean = "env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin"
    told = node.inside(f"cat >/tmp/look.sh; {clean} perl /lab/cost.pl {ROUNDS} /tmp/look.sh", text)
    cpu_s = float(told)
    return Sample(value=cpu_s * 1000, wall_s=(time.perf_counter() - began) / ROUNDS, cpu_s=cpu_s)


BENCHMARK = Benchmark(
    name="look-cpu",
    about="CPU milliseconds of one look on a node with four H100 and a whole driver stack",
    unit="ms",
    sample=_sample,
    runs=5,
    bar=150,
)
