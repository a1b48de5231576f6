"""The use cases `plan`, `why` and `check`: from what is stored to a proposal, an explanation, findings. They change no node."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from muster.control.site import Site, named
from muster.health.consistency import check
from muster.health.judgement import Subject
from muster.model.errors import UnknownName
from muster.model.fact import NodeFacts
from muster.model.finding import Finding, Severity
from muster.model.memo import Remembered
from muster.model.nearest import nearest_versions
from muster.model.plan import Plan, Waiting, WaitingOn
from muster.model.policy import DriverPolicy, DriverWish, Permission, Policy, Pool, WantVersion
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.driver import DriverVersion
from muster.planner.classes import node_class, unknown_facts
from muster.planner.packages import carried
from muster.planner.pools import Placing, pool_of
from muster.planner.propose import PlanInput, propose
from muster.solver.candidates import wish_text
from muster.solver.explain import Because, NoCandidate
from muster.solver.problem import Answer, Demand, NodeClass, NoSolution
from muster.solver.search import solve
from muster.solver.words import sentence


@dataclass(frozen=True, slots=True)
class Why:
    """The answer to `why` for one class of nodes of one pool: the nodes, what is wanted, and the solver's answer or why it was not asked."""

    nodes: tuple[str, ...]
    pool: str
    wanted: str
    answer: Answer | Waiting


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
        near = ", ".join(v.text for v in nearest_versions(version.plain, base.releases, 3))
        raise UnknownName(
            f"driver {text} is not known to the knowledge base ({base.revision[:12]})",
            hint=f"the nearest known are {near}; newer knowledge comes with a newer release of Muster",
        )
    return version


def _version(text: str) -> DriverVersion:
    try:
        return DriverVersion.parse(text)
    except VersionSyntaxError as error:
        raise UnknownName(
            f"{text!r} is not a driver version: {error.hint}", hint="as in 580.126.20 or 580.126.20-1+site1"
        ) from None


async def plan(site: Site, *, driver: str | None, pool: str | None, seed: str) -> Plan:
    """Propose a plan and keep it. Changes no node. `seed` chooses the canaries. Raises UnknownName for a driver or pool nobody knows."""
    if driver is not None:
        known_driver(site, driver)
    policy = with_wish(site.policy, driver, pool)
    facts = await site.known_facts()
    placings = await site.placings(facts)
    base = site.knowledge()
    made = propose(
        PlanInput(
            policy=policy,
            nodes=site.nodes,
            facts=facts,
            placings=placings,
            managers=tuple(site.managers.values()),
            solve=lambda kind, each: solve_for(site, kind, each),
            order=site.rng.shuffled(f"canaries/{seed}", [node.name for node in site.nodes]),
            now=site.clock.now(),
            knowledge_revision=base.revision,
            only_pool=pool,
            carried=lambda kind, target, flavour, version: carried(kind, target, flavour, version, base),
        )
    )
    await site.store.save_plan(made)
    return made


def solve_for(site: Site, kind: NodeClass, pool: Pool) -> Answer:
    """The solver's answer for a class of nodes in a pool; a pool without a driver wish has none by its own policy."""
    if pool.driver is None:
        because = Because(
            f"pool {pool.name} wants no driver: it is watched, never changed", (NoCandidate("no driver wish"),)
        )
        return NoSolution(because, ())
    flavour = pool.driver.flavour.value if pool.driver.flavour is not None else None
    cuda = str(pool.cuda) if pool.cuda is not None else None
    return solve(kind, Demand(pool.name, pool.driver.wish, flavour, cuda), site.knowledge())


async def why(site: Site, target: str, *, driver: str | None) -> tuple[Why, ...]:
    """Why a node, or the nodes of a pool, can or cannot carry what is wanted (or `driver`). Raises UnknownName."""
    pools, nodes = [p.name for p in site.policy.pools], [n.name for n in site.nodes]
    name = named("node or pool", target, [*pools, *nodes])
    facts = await site.known_facts()
    placings = await site.placings(facts)
    policy = with_wish(site.policy, driver, None)
    chosen = [n for n in nodes if n == name or (name in pools and name in placings[n].pools)]
    grouped: dict[tuple[NodeClass | str, str], list[str]] = {}
    for node in chosen:
        mine = placings[node].pools
        kind: NodeClass | str = _kind(site, facts.get(node))
        if len(mine) > 1:
            kind = f"matches the pools {' and '.join(mine)}: it must match one alone"
        grouped.setdefault((kind, mine[0] if mine else ""), []).append(node)
    return tuple(_one_why(site, policy, key, tuple(members)) for key, members in grouped.items())


def _kind(
    site: Site, facts: NodeFacts | None, alike: Remembered[str, NodeClass | None] | None = None
) -> NodeClass | str:
    if facts is None:
        return "was never looked at: run `muster collect`"
    if facts.trouble is not None:
        return f"could not be looked at: {facts.trouble.why}"
    kind = alike(facts, "") if alike is not None else node_class(facts, site.managers.values())
    return kind if kind is not None else "unknown: " + (", ".join(unknown_facts(facts)) or "its package manager")


def _one_why(site: Site, policy: Policy, key: tuple[NodeClass | str, str], nodes: tuple[str, ...]) -> Why:
    kind, pool_name = key
    pool = policy.pool(pool_name)
    wanted = wish_text(pool.driver.wish) if pool is not None and pool.driver is not None else "nothing"
    if pool is None:
        return Why(
            nodes,
            "",
            wanted,
            Waiting(nodes[0], WaitingOn.OWNED_BY_HUMAN, "in no pool of the policy: seen, never changed"),
        )
    if isinstance(kind, str):
        return Why(nodes, pool.name, wanted, Waiting(nodes[0], WaitingOn.UNKNOWN_HEALTH, kind))
    return Why(nodes, pool.name, wanted, solve_for(site, kind, pool))


async def subjects(site: Site, facts: Mapping[str, NodeFacts] | None = None) -> tuple[Subject, ...]:
    """Every node as the consistency check wants it, with what its pool wants; `facts` where they were read already."""
    facts = await site.known_facts() if facts is None else facts
    placings = await site.placings(facts)
    answers: dict[tuple[NodeClass, str], tuple[str | None, str]] = {}
    found: list[Subject] = []
    alike = Remembered[str, NodeClass | None](lambda facts, _: node_class(facts, site.managers.values()))
    for node in site.nodes:
        pool = pool_of(placings[node.name], site.policy)
        kind = _kind(site, facts.get(node.name), alike)
        target, problem = None, ""
        if pool is not None and pool.driver is not None and not isinstance(kind, str):
            key = (kind, pool.name)
            if key not in answers:
                answers[key] = _target(solve_for(site, kind, pool))
            target, problem = answers[key]
        name = pool.name if pool is not None else ""
        found.append(
            Subject(
                node.name, name, facts.get(node.name), target, site.policy.holds.driver, problem,
                hold_kernel=site.policy.holds.kernel,
                upgrades_forbidden=site.policy.holds.automatic_upgrades is Permission.FORBIDDEN,
            )
        )  # fmt: skip
    return tuple(found)


def _target(answer: Answer) -> tuple[str | None, str]:
    """The driver of an answer, or None and why there is none."""
    return (None, sentence(answer.because)) if isinstance(answer, NoSolution) else (answer.chosen.driver.text, "")


async def findings(site: Site, facts: Mapping[str, NodeFacts] | None = None) -> tuple[Finding, ...]:
    """All consistency findings of the fleet as it was last seen, and what is wrong with the pools themselves.

    `facts` are those of `site.known_facts` where they were read already.
    """
    facts = await site.known_facts() if facts is None else facts
    placings = await site.placings(facts)
    return (*_pool_findings(site.policy, placings), *check(await subjects(site, facts), site.clock.now()))


def _pool_findings(policy: Policy, placings: Mapping[str, Placing]) -> Iterator[Finding]:
    """Nodes in more than one pool, and pools without a node."""
    several: dict[tuple[str, ...], list[str]] = {}
    for name, placing in placings.items():
        if len(placing.pools) > 1:
            several.setdefault(placing.pools, []).append(name)
    for pools, nodes in several.items():
        words = f"match the pools {' and '.join(pools)}: nothing is planned on them"
        yield Finding(
            "in-two-pools", Severity.ERROR, "policy", tuple(sorted(nodes)), words, "narrow the `match` of one of them"
        )
    used = {pool for placing in placings.values() for pool in placing.pools}
    for pool in policy.pools:
        if pool.name not in used:
            yield Finding(
                "empty-pool", Severity.WARNING, f"pool {pool.name}", (), "no node matches it", "look at its `match`"
            )


def by_node(findings: tuple[Finding, ...]) -> Mapping[str, tuple[Finding, ...]]:
    """The findings of each node."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        for node in finding.nodes:
            found.setdefault(node, []).append(finding)
    return {node: tuple(each) for node, each in found.items()}
