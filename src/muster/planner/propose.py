"""Makes a plan from values: policy, inventory, facts, jobs, answers of the solver, an order of chance, and the time. Proposes; changes nothing.

Every node of the policy's pools is either planned or in the report with the reason why not.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from operator import itemgetter

from muster.model.fact import NodeFacts
from muster.model.frozen import dataclass
from muster.model.job import Job
from muster.model.node import Node
from muster.model.plan import Bound, NodePlan, Plan, PoolLimits, Span, Waiting, WaitingOn
from muster.model.policy import DrainPolicy, Policy, Pool, Tier
from muster.planner import budget
from muster.planner.forecast import forecast
from muster.planner.pools import Placing
from muster.planner.stages import Layout, StageWish, lay_out
from muster.planner.standing import Judge, No, Way, domain_of
from muster.planner.units import made_units
from muster.planner.work import NO_SCHEDULER, Busy, Work, busy, stamp
from muster.ports import PackageManager
from muster.solver.carried import Carried, NotNamed, same_names
from muster.solver.problem import Answer, NodeClass

STALE_AFTER_S = 3600
"""Facts older than an hour are not planned on: in an hour an unattended upgrade has had its turn."""

NOT_HEEDED = "not heeded by this release:"
"""Begins a line of `Plan.because` on something that the policy asks for and nobody does yet."""

_WAIT = DrainPolicy.WAIT.value
TIERS = {Tier.DEVELOPMENT: 0, Tier.STANDARD: 1, Tier.CRITICAL: 2}


@dataclass(frozen=True, slots=True)
class PlanInput:
    """All that a plan is made from. `order` is every node in the order of chance; `now` the time of planning.

    `windows` are the UTC intervals of each pool that has windows, from now on. `parent` is the plan whose approval may cover the new one.
    `policy_name` is what messages call the policy's file.
    """

    policy: Policy
    nodes: Sequence[Node]
    facts: Mapping[str, NodeFacts]
    placings: Mapping[str, Placing]
    managers: Sequence[PackageManager]
    solve: Callable[[NodeClass, Pool], Answer]
    order: Sequence[str]
    now: datetime
    knowledge_revision: str
    only_pools: tuple[str, ...] = ()
    work: Work = NO_SCHEDULER
    windows: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    parent: str | None = None
    policy_name: str = "fleet.yaml"
    carried: Callable[[NodeClass, str, str, str], Carried | NotNamed] = same_names
    """What carries a driver on a class of nodes, given target, flavour and the package version where names stay."""
    judge: Callable[[NodeFacts, str], No | Way] | None = None
    """Judges each node (its facts, its pool) in place of `Judge`: a repair does not ask what a rollout asks."""


@dataclass(slots=True)
class _Draft:
    """What is found out while a plan is made."""

    parts: dict[str, NodePlan] = field(default_factory=dict)
    busy: dict[str, Busy] = field(default_factory=dict)
    left: dict[tuple[WaitingOn, str], list[str]] = field(default_factory=dict)
    because: dict[str, tuple[str, ...]] = field(default_factory=dict)
    domains: dict[str, list[str]] = field(default_factory=dict)
    found: dict[str, No | Way] = field(default_factory=dict)

    def leave(self, node: str, on: WaitingOn, words: str) -> None:
        """Leave a node out, with those that are left out for the same reason."""
        self.parts.pop(node, None)
        self.left.setdefault((on, words), []).append(node)

    def waiting(self) -> tuple[Waiting, ...]:
        """The report: what needs somebody before what is as wanted."""
        ordered = sorted(self.left.items(), key=lambda item: item[0][0] is WaitingOn.NOTHING_TO_DO)
        return tuple(Waiting(node, on, words) for (on, words), nodes in ordered for node in nodes)


def propose(given: PlanInput) -> Plan:
    """The plan; the same input gives the same plan, and a fleet that is as wanted gives a plan without nodes."""
    draft = _Draft()
    judge = given.judge or Judge(given.policy.pools, given.managers, given.solve, given.carried)
    served: list[budget.Served] = []
    for node in given.nodes:
        placing = given.placings[node.name]
        pool = placing.pool
        facts = given.facts.get(node.name)
        if pool is not None and facts is not None and facts.trouble is None:
            served.append(budget.Served(node, pool, node.name in given.work.owned))
        if not given.only_pools or any(_may_be_in(placing, name) for name in given.only_pools):
            _node(given, draft, judge, node, pool)
    limits = {each.pool: each for each in budget.pool_limits(given.policy, served, given.windows)}
    bounds = budget.bounds(given.policy, served)
    _drop_domains(draft)
    _drop_too_large(draft, limits, bounds)
    layout = _laid_out(given, draft)
    for unit in layout.waiting:
        for name in unit.nodes:
            draft.leave(
                name,
                WaitingOn.DRAIN,
                "runs a job on more nodes than may be canaries at once, and none of its kind is idle",
            )
    return _plan(given, draft, layout, limits, bounds)


def _plan(
    given: PlanInput, draft: _Draft, layout: Layout, limits: Mapping[str, PoolLimits], bounds: Sequence[Bound]
) -> Plan:
    names = [name for stage in layout.stages for name in stage.nodes]
    parts = {name: draft.parts[name] for name in names}
    _keep_jobs_startable(given, layout, parts, limits)
    nodes = tuple(parts.values())
    used = {part.pool for part in nodes}
    places = {(kind, getattr(part, kind)) for part in nodes for kind in (budget.RACK, budget.TENANT)}
    free = {name: draft.busy[name].free_s for name in names}
    rollout = given.policy.rollout
    return Plan(
        fleet=given.policy.fleet,
        created_at=stamp(given.now),
        parent=given.parent,
        target=_one([part.step.to_driver for part in nodes]),
        flavour=_one([part.step.flavour for part in nodes]),
        policy_revision=given.policy.revision,
        knowledge_revision=given.knowledge_revision,
        facts_revision=_revision(draft),
        approvals=rollout.approvals,
        pools=tuple(each for name, each in limits.items() if name in used),
        stages=layout.stages,
        nodes=nodes,
        left_out=draft.waiting(),
        because=(*_because(draft, names), *(unheeded(given, nodes) if nodes else ())),
        control=rollout.control.basis_points if rollout.control is not None else 0,
        bounds=tuple(each for each in bounds if (each.kind, each.name) in places),
        strata=layout.strata,
        forecast=forecast(layout.stages, parts, limits, free, given.now) if nodes else None,
    )


def _because(draft: _Draft, names: Sequence[str]) -> tuple[str, ...]:
    said = dict.fromkeys(draft.because[name] for name in names)
    return tuple(dict.fromkeys(line for lines in said for line in lines))


def _laid_out(given: PlanInput, draft: _Draft) -> Layout:
    # A node that chance was not asked about comes last; nobody is lost for it.
    chance = {name: at for at, name in enumerate(dict.fromkeys((*given.order, *draft.parts)))}
    free = {name: each.free_s for name, each in draft.busy.items()}
    tiers = {pool.name: TIERS[pool.tier] for pool in given.policy.pools}
    units = made_units(tuple(draft.parts.values()), free, tiers, chance)
    return lay_out(units, _wishes(given.policy), given.policy.rollout.control)


def _node(
    given: PlanInput, draft: _Draft, judge: Callable[[NodeFacts, str], No | Way], node: Node, pool: Pool | None
) -> None:
    """One node: what is to be done, or why nothing is."""
    facts = given.facts.get(node.name)
    refused = _not_plannable(given, node, pool, facts)
    found = refused if refused is not None or pool is None or facts is None else judge(facts, pool.name)
    if found is not None:
        draft.found[node.name] = found
    if isinstance(found, No) and found.on is not WaitingOn.NOTHING_TO_DO:
        # Why a node is not planned may be repeated of its domain, so it is kept by domain too.
        domain = node.labels.get(budget.DOMAIN_LABEL) or (domain_of(facts) if facts is not None else "")
        if domain:
            draft.domains.setdefault(domain, []).append(node.name)
    if not isinstance(found, Way) or pool is None or facts is None:
        no = found if isinstance(found, No) else No(WaitingOn.OWNED_BY_HUMAN, "is in no pool: seen, never changed")
        draft.leave(node.name, no.on, no.words)
        return
    unbounded = _unbounded(node, pool) or _no_window(given, pool)
    if unbounded is not None:
        draft.leave(node.name, unbounded.on, unbounded.words)
        return
    labels = node.labels
    work = busy(node.name, facts, given.work, given.now)
    draft.because[node.name] = found.because
    draft.busy[node.name] = work
    draft.parts[node.name] = NodePlan(
        node=node.name,
        pool=pool.name,
        step=found.step,
        stratum=found.stratum,
        rack=labels.get(budget.RACK, ""),
        zone=next((labels[key] for key in budget.ZONE_LABELS if labels.get(key)), ""),
        tenant=labels.get(budget.TENANT, ""),
        domain=labels.get(budget.DOMAIN_LABEL, "") or found.domain,
        gpus=found.gpus,
        jobs=work.jobs,
        free_at=work.free_at,
        drain=pool.drain.policy.value if node.name in given.work.told else _WAIT,
    )


def _not_plannable(given: PlanInput, node: Node, pool: Pool | None, facts: NodeFacts | None) -> No | None:
    """What is not the node's own facts: its place in the policy, how old its look is, who took it out of service."""
    placing = given.placings[node.name]
    if len(placing.pools) > 1:
        lines = given.policy.lines
        named = [
            f"{name} ({given.policy_name}:{lines[key]})" if (key := f"pools.{name}.match") in lines else name
            for name in placing.pools
        ]
        return No(WaitingOn.OWNED_BY_HUMAN, f"is in {len(named)} pools: {', '.join(named)}; narrow the match of one")
    if facts is None:
        return No(WaitingOn.STALE_FACTS, "was never collected")
    if facts.trouble is not None:
        return No(WaitingOn.STALE_FACTS, f"could not be looked at: {facts.trouble.why}")
    if facts.is_older_than(STALE_AFTER_S, given.now):
        return No(WaitingOn.STALE_FACTS, f"its facts are of {facts.observed_at:%Y-%m-%d %H:%M} UTC")
    if pool is None:
        unknown = "; ".join(placing.unknown)
        words = f"its pool cannot be told: {unknown}" if unknown else "is in no pool: seen, never changed"
        on = WaitingOn.UNKNOWN_HEALTH if unknown else WaitingOn.OWNED_BY_HUMAN
        return No(on, words)
    if placing.unknown:
        words = f"is in {pool.name}, and whether also in another pool cannot be told: {'; '.join(placing.unknown)}"
        return No(WaitingOn.UNKNOWN_HEALTH, words)
    if node.name in given.work.owned:
        return No(WaitingOn.OWNED_BY_HUMAN, given.work.owned[node.name])
    if node.name in given.work.unknown:
        return No(WaitingOn.UNKNOWN_HEALTH, given.work.unknown[node.name])
    return None


def _may_be_in(placing: Placing, pool: str) -> bool:
    """Whether a node is in `pool`, or could be: one that could must be reported too."""
    return pool in placing.pools or any(reason.startswith(f"{pool}: ") for reason in placing.unknown)


def _unbounded(node: Node, pool: Pool) -> No | None:
    """A node whose rack or tenant nobody named, in a pool that bounds by it: the bound could not be kept."""
    for kind in (budget.RACK, budget.TENANT):
        if budget.amount(pool, kind) is not None and not node.labels.get(kind):
            words = f"pool {pool.name} bounds max_unavailable by {kind}, and the node's is not known: give it the label `{kind}`"
            return No(WaitingOn.BUDGET, words)
    return None


def _no_window(given: PlanInput, pool: Pool) -> No | None:
    """A pool of whose windows none is long enough for one change."""
    if not pool.windows or any(span.takes(max(given.now, span.opens)) for span in given.windows.get(pool.name, ())):
        return None
    where = given.policy.lines.get(f"pools.{pool.name}.windows")
    at = f" ({given.policy_name}:{where})" if where else ""
    return No(
        WaitingOn.WINDOW, f"pool {pool.name} has no window{at} in which a change, which may take an hour, could end"
    )


def _drop_domains(draft: _Draft) -> None:
    """An NVLink domain of which a node cannot be changed is not changed: its nodes must run one driver."""
    for part in tuple(draft.parts.values()):
        others = draft.domains.get(part.domain, ()) if part.domain else ()
        if others:
            words = f"its NVLink domain {part.domain} is changed as one, and {others[0]} of it cannot be"
            draft.leave(part.node, WaitingOn.UNKNOWN_HEALTH, words)


def _drop_too_large(draft: _Draft, limits: Mapping[str, PoolLimits], bounds: Sequence[Bound]) -> None:
    bound = {(each.kind, each.name): each for each in bounds}
    together: dict[str, list[NodePlan]] = {}
    for part in draft.parts.values():
        together.setdefault(part.unit, []).append(part)
    for members in together.values():
        words = budget.too_large(members, limits, bound)
        if words is not None:
            for part in members:
                draft.leave(part.node, WaitingOn.BUDGET, words)


def _keep_jobs_startable(
    given: PlanInput, layout: Layout, parts: dict[str, NodePlan], limits: Mapping[str, PoolLimits]
) -> None:
    """A job that is to be requeued must fit the nodes that remain once its stage is out; else its end is waited for. Nodes that take no jobs
    now, for whoever's sake, do not remain."""
    closed: dict[str, int] = {}
    for name in (*given.work.owned, *given.work.unknown):
        for pool in given.placings[name].pools if name in given.placings else ():
            closed[pool] = closed.get(pool, 0) + 1
    jobs: dict[str, Job] = {job.job_id: job for each in given.work.jobs.values() for job in each}
    for stage in layout.stages:
        out: dict[str, int] = {}
        for name in stage.nodes:
            out[parts[name].pool] = out.get(parts[name].pool, 0) + 1
        for name in stage.nodes:
            part = parts[name]
            if part.drain == _WAIT:
                continue
            left = limits[part.pool].nodes - out[part.pool] - closed.get(part.pool, 0)
            stuck = [
                j for j in part.jobs if max(len(jobs[j].nodes), jobs[j].size or 0) > left or jobs[j].requeue is False
            ]
            if stuck or (not part.jobs and not part.idle):
                parts[name] = replace(part, drain=_WAIT)


def _wishes(policy: Policy) -> tuple[StageWish, ...]:
    rollout = policy.rollout
    first = (StageWish("canary", None, rollout.canary_soak_s),) if rollout.canary else ()
    return first + tuple(StageWish(str(share), share, rollout.later_soak_s) for share in rollout.shares)


def unheeded(given: PlanInput, parts: Sequence[NodePlan]) -> tuple[str, ...]:
    """What the policy asks for and this release does not do, where going on without it takes down no job and no node: said, so that whoever
    approves knows. What would be broken by going on is left out instead."""
    policy = given.policy
    plain = {part.pool for part in parts if part.node not in given.work.told}
    asked = {"security.max_open_severity": policy.security.max_open_severity is not None} | {
        f"pools.{pool.name}.drain.policy {pool.drain.policy.value} on nodes without a scheduler (processes are waited for, none is ended)": True
        for pool in policy.pools
        if pool.name in plain and pool.drain.policy is not DrainPolicy.WAIT
    }
    return tuple(f"{NOT_HEEDED} {what}" for what, is_asked in asked.items() if is_asked)


def _one(values: Sequence[str]) -> str:
    """The one value, or all of them in order, as text."""
    return ", ".join(dict.fromkeys(values))


def _revision(draft: _Draft) -> str:
    """What followed from the facts of each node when the plan was made; the time of a look is no part of it."""
    told = hashlib.sha256()
    alike: dict[int, bytes] = {}
    for name, found in sorted(draft.found.items(), key=itemgetter(0)):
        if id(found) not in alike:
            alike[id(found)] = hashlib.sha256(repr(found).encode()).digest()
        told.update(name.encode() + b"\0" + alike[id(found)])
    return told.hexdigest()[:16]
