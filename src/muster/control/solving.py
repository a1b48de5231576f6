"""What the use cases ask the solver, and with what: a pool's demand, a node's class, a driver somebody named. Changes no node."""

from collections.abc import Iterable
from dataclasses import replace

from muster.control.site import Site, named
from muster.knowledge.query import nearest_releases
from muster.model.errors import DocumentFaults, UnknownName
from muster.model.fact import NodeFacts
from muster.model.policy import DriverPolicy, DriverWish, Policy, Pool, WantVersion
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.driver import DriverVersion
from muster.planner.classes import node_class, unknown_facts
from muster.solver.explain import Because, NoCandidate, Wanted
from muster.solver.hints import NEWER_KNOWLEDGE
from muster.solver.pins import collisions
from muster.solver.problem import Answer, Demand, NodeClass, NoSolution
from muster.solver.search import solve


def with_wish(policy: Policy, driver: str | None, pool: str | None) -> Policy:
    """The policy with `driver` wanted in `pool` (or in all pools that want one), or as it is.

    Raises UnknownName for a pool nobody named and for a text that is no driver version.
    """
    if pool is not None:
        named("pool", pool, [each.name for each in policy.pools])
    if driver is None:
        return policy
    wish = WantVersion(_version(driver))
    changed = tuple(
        replace(each, driver=_wanting(each.driver, wish))
        if each.name == pool or (pool is None and each.driver)
        else each
        for each in policy.pools
    )
    return replace(policy, pools=changed)


def _wanting(driver: DriverPolicy | None, wish: DriverWish) -> DriverPolicy:
    return replace(driver, wish=wish) if driver is not None else DriverPolicy(wish)


def known_driver(site: Site, text: str) -> DriverVersion:
    """The driver version in `text`, which must be known. Raises UnknownName naming the nearest known ones."""
    base = site.knowledge()
    version = _version(text)
    if version.plain not in base.releases:
        near = ", ".join(each.text for each in nearest_releases(base, version))
        raise UnknownName(
            f"driver {text} is not known to the knowledge base ({base.revision[:12]})",
            hint=f"the nearest known are {near}; {NEWER_KNOWLEDGE.says}",
        )
    return version


def _version(text: str) -> DriverVersion:
    try:
        return DriverVersion.parse(text)
    except VersionSyntaxError as error:
        raise UnknownName(
            f"{text!r} is not a driver version: {error.hint}", hint="as in 580.126.20 or 580.126.20-1+site1"
        ) from None


def demand_of(pool: Pool) -> Demand | None:
    """What a pool asks of its nodes; None where it wants no driver."""
    if pool.driver is None:
        return None
    flavour = pool.driver.flavour.value if pool.driver.flavour is not None else None
    return Demand(pool.name, pool.driver.wish, flavour, str(pool.cuda) if pool.cuda is not None else None)


def solve_for(site: Site, kind: NodeClass, pool: Pool) -> Answer:
    """The solver's answer for a class of nodes in a pool; a pool without a driver wish has none by its own policy."""
    demand = demand_of(pool)
    if demand is None:
        because = Because(
            f"pool {pool.name} wants no driver: it is watched, never changed", (NoCandidate("no driver wish"),)
        )
        return NoSolution(because, (), ("no-wish",))
    return solve(kind, demand, site.knowledge())


def class_of(site: Site, facts: NodeFacts | None) -> NodeClass | str:
    """The class of a node, or why it has none, in words."""
    if facts is None:
        return "was never looked at: run `muster collect`"
    if facts.trouble is not None:
        return f"could not be looked at: {facts.trouble.why}"
    kind = node_class(facts, site.managers.values())
    return kind if kind is not None else "unknown: " + (", ".join(unknown_facts(facts)) or "its package manager")


def check_pins(site: Site, pools: Iterable[Pool]) -> None:
    """Raises DocumentFaults where statements of a pool exclude each other, with file, lines and both statements."""
    faults: list[tuple[int, str]] = []
    for pool in pools:
        demand = demand_of(pool)
        families = tuple(value for match in pool.match if match.key == "gpu" for value in match.values if value != "*")
        for each in () if demand is None else collisions(demand, families, site.knowledge()):
            one, other = (_placed(site, each.one), _placed(site, each.other))
            faults.append(
                (
                    one[0],
                    f"{site.policy_path}:{one[0]}: {one[1]} collides with line {other[0]}: {other[1]} ({each.why})",
                )
            )
    if faults:
        texts = tuple(text for _, text in sorted(faults))
        raise DocumentFaults(
            "\n".join(texts), faults=texts, hint="change one of the two statements, or divide the pool"
        )


def _placed(site: Site, wanted: Wanted) -> tuple[int, str]:
    """The line on which a statement stands, and the statement."""
    path = wanted.path
    while path and path not in site.policy.lines:
        path = path.rpartition(".")[0]
    return site.policy.lines.get(path, 1), f"{wanted.path} = {wanted.value}"
