"""What a plan may take away at one time: of each pool, rack and tenant. Pure arithmetic; `gates` keeps to it when nodes are released.

A node that cannot be reached serves nobody and makes no share larger. One that a person took out of service is away already, and uses up what
may be away.
"""

from collections.abc import Mapping, Sequence

from muster.model.frozen import dataclass
from muster.model.node import Node
from muster.model.plan import Bound, NodePlan, PoolLimits, Span
from muster.model.policy import Policy, Pool
from muster.model.quantities import Amount

RACK, TENANT = "rack", "tenant"
"""The labels of a node that name its rack and its tenant."""

ZONE_LABELS = ("cooling_zone", "zone")
DOMAIN_LABEL = "nvlink_domain"


@dataclass(frozen=True, slots=True)
class Served:
    """A node that can be seen, its pool, and whether a person took it out of service."""

    node: Node
    pool: Pool
    owned: bool


def pool_limits(
    policy: Policy, served: Sequence[Served], windows: Mapping[str, tuple[Span, ...]]
) -> tuple[PoolLimits, ...]:
    """What each pool of the policy can spare: its share of the nodes that can be seen, less those that are away already. 0 is possible."""
    sizes: dict[str, int] = {}
    away: dict[str, int] = {}
    for each in served:
        sizes[each.pool.name] = sizes.get(each.pool.name, 0) + 1
        away[each.pool.name] = away.get(each.pool.name, 0) + each.owned
    return tuple(
        PoolLimits(
            pool.name,
            sizes[pool.name],
            max(0, pool.max_unavailable.pool.of(sizes[pool.name]) - away[pool.name]),
            pool.drain.policy.value,
            pool.drain.limit_s,
            pool.tier.value,
            windows.get(pool.name, ()),
            pool.drain.signal or "",
            pool.drain.checkpoint_wait_s,
        )
        for pool in policy.pools
        if pool.name in sizes
    )


def bounds(policy: Policy, served: Sequence[Served]) -> tuple[Bound, ...]:
    """The bounds by rack and by tenant, by name. Where pools with different bounds share a rack, the least counts for all."""
    found: list[Bound] = []
    for kind in (RACK, TENANT):
        nodes: dict[str, list[Served]] = {}
        for each in served:
            name = each.node.labels.get(kind)
            if name:
                nodes.setdefault(name, []).append(each)
        for name in sorted(nodes):
            amounts = dict.fromkeys(a for each in nodes[name] if (a := amount(each.pool, kind)) is not None)
            if amounts:
                size = len(nodes[name])
                away = sum(each.owned for each in nodes[name])
                found.append(Bound(kind, name, size, max(0, min(each.of(size) for each in amounts) - away)))
    return tuple(found)


def amount(pool: Pool, kind: str) -> Amount | None:
    """What a pool lets be away of one rack, or tenant; None sets no bound."""
    return pool.max_unavailable.rack if kind == RACK else pool.max_unavailable.tenant


def too_large(
    members: Sequence[NodePlan], limits: Mapping[str, PoolLimits], bound: Mapping[tuple[str, str], Bound]
) -> str | None:
    """Why nodes that are changed as one can never be released, or None."""
    if len(members) == 1:
        return _no_room(members[0], limits, bound)
    for pool in dict.fromkeys(each.pool for each in members):
        words = _short(sum(each.pool == pool for each in members), limits[pool].unavailable, f"pool {pool}")
        if words:
            return words
    for kind in (RACK, TENANT):
        for name in dict.fromkeys(getattr(each, kind) for each in members):
            found = bound.get((kind, name))
            size = sum(getattr(each, kind) == name for each in members)
            words = None if found is None else _short(size, found.unavailable, f"{kind} {name}")
            if words:
                return words
    return None


def _no_room(part: NodePlan, limits: Mapping[str, PoolLimits], bound: Mapping[tuple[str, str], Bound]) -> str | None:
    """The same for a node alone: thousands are."""
    if limits[part.pool].unavailable < 1:
        return _short(1, 0, f"pool {part.pool}")
    for kind, name in ((RACK, part.rack), (TENANT, part.tenant)):
        if name and (kind, name) in bound and bound[kind, name].unavailable < 1:
            return _short(1, 0, f"{kind} {name}")
    return None


def _short(wanted: int, spare: int, what: str) -> str | None:
    if wanted <= spare:
        return None
    if spare == 0:
        return f"of {what} as many nodes are out of service already as may be"
    return f"its NVLink domain is changed as one, and of its {wanted} nodes {what} can spare {spare} at once"
