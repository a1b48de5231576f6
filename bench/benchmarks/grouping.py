"""CPU microseconds a node to put 10,000 stored nodes into their classes: by keys that were made when they were looked at. What a class is judged
by is read once a class, and no part of it; see `solve-class`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from bench.fleet import NODES, cpu_sample
from bench.harness import Benchmark, Sample
from bench.plans import CLASSES, site
from muster.backends.packages.apt import BACKEND as APT
from muster.backends.store.sqlite import open_store
from muster.model.memo import Remembered
from muster.planner.classes import node_class
from muster.solver.problem import NodeClass

JOBS = 3_000


def _sample() -> Sample:
    store = open_store(site(NODES, JOBS)["MUSTER_STORE"])
    looks = asyncio.run(store.facts())
    asyncio.run(store.close())
    class_of = Remembered[str, NodeClass | None](lambda facts, _: node_class(facts, (APT,)))
    assert len({id(class_of(facts, "")) for facts in looks}) == CLASSES
    groups: dict[int, list[str]] = defaultdict(list)

    def group() -> None:
        for facts in looks:
            groups[id(class_of(facts, ""))].append(facts.node)

    used = cpu_sample(group)
    assert sum(map(len, groups.values())) == len(looks)
    return Sample(value=used.cpu_s * 1e6 / len(looks), wall_s=used.wall_s, cpu_s=used.cpu_s)


BENCHMARK = Benchmark(
    name="grouping",
    about=f"CPU microseconds a node to put {NODES:,} stored nodes into {CLASSES} classes",
    unit="us",
    sample=_sample,
    runs=7,
    bar=1,
)
