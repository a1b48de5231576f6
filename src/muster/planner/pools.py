"""Which pool a node belongs to, by the policy's `match`. Pure.

A node in no pool is seen and never changed; a node in two pools is an error of the policy that names both. A condition on a fact that is
unknown does not hold, and the node says so instead of falling silently out of its pool.
"""

import re
from collections.abc import Mapping, Sequence

from muster.model.fact import FactValue, NodeFacts, Unknown
from muster.model.frozen import dataclass
from muster.model.node import Node
from muster.model.policy import Match, Policy, Pool


@dataclass(frozen=True, slots=True)
class Placing:
    """Where a node belongs: `pools` is empty, one, or (an error) more; `unknown` lists the conditions that could not be judged."""

    node: str
    pools: tuple[str, ...]
    unknown: tuple[str, ...]


def place(node: Node, facts: NodeFacts | None, policy: Policy) -> Placing:
    """The pools whose conditions all hold for the node."""
    pools: list[str] = []
    unknown: list[str] = []
    for pool in policy.pools:
        results = [_holds(match, node, facts) for match in pool.match]
        if all(result is True for result in results):
            pools.append(pool.name)
        elif not any(result is False for result in results):
            unknown += [f"{pool.name}: {result}" for result in results if isinstance(result, str)]
    return Placing(node.name, tuple(pools), tuple(unknown))


def placed(nodes: Sequence[Node], facts: Mapping[str, NodeFacts], policy: Policy) -> Mapping[str, Placing]:
    """Every node's placing, by name."""
    return {node.name: place(node, facts.get(node.name), policy) for node in nodes}


def pool_of(placing: Placing, policy: Policy) -> Pool | None:
    """The one pool of a node; None when it has none or several."""
    return policy.pool(placing.pools[0]) if len(placing.pools) == 1 else None


def _holds(match: Match, node: Node, facts: NodeFacts | None) -> bool | str:
    """True, False, or why it cannot be told."""
    key = match.key
    if key.startswith(("label.", "slurm.")):
        value = node.labels.get(key.removeprefix("label."))
        if value is None:
            return False
        # A node is in several partitions, and has several features: Slurm's own lists, which cannot hold a comma otherwise.
        values = value.split(",") if key.startswith("slurm.") else [value]
        return "*" in match.values or any(each in match.values for each in values)
    path = "gpu.product" if key == "gpu" else key
    seen = facts.value(path) if facts is not None else Unknown("never collected")
    if isinstance(seen, Unknown):
        return f"{path} is unknown: {seen.why}"
    if "*" in match.values:
        return True
    if key == "gpu":
        return any(_family_in(family, str(seen)) for family in match.values)
    return any(text in match.values for text in _texts(seen))


def _texts(seen: FactValue) -> tuple[str, ...]:
    """The value as a policy writes it: yes and no as YAML's `true` and `false`, of a list each member."""
    if isinstance(seen, bool):
        return ("true" if seen else "false",)
    return seen if isinstance(seen, tuple) else (str(seen),)


def _family_in(family: str, product: str) -> bool:
    """Whether a product name carries the family as a word of its own: `H100` is in `NVIDIA H100 80GB HBM3`, `A10` is not in `A100`."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(family)}(?![A-Za-z0-9])", product, re.IGNORECASE) is not None
