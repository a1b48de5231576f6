"""What a stage can and cannot detect, by exact binomial arithmetic. Pure; for people, never for a decision.

A stage of n nodes on which nothing failed says: a driver that breaks at least so large a part of the nodes would have been noticed, with 95 of
100 chances. And over E node-days without an event the rate of events is below 3/E (the rule of three), with the same confidence.
"""

from muster.model.frozen import dataclass

MISSED = 0.05
"""The chance with which something as bad as is said may still go unnoticed."""

RULE_OF_THREE = 3.0
"""-ln(0.05), rounded: the upper 95 % bound of a Poisson mean of which no event was seen."""

_STEPS = 40


@dataclass(frozen=True, slots=True)
class Power:
    """`share`: the least part of nodes (0 to 1) that a driver must break at once to be noticed; `per_node_day`: the least rate of failures in
    service, None for a stage that does not soak.
    """

    share: float
    per_node_day: float | None


def power(nodes: int, soak_s: int, failures: int = 1) -> Power:
    """What `nodes` nodes detect when the rollout halts at so many `failures`, and then are watched for `soak_s`."""
    days = nodes * soak_s / 86400
    return Power(_share(nodes, failures), RULE_OF_THREE / days if days > 0 else None)


def _share(nodes: int, failures: int) -> float:
    """The least p for which fewer than `failures` of `nodes` fail with a chance of at most MISSED; 1 when there is none below."""
    if nodes < failures:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _fewer(nodes, failures, middle) > MISSED:
            low = middle
        else:
            high = middle
    return high


def _fewer(nodes: int, failures: int, share: float) -> float:
    """The chance that fewer than `failures` of `nodes` fail, each with the chance `share`."""
    term = (1 - share) ** nodes
    total = term
    for count in range(1, failures):
        if share >= 1:
            return 0.0
        term *= (nodes - count + 1) / count * share / (1 - share)
        total += term
    return total
