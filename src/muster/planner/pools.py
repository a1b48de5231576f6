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
    """Where a node belongs: `pools` is empty, one, or (an error) more; `unknown` lists the conditions that could not be judged.

    `pool` is the one pool of a node; None when it has none or several. Nodes that look alike to the policy share one placing.
    """

    pools: tuple[str, ...]
    unknown: tuple[str, ...]
    pool: Pool | None = None


def place(node: Node, facts: NodeFacts | None, policy: Policy) -> Placing:
    """The pools whose conditions all hold for the node."""
    pools: list[Pool] = []
    unknown: list[str] = []
    for pool in policy.pools:
        results = [_holds(match, node, facts) for match in pool.match]
        if all(result is True for result in results):
            pools.append(pool)
        elif not any(result is False for result in results):
            unknown += [f"{pool.name}: {result}" for result in results if isinstance(result, str)]
    return Placing(tuple(pool.name for pool in pools), tuple(unknown), pools[0] if len(pools) == 1 else None)


def placed(nodes: Sequence[Node], facts: Mapping[str, NodeFacts], policy: Policy) -> Mapping[str, Placing]:
    """Every node's placing, by name."""
    keys = dict.fromkeys(match.key for pool in policy.pools for match in pool.match)
    labels = tuple(key.removeprefix("label.") for key in keys if key.startswith(_LABELS))
    paths = tuple(_path(key) for key in keys if key != _HOSTNAME and not key.startswith(_LABELS))
    known: dict[object, Placing] = {}
    found: dict[str, Placing] = {}
    for node in nodes:
        seen = facts.get(node.name)
        told = tuple([node.labels.get(label) for label in labels])
        if _HOSTNAME in keys:
            told = (node.name, *told)
        asked: tuple[object, ...] = (told, seen is None)
        if seen is not None and paths:
            values = [seen.value(path) for path in paths]
            asked = (told, tuple([(value.__class__, value) for value in values]))  # True == 1 in Python, not in a fact
        if asked not in known:
            known[asked] = place(node, seen, policy)
        found[node.name] = known[asked]
    return found


_LABELS = ("label.", "slurm.")
_HOSTNAME = "hostname"


def _path(key: str) -> str:
    return "gpu.product" if key == "gpu" else key


def _holds(match: Match, node: Node, facts: NodeFacts | None) -> bool | str:
    """True, False, or why it cannot be told."""
    key = match.key
    if key.startswith(_LABELS):
        value = node.labels.get(key.removeprefix("label."))
        if value is None:
            return False
        # A node is in several partitions, and has several features: Slurm's own lists, which cannot hold a comma otherwise.
        values = value.split(",") if key.startswith("slurm.") else [value]
        return "*" in match.values or any(each in match.values for each in values)
    if key == _HOSTNAME:
        return any(each in ("*", node.name, node.name.partition(".")[0]) for each in match.values)
    path = _path(key)
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
