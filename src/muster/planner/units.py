"""What is changed together: nodes of one NVLink domain are a unit, units that share running jobs are a gang. Pure.

A unit goes out of service whole. A gang stays in one stage, so that each running job is touched by one stage alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from muster.model.frozen import dataclass
from muster.model.plan import NodePlan


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes that are changed as one. `free_s`: when their jobs have ended (0: nothing runs there; None: nobody knows).

    `tier` is 0 for development, 1 standard, 2 critical; `chance` its place in the order of chance.
    """

    name: str
    nodes: tuple[str, ...]
    stratum: str
    tier: int
    free_s: int | None
    chance: int
    jobs: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether nothing runs on it."""
        return self.free_s == 0


Gang: TypeAlias = tuple[Unit, ...]
Order: TypeAlias = tuple[int, bool, int, int]


def order_of(units: Iterable[Unit]) -> Order:
    """The place of a gang in the order of change: development before critical, idle before busy, then whose jobs end soonest, then chance."""
    tier = late = 0
    untold = False
    chance: int | None = None
    for unit in units:
        tier = max(tier, unit.tier)
        chance = unit.chance if chance is None else min(chance, unit.chance)
        if unit.free_s is None:
            untold = True
        else:
            late = max(late, unit.free_s)
    return tier, untold, late, chance or 0


def made_units(
    parts: Sequence[NodePlan], free: Mapping[str, int | None], tiers: Mapping[str, int], chance: Mapping[str, int]
) -> tuple[Unit, ...]:
    """The units of these nodes, in the order in which they stand. `free`, `chance` are by node, `tiers` by pool."""
    together: dict[str, list[NodePlan]] = {}
    for part in parts:
        together.setdefault(part.unit, []).append(part)
    return tuple(_unit(name, members, free, tiers, chance) for name, members in together.items())


def _unit(
    name: str,
    members: Sequence[NodePlan],
    free: Mapping[str, int | None],
    tiers: Mapping[str, int],
    chance: Mapping[str, int],
) -> Unit:
    first = members[0]
    if len(members) == 1:
        racks, zones = (first.rack,) if first.rack else (), (first.zone,) if first.zone else ()
        return Unit(
            name, (first.node,), first.stratum, tiers[first.pool], free[first.node], chance[first.node], first.jobs, racks, zones,
        )  # fmt: skip
    ends = [free[each.node] for each in members]
    known = [end for end in ends if end is not None]
    return Unit(
        name=name,
        nodes=tuple(each.node for each in members),
        # Members that differ make a unit unlike any other.
        stratum=" + ".join(sorted(dict.fromkeys(each.stratum for each in members))),
        tier=max(tiers[each.pool] for each in members),
        free_s=max(known) if len(known) == len(ends) else None,
        chance=min(chance[each.node] for each in members),
        jobs=tuple(dict.fromkeys(job for each in members for job in each.jobs)),
        racks=tuple(dict.fromkeys(each.rack for each in members if each.rack)),
        zones=tuple(dict.fromkeys(each.zone for each in members if each.zone)),
    )


def gangs(units: Sequence[Unit]) -> tuple[Gang, ...]:
    """The units by the jobs that they share, directly or over others; in the order of change."""
    leader: dict[str, str] = {}  # union-find over the names of units

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    first: dict[str, str] = {}  # job -> a unit that it runs on
    for unit in units:
        leader[unit.name] = unit.name
        for job in unit.jobs:
            other = first.setdefault(job, unit.name)
            if other != unit.name:
                leader[find(unit.name)] = find(other)
    together: dict[str, list[Unit]] = {}
    for unit in units:
        together.setdefault(find(unit.name), []).append(unit)
    return tuple(sorted((tuple(each) for each in together.values()), key=order_of))
