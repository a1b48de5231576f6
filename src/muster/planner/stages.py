"""Which unit belongs to which stage, and in which small groups a stage is released. Pure; the order of chance is handed in.

Idle nodes come first, so that canaries break nobody's job; then those whose jobs end soonest. The canaries cover every stratum of what software
can see, as far as their number reaches, and are spread over racks and cooling zones, so that a fault of a rack is not taken for the driver's.
Of each stratum some units stay as they are, for comparison, until everything else has soaked. The units of one gang are in one stage.
"""

from collections.abc import Iterable, Sequence

from muster.model.frozen import dataclass
from muster.model.plan import STRATUM_AT_LEAST, Stage, Stratum
from muster.model.quantities import Amount
from muster.planner.units import Gang, Unit, gangs, order_of

CANARY_GROUPS = (1, 1, 2, 4)
"""Canaries are released 1, 1, 2, 4: a driver that breaks every node breaks one before the first verdict."""

CANARIES_AT_LEAST = 2
CANARIES_AT_MOST = sum(CANARY_GROUPS)

SPREAD = 3
"""At most one part in three of the canaries stands in one rack, or in one cooling zone: two parts must be able to contradict it."""


@dataclass(frozen=True, slots=True)
class StageWish:
    """A stage as the policy names it: `share` of all nodes are changed when it ends; None for the canary stage."""

    name: str
    share: Amount | None
    soak_s: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The stages; the strata; and units that no stage can begin with: canaries were asked for, and every job is too large to be one."""

    stages: tuple[Stage, ...]
    strata: tuple[Stratum, ...]
    waiting: tuple[Unit, ...] = ()


def canary_count(units: Sequence[Unit]) -> int:
    """One canary for each stratum, at least two, at most all that the groups can hold and never more than there are units."""
    strata = len({unit.stratum for unit in units})
    return min(max(strata, CANARIES_AT_LEAST), CANARIES_AT_MOST, len(units))


def lay_out(units: Sequence[Unit], wishes: Sequence[StageWish], control: Amount | None = None) -> Layout:
    """Stages that hold every unit exactly once (or, without a possible canary, none), whatever the wishes add up to; empty ones are left out."""
    rest = list(gangs(units))
    stages: list[Stage] = []
    canaries = next((wish for wish in wishes if wish.share is None), None)
    if canaries is not None:
        chosen = _canaries(rest, canary_count(units))
        if not chosen:
            return Layout((), (), tuple(units))
        names = {unit.name for unit in chosen}
        rest = [gang for gang in rest if gang[0].name not in names]
        groups = _groups(chosen)
        stages.append(Stage(canaries.name, _nodes(chosen), groups, canaries.soak_s, canary=True))
    strata = _strata(units, control)
    held = _held_back(rest, strata)
    named = {id(gang) for gang in held}
    rest = [gang for gang in rest if id(gang) not in named]
    later = [wish for wish in wishes if wish.share is not None]
    stages += _later(rest, later, sum(len(unit.nodes) for unit in units), sum(len(stage.nodes) for stage in stages))
    if held:
        nodes = _nodes(unit for gang in held for unit in gang)
        stages.append(Stage("control", nodes, (nodes,), later[-1].soak_s if later else 0, canary=False, control=True))
    return Layout(tuple(stages), _counted(strata, held))


def _later(rest: Sequence[Gang], wishes: Sequence[StageWish], total: int, placed: int) -> list[Stage]:
    """Growing shares of whole gangs. The last one takes what is left: nobody is lost for a wish that does not end in all."""
    stages: list[Stage] = []
    for at, wish in enumerate(wishes):
        upto = wish.share.of(total) if wish.share is not None and at < len(wishes) - 1 else total
        taken: list[Gang] = []
        left: list[Gang] = []
        for gang in rest:
            size = sum(len(unit.nodes) for unit in gang)
            fits = placed + size <= upto or at == len(wishes) - 1
            (taken if fits else left).append(gang)
            placed += size if fits else 0
        rest = left
        nodes = _nodes(unit for gang in taken for unit in gang)
        if nodes:
            stages.append(Stage(wish.name, nodes, (nodes,), wish.soak_s, canary=False))
    if rest:
        nodes = _nodes(unit for gang in rest for unit in gang)
        stages.append(Stage("rest", nodes, (nodes,), 0, canary=False))
    return stages


def _nodes(units: Iterable[Unit]) -> tuple[str, ...]:
    return tuple(node for unit in units for node in unit.nodes)


def _groups(units: Sequence[Unit]) -> tuple[tuple[str, ...], ...]:
    groups: list[tuple[str, ...]] = []
    at = 0
    for size in CANARY_GROUPS:
        if at < len(units):
            groups.append(_nodes(units[at : at + size]))
        at += size
    return tuple(groups)


def _canaries(order: Sequence[Gang], count: int) -> list[Unit]:
    """Canaries, idle ones first, of each stratum one before a second of any. A gang is taken whole, or not at all."""
    waiting: dict[str, list[Gang]] = {}
    for gang in order:
        for stratum in dict.fromkeys(unit.stratum for unit in gang):
            waiting.setdefault(stratum, []).append(gang)
    chosen = _Chosen(count)
    while len(chosen.units) < count and any(waiting.values()):
        for stratum in waiting:
            waiting[stratum] = chosen.take(waiting[stratum])
    chosen.mend(order)
    return sorted(chosen.units, key=lambda unit: (not unit.idle, order_of((unit,))))


class _Chosen:
    """Canaries while they are chosen, with how many stand in each rack and zone."""

    def __init__(self, count: int) -> None:
        self.units: list[Unit] = []
        self._count = count
        self._most = max(1, count // SPREAD)
        self._names: set[str] = set()
        self._alone: set[str] = set()
        self._at: dict[tuple[str, str], int] = {}

    def take(self, queue: Sequence[Gang]) -> list[Gang]:
        """Choose the next of a stratum's gangs that may be one; what is left of the queue."""
        room = self._count - len(self.units)
        able = [gang for gang in queue if len(gang) <= room and gang[0].name not in self._names]
        idle = [gang for gang in able if len(gang) == 1 and gang[0].idle] or able
        if not idle:
            return []
        best = next((gang for gang in idle if all(self._has_room(unit) for unit in gang)), idle[0])
        for unit in best:
            self._add(unit, len(self.units))
        self._alone |= {best[0].name} if len(best) == 1 else set()
        return [gang for gang in able if gang is not best]

    def mend(self, order: Sequence[Gang]) -> None:
        """Exchange canaries of a rack or zone that has too many for idle units of the same stratum elsewhere, while there are any.

        Each exchange takes one away where there are too many and adds none there, so there are at most as many as canaries have places.
        """
        others = [gang[0] for gang in order if len(gang) == 1 and gang[0].idle]
        for _ in range(2 * CANARIES_AT_MOST):
            swap = self._swap(others)
            if swap is None:
                return
            at, other = swap
            self._names.remove(self.units[at].name)
            self._count_places(self.units.pop(at), -1)
            self._add(other, at)
            self._alone.add(other.name)

    def _swap(self, others: Sequence[Unit]) -> tuple[int, Unit] | None:
        for at, unit in enumerate(self.units):
            if unit.name not in self._alone or all(self._at[place] <= self._most for place in _places(unit)):
                continue
            self._count_places(unit, -1)
            found = next(
                (o for o in others if o.stratum == unit.stratum and o.name not in self._names and self._has_room(o)), None
            )  # fmt: skip
            self._count_places(unit, 1)
            if found is not None:
                return at, found
        return None

    def _has_room(self, unit: Unit) -> bool:
        return all(self._at.get(place, 0) < self._most for place in _places(unit))

    def _add(self, unit: Unit, at: int) -> None:
        self.units.insert(at, unit)
        self._names.add(unit.name)
        self._count_places(unit, 1)

    def _count_places(self, unit: Unit, by: int) -> None:
        for place in _places(unit):
            self._at[place] = self._at.get(place, 0) + by


def _places(unit: Unit) -> tuple[tuple[str, str], ...]:
    return (*(("rack", rack) for rack in unit.racks), *(("zone", zone) for zone in unit.zones))


def _strata(units: Iterable[Unit], control: Amount | None) -> dict[str, Stratum]:
    """The strata with how many of each are to be held back: never fewer than the share, and never all."""
    sizes: dict[str, int] = {}
    for unit in units:
        sizes[unit.stratum] = sizes.get(unit.stratum, 0) + 1
    share = 0 if control is None else control.basis_points
    return {name: Stratum(name, size, held_back(size, share)) for name, size in sorted(sizes.items())}


def held_back(units: int, basis_points: int) -> int:
    """How many of a stratum's units stay for comparison: the share rounded up, but one less than all; none where there is no comparison."""
    if units < STRATUM_AT_LEAST or not basis_points:
        return 0
    return min(-(-units * basis_points // 10_000), units - 1)


def _held_back(rest: Sequence[Gang], strata: dict[str, Stratum]) -> list[Gang]:
    """Gangs that stay until the last soak, by chance within each stratum, and single units before the jobs of many."""
    wanted = {stratum.name: stratum.control for stratum in strata.values()}
    held: list[Gang] = []
    for gang in sorted(rest, key=lambda each: (len(each), min(unit.chance for unit in each))):
        if any(wanted[unit.stratum] > 0 for unit in gang):
            held.append(gang)
            for unit in gang:
                wanted[unit.stratum] -= 1
    return sorted(held, key=order_of)


def _counted(strata: dict[str, Stratum], held: Sequence[Gang]) -> tuple[Stratum, ...]:
    """The strata with how many of each are in fact held back."""
    counts: dict[str, int] = {}
    for unit in (unit for gang in held for unit in gang):
        counts[unit.stratum] = counts.get(unit.stratum, 0) + 1
    return tuple(Stratum(each.name, each.units, counts.get(each.name, 0)) for each in strata.values())
