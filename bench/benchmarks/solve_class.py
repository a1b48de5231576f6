"""What the solver takes for one class of nodes: eighty classes under three wishes, half of them without a solution. CPU of this process."""

from bench.classes import CLASSES, classes
from bench.fleet import cpu_sample
from bench.harness import Benchmark, Sample
from muster.knowledge.loader import load
from muster.model.policy import ReleaseLine, WantBranch, WantNewest, WantVersion
from muster.model.versions.driver import DriverVersion
from muster.solver.problem import Demand
from muster.solver.search import solve

_WISHES = (
    WantVersion(DriverVersion.parse("580.126.20")),
    WantBranch("R590"),
    WantNewest(ReleaseLine.LONG_TERM_SUPPORT),
)
_DEMANDS = tuple(Demand("train", wish, None, ">=12.4") for wish in _WISHES)
_KINDS = tuple(classes())


def _solve() -> None:
    base = load()
    for kind in _KINDS:
        for demand in _DEMANDS:
            solve(kind, demand, base)


def sample() -> Sample:
    whole = cpu_sample(_solve)
    each = 1000 * whole.value / (CLASSES * len(_DEMANDS))
    return Sample(value=each, wall_s=whole.wall_s, cpu_s=whole.cpu_s)


BENCHMARK = Benchmark(
    name="solve-class",
    about="CPU milliseconds to solve one class of nodes under one demand, warm",
    unit="ms",
    sample=sample,
    runs=7,
    bar=5.0,
)
