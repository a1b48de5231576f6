"""The use cases `plan` and `check`: from what is stored to a proposal, and to findings. They change no node."""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from functools import cache, partial

from muster.control.site import Site
from muster.control.solving import check_pins, class_of, known_driver, solve_for, with_wish
from muster.control.windows import open_windows
from muster.control.work import work_of
from muster.health.consistency import check
from muster.health.judgement import Subject
from muster.model.fact import NodeFacts
from muster.model.finding import Finding, Severity
from muster.model.memo import Remembered
from muster.model.plan import Plan
from muster.model.policy import Permission, Policy
from muster.planner.pools import Placing
from muster.planner.propose import PlanInput, propose
from muster.solver.carried import carried
from muster.solver.problem import Answer, NodeClass, NoSolution
from muster.solver.words import sentence

GPUS_REMEMBERED = timedelta(days=30)
"""A GPU that has not answered for so long is not missed any more: it was taken out."""


async def plan(
    site: Site,
    *,
    driver: str | None,
    pool: str | None,
    seed: str,
    parent: Plan | None = None,
    only: Collection[str] | None = None,
) -> tuple[Plan, tuple[str, ...]]:
    """Propose a plan and keep it; and what whoever reads it should be warned of. Changes no node. `seed` chooses the canaries;
    `only` names the nodes to plan for, where it is not all of them.

    With a `parent` it is a round of that one: its pools, and its driver where no other is asked for; the approval of the parent covers it as
    long as it stays within (`planner.envelope`). Raises UnknownName for a driver or pool nobody knows.
    """
    if driver is None and parent is not None and "," not in parent.target:
        driver = parent.target
    if driver is not None:
        known_driver(site, driver)
    policy = with_wish(site.policy, driver, pool)
    if driver is None:
        check_pins(site, [each for each in policy.pools if pool in (None, each.name)])
    pools = (pool,) if pool is not None else tuple(limits.pool for limits in parent.pools) if parent is not None else ()
    facts = await site.known_facts()
    placings = await site.placings(facts)
    base = site.knowledge()
    now = site.clock.now()
    work = await work_of(site)
    made = propose(
        PlanInput(
            policy=policy,
            nodes=[node for node in site.nodes if only is None or node.name in only],
            facts=facts,
            placings=placings,
            managers=tuple(site.managers.values()),
            solve=lambda kind, each: solve_for(site, kind, each),
            order=site.rng.shuffled(f"canaries/{seed}", [node.name for node in site.nodes]),
            now=now,
            knowledge_revision=base.revision,
            only_pools=pools,
            work=work,
            windows=open_windows(policy, now),
            parent=None if parent is None else parent.id,
            policy_name=site.policy_path.name,
            carried=cache(partial(carried, base=base)),
        )
    )
    await site.store.save_plan(made)
    return made, site.inventory.warnings


async def subjects(
    site: Site, facts: Mapping[str, NodeFacts] | None = None, placings: Mapping[str, Placing] | None = None
) -> tuple[Subject, ...]:
    """Every node as the consistency check wants it, with what its pool wants; `facts` and `placings` where they are known already."""
    facts = await site.known_facts() if facts is None else facts
    placings = await site.placings(facts) if placings is None else placings
    answers: dict[tuple[NodeClass, str], tuple[str | None, str]] = {}
    quick: dict[tuple[int, str], tuple[NodeClass, tuple[str | None, str]]] = {}
    found: list[Subject] = []
    had = await site.store.most_gpus(site.clock.now() - GPUS_REMEMBERED)
    alike = Remembered[str, NodeClass | str](lambda facts, _: class_of(site, facts))
    holds = site.policy.holds
    wants = partial(
        Subject, holds=holds.driver, hold_kernel=holds.kernel, upgrades_forbidden=holds.automatic_upgrades is Permission.FORBIDDEN,
        developer_forbidden=holds.developer_driver is Permission.FORBIDDEN,
    )  # fmt: skip
    for node in site.nodes:
        pool, seen = placings[node.name].pool, facts.get(node.name)
        target, problem = None, ""
        if pool is not None and pool.driver is not None and seen is not None:
            kind = alike(seen, "")
            same = (id(kind), pool.name)  # alike nodes share their class, whose hash reads all its packages
            if same in quick:
                target, problem = quick[same][1]
            elif not isinstance(kind, str):
                key = (kind, pool.name)
                if key not in answers:
                    answers[key] = _target(solve_for(site, kind, pool))
                quick[same] = (kind, answers[key])
                target, problem = answers[key]
        name = pool.name if pool is not None else ""
        found.append(wants(node.name, name, seen, target, problem=problem, most_gpus=had.get(node.name)))
    return tuple(found)


def _target(answer: Answer) -> tuple[str | None, str]:
    """The driver of an answer, or None and why there is none."""
    return (None, sentence(answer.because)) if isinstance(answer, NoSolution) else (answer.chosen.driver.text, "")


async def findings(
    site: Site, facts: Mapping[str, NodeFacts] | None = None, placings: Mapping[str, Placing] | None = None
) -> tuple[Finding, ...]:
    """All consistency findings of the fleet as it was last seen, and what is wrong with the pools themselves.

    `facts` and `placings` are those of `site` where they are known already.
    """
    facts = await site.known_facts() if facts is None else facts
    placings = await site.placings(facts) if placings is None else placings
    return (*_pool_findings(site.policy, placings), *check(await subjects(site, facts, placings), site.clock.now()))


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
