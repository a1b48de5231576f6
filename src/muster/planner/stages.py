"""Which node belongs to which stage, and in which small groups a stage is released. Pure; the order of chance is handed in.

Idle nodes come first, so that canaries break nobody's job. The canaries cover every stratum of what software can see (model, kernel,
flavour), as far as their number reaches. Statistical gates over strata are a later matter.
"""

from collections.abc import Sequence

from muster.model.frozen import dataclass
from muster.model.plan import Stage
from muster.model.quantities import Amount

CANARY_GROUPS = (1, 1, 2, 4)
"""Canaries are released 1, 1, 2, 4: a driver that breaks every node breaks one before the first verdict."""

CANARIES_AT_LEAST = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node to be changed: its stratum, its tier (0 development, 1 standard, 2 critical) and whether a job runs on it."""

    node: str
    stratum: str
    tier: int
    busy: bool


@dataclass(frozen=True, slots=True)
class StageWish:
    """A stage as the policy names it: `share` of all nodes are changed when it ends; None for the canary stage."""

    name: str
    share: Amount | None
    soak_s: int


def canary_count(candidates: Sequence[Candidate]) -> int:
    """One canary for each stratum, at least two, at most all that the groups can hold and never more than there are nodes."""
    strata = len({c.stratum for c in candidates})
    return min(max(strata, CANARIES_AT_LEAST), sum(CANARY_GROUPS), len(candidates))


def lay_out(candidates: Sequence[Candidate], wishes: Sequence[StageWish]) -> tuple[Stage, ...]:
    """Stages that hold every candidate exactly once, whatever the wishes add up to; empty stages are left out.

    `candidates` come in the order of chance; within it development goes before critical and idle before busy.
    """
    order = sorted(candidates, key=lambda c: (c.busy, c.tier))
    total, placed = len(order), 0
    stages: list[Stage] = []
    for wish in wishes:
        if wish.share is None:
            rest = order[placed:]
            chosen = _spread(rest, canary_count(rest))
            order = [*order[:placed], *chosen, *(c for c in rest if c not in chosen)]
            upto = placed + len(chosen)
        else:
            upto = max(placed, wish.share.of(total))
        nodes = tuple(c.node for c in order[placed:upto])
        if nodes:
            groups = _canary_groups(nodes) if wish.share is None else (nodes,)
            stages.append(Stage(wish.name, nodes, groups, wish.soak_s, canary=wish.share is None))
        placed = max(placed, upto)
    if placed < total:
        # Wishes that do not end in all: nobody is lost without a word.
        nodes = tuple(c.node for c in order[placed:])
        stages.append(Stage("rest", nodes, (nodes,), wishes[-1].soak_s if wishes else 0, canary=False))
    return tuple(stages)


def _spread(order: Sequence[Candidate], count: int) -> list[Candidate]:
    """`count` candidates in order, one of each stratum before a second of any."""
    waiting: dict[str, list[Candidate]] = {}
    for candidate in order:
        waiting.setdefault(candidate.stratum, []).append(candidate)
    chosen: list[Candidate] = []
    while len(chosen) < count:
        for queue in waiting.values():
            if queue and len(chosen) < count:
                chosen.append(queue.pop(0))
    return chosen


def _canary_groups(nodes: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    groups: list[tuple[str, ...]] = []
    at = 0
    for size in CANARY_GROUPS:
        if at < len(nodes):
            groups.append(nodes[at : at + size])
        at += size
    return tuple(groups)
