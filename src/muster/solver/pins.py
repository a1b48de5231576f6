"""Statements of a policy that no node can satisfy together. Pure; it looks at no node, so it finds a contradiction before any is looked at.

What one kind of node cannot carry is the rules' business, and is said of those nodes.
"""

from collections.abc import Iterator, Sequence

from muster.knowledge.query import branch_number
from muster.knowledge.query_cuda import compat_package
from muster.knowledge.query_limits import limits
from muster.knowledge.records import Base, Subject
from muster.knowledge.schema import Architecture, CudaToolkit, KnowledgeBase
from muster.model.frozen import dataclass
from muster.model.ranges import parse_ranges
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion
from muster.solver.candidates import candidates, wish_text
from muster.solver.explain import Wanted
from muster.solver.fits import driver_fit, runs
from muster.solver.problem import Demand
from muster.solver.rules.cuda import makes_code


@dataclass(frozen=True, slots=True)
class Collision:
    """Two statements of one pool that exclude each other, and why. Their paths are those of `Policy.lines`."""

    one: Wanted
    other: Wanted
    why: str


def collisions(demand: Demand, families: Sequence[str], base: KnowledgeBase) -> tuple[Collision, ...]:
    """What collides in a pool's demand. `families` are the GPU families that the pool matches, () for any."""
    drivers = candidates(demand.wish, base)
    known = [driver for driver in drivers if driver.plain in base.releases]
    if not known:
        return ()  # an unknown driver is said as such
    return (*_flavour(demand, known, base), *_cuda(demand, known, base), *_gpus(demand, known, families, base))


def _flavour(demand: Demand, drivers: Sequence[DriverVersion], base: KnowledgeBase) -> Iterator[Collision]:
    first, why = base.open_only_from
    if demand.flavour == "proprietary" and all(branch_number(d.branch) >= branch_number(first) for d in drivers):
        yield Collision(
            _driver(demand), Wanted(f"pools.{demand.pool}.driver.flavour", "proprietary"),
            f"from {first} on there are no proprietary modules ({', '.join(why.sources)})",
        )  # fmt: skip


def _cuda(demand: Demand, drivers: Sequence[DriverVersion], base: KnowledgeBase) -> Iterator[Collision]:
    if demand.cuda is None:
        return
    asked = Wanted(f"pools.{demand.pool}.cuda", demand.cuda)
    releases = _releases(demand.cuda, base)
    if releases and not any(_can_run(toolkit, driver, base) for driver in drivers for toolkit in releases):
        newest = max(drivers)
        branch = base.branches.get(newest.branch)
        carries = f"carries CUDA up to {branch.native_cuda.text}" if branch is not None else "has no record"
        yield Collision(_driver(demand), asked, f"{newest.branch} {carries}, by no kind of compatibility more")


def _releases(asked: str, base: KnowledgeBase) -> list[CudaToolkit]:
    ranges = parse_ranges(asked, CudaVersion)
    return [toolkit for version, toolkit in base.toolkits.items() if version in ranges]


def _can_run(toolkit: CudaToolkit, driver: DriverVersion, base: KnowledgeBase) -> bool:
    if runs(driver_fit(toolkit, driver, base.branches.get(driver.branch))):
        return True
    package = compat_package(base, toolkit.version)
    if package is None:
        return False
    # A branch without a column is not supported as a base, but for those of which nothing may be decided: that is for people.
    undecided = any(driver.branch in limit.bases for limit in limits(base, Subject.FORWARD_COMPAT))
    return undecided or package.base_driver.get(driver.branch) in (Base.COMPATIBLE, Base.EXPECTED_COMPATIBLE)


def _gpus(
    demand: Demand, drivers: Sequence[DriverVersion], families: Sequence[str], base: KnowledgeBase
) -> Iterator[Collision]:
    matched = Wanted(f"pools.{demand.pool}.match", "gpu: " + ", ".join(families))
    found = [_architecture(family, base) for family in families]
    architectures = [each for each in found if each is not None]
    if not architectures or len(architectures) < len(families):
        return
    last = [each.last_branch for each in architectures]
    numbers = [branch_number(each) for each in last if each is not None]
    if len(numbers) == len(last) and min(branch_number(driver.branch) for driver in drivers) > max(numbers):
        newest = architectures[numbers.index(max(numbers))]
        yield Collision(matched, _driver(demand), f"R{max(numbers)} is the last branch that drives {newest.name}")
    if demand.cuda is None:
        return
    releases = _releases(demand.cuda, base)
    makes = [makes_code(toolkit, a.compute_capabilities) for toolkit in releases for a in architectures]
    if makes and all(each is False for each in makes):
        names = ", ".join(dict.fromkeys(each.name for each in architectures))
        asked = Wanted(f"pools.{demand.pool}.cuda", demand.cuda)
        yield Collision(matched, asked, f"no CUDA of that range makes code for {names} any more")


def _architecture(family: str, base: KnowledgeBase) -> Architecture | None:
    for each in base.architectures.values():
        if any(known.name == family for known in each.families):
            return each
    return None


def _driver(demand: Demand) -> Wanted:
    return Wanted(f"pools.{demand.pool}.driver", wish_text(demand.wish))
