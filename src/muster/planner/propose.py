"""Makes a plan from values: policy, inventory, facts, answers of the solver, an order of chance, and the time. Proposes; changes nothing.

Every node of the policy's pools is either planned or in the report with the reason why not.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from muster.model.audit import canonical
from muster.model.fact import NodeFacts, Unknown
from muster.model.frozen import dataclass
from muster.model.node import Node
from muster.model.plan import Expectation, NodePlan, Plan, PoolLimits, Stage, Step, Waiting, WaitingOn
from muster.model.policy import DrainPolicy, Permission, Policy, Pool, Tier
from muster.model.stack import IMAGE_KINDS, PackagePin
from muster.planner.classes import node_class, unknown_facts
from muster.planner.pools import Placing, pool_of
from muster.planner.stages import Candidate, StageWish, lay_out
from muster.ports import PackageManager
from muster.solver.carried import Carried, NotNamed, same_names
from muster.solver.problem import Answer, NodeClass, NoSolution, Solution
from muster.solver.words import sentence

STALE_AFTER_S = 3600
"""Facts older than an hour are not planned on: in an hour an unattended upgrade has had its turn."""

NOT_HEEDED = "not heeded by this release:"
"""Begins a line of `Plan.because` on something that the policy asks for and nobody does yet."""

_TIERS = {Tier.DEVELOPMENT: 0, Tier.STANDARD: 1, Tier.CRITICAL: 2}


@dataclass(frozen=True, slots=True)
class PlanInput:
    """All that a plan is made from. `order` is every node in the order of chance; `now` the time of planning."""

    policy: Policy
    nodes: Sequence[Node]
    facts: Mapping[str, NodeFacts]
    placings: Mapping[str, Placing]
    managers: Sequence[PackageManager]
    solve: Callable[[NodeClass, Pool], Answer]
    order: Sequence[str]
    now: datetime
    knowledge_revision: str
    only_pool: str | None = None
    carried: Callable[[NodeClass, str, str, str], Carried | NotNamed] = same_names
    """What carries a driver on a class of nodes, given target, flavour and the package version where names stay."""


def propose(given: PlanInput) -> Plan:
    """The plan; the same input gives the same plan, and a fleet that is as wanted gives a plan without nodes."""
    planned: dict[str, NodePlan] = {}
    candidates: dict[str, Candidate] = {}
    left: list[Waiting] = []
    because: dict[str, None] = {}
    answers: dict[tuple[NodeClass, str], Answer] = {}
    for node in given.nodes:
        placing = given.placings[node.name]
        if given.only_pool is not None and not _may_be_in(placing, given.only_pool):
            continue
        pool = pool_of(placing, given.policy)
        outcome = _node(given, node, pool, answers, because)
        if isinstance(outcome, Waiting):
            left.append(outcome)
        else:
            planned[node.name], candidates[node.name] = outcome
    # A node that chance was not asked about comes last; nobody is lost for it.
    order = [candidates[name] for name in dict.fromkeys((*given.order, *candidates)) if name in candidates]
    stages = lay_out(order, _wishes(given.policy))
    parts = tuple(planned[name] for stage in stages for name in stage.nodes)
    return Plan(
        fleet=given.policy.fleet,
        created_at=given.now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{given.now.microsecond // 1000:03d}Z",
        parent=None,
        target=_one([part.step.to_driver for part in parts]),
        flavour=_one([part.step.flavour for part in parts]),
        policy_revision=given.policy.revision,
        knowledge_revision=given.knowledge_revision,
        facts_revision=_revision(given.facts),
        approvals=given.policy.rollout.approvals,
        pools=_limits(given, parts),
        stages=stages,
        nodes=parts,
        left_out=tuple(left),
        because=(*because, *(_unheeded(given.policy, parts) if parts else ())),
    )


def _node(
    given: PlanInput,
    node: Node,
    pool: Pool | None,
    answers: dict[tuple[NodeClass, str], Answer],
    because: dict[str, None],
) -> Waiting | tuple[NodePlan, Candidate]:
    """One node: what is to be done, or why nothing is."""
    refused = _not_plannable(given, node, pool)
    if refused is not None or pool is None:
        return refused or Waiting(node.name, WaitingOn.OWNED_BY_HUMAN, "is in no pool: seen, never changed")
    facts = given.facts[node.name]
    kind = node_class(facts, given.managers)
    if kind is None:
        why = ", ".join(unknown_facts(facts)) or "no package manager of this node is known"
        return Waiting(node.name, WaitingOn.UNKNOWN_HEALTH, f"cannot be planned on: {why}")
    broken = next(m for m in given.managers if m.name == kind.manager).broken(facts)
    if broken:
        words = f"has packages that are half-installed: {', '.join(broken)}; on the node: dpkg --audit"
        return Waiting(node.name, WaitingOn.OWNED_BY_HUMAN, words)
    key = (kind, pool.name)
    if key not in answers:
        answers[key] = given.solve(kind, pool)
    answer = answers[key]
    if isinstance(answer, NoSolution):
        on = WaitingOn.UNKNOWN_HEALTH if answer.unknown else WaitingOn.NO_SOLUTION
        return Waiting(node.name, on, sentence(answer.because))
    return _change(given, node, pool, kind, answer, facts, because)


def _not_plannable(given: PlanInput, node: Node, pool: Pool | None) -> Waiting | None:
    placing = given.placings[node.name]
    if len(placing.pools) > 1:
        return Waiting(
            node.name, WaitingOn.OWNED_BY_HUMAN, f"is in {len(placing.pools)} pools: {', '.join(placing.pools)}"
        )
    facts = given.facts.get(node.name)
    if facts is None:
        return Waiting(node.name, WaitingOn.STALE_FACTS, "was never collected")
    if facts.trouble is not None:
        return Waiting(node.name, WaitingOn.STALE_FACTS, f"could not be looked at: {facts.trouble.why}")
    if facts.is_older_than(STALE_AFTER_S, given.now):
        return Waiting(node.name, WaitingOn.STALE_FACTS, f"its facts are of {facts.observed_at:%Y-%m-%d %H:%M} UTC")
    if pool is None:
        unknown = "; ".join(placing.unknown)
        words = f"its pool cannot be told: {unknown}" if unknown else "is in no pool: seen, never changed"
        on = WaitingOn.UNKNOWN_HEALTH if unknown else WaitingOn.OWNED_BY_HUMAN
        return Waiting(node.name, on, words)
    if placing.unknown:
        words = f"is in {pool.name}, and whether also in another pool cannot be told: {'; '.join(placing.unknown)}"
        return Waiting(node.name, WaitingOn.UNKNOWN_HEALTH, words)
    return _unkept(node, pool) or _held(node, facts) or _image_booted(node, facts)


def _may_be_in(placing: Placing, pool: str) -> bool:
    """Whether a node is in `pool`, or could be: one that could must be reported too."""
    return pool in placing.pools or any(reason.startswith(f"{pool}: ") for reason in placing.unknown)


def _unkept(node: Node, pool: Pool) -> Waiting | None:
    """Bounds that a person set and that nothing here keeps yet: such a pool is not changed, rather than changed against its bounds."""
    if pool.windows:
        words = f"pool {pool.name} has windows, and this release cannot wait for them"
        return Waiting(node.name, WaitingOn.WINDOW, words)
    bounds = [name for name in ("rack", "tenant") if getattr(pool.max_unavailable, name) is not None]
    if bounds:
        words = f"pool {pool.name} bounds max_unavailable by {' and '.join(bounds)}, and this release keeps the bound by pool alone"
        return Waiting(node.name, WaitingOn.BUDGET, words)
    return None


def _held(node: Node, facts: NodeFacts) -> Waiting | None:
    """A node that somebody holds, or of which that cannot be told."""
    held, holder = facts.value("lease.held"), facts.text("lease.holder")
    if holder or held is True:
        words = f"is held by {holder or 'somebody'} for {facts.text('lease.rollout_id') or 'no rollout'}"
        return Waiting(node.name, WaitingOn.OWNED_BY_HUMAN, words)
    if held is not False:
        why = getattr(held, "why", "not a yes or no")
        return Waiting(node.name, WaitingOn.UNKNOWN_HEALTH, f"whether somebody holds it is unknown: {why}")
    return None


def _image_booted(node: Node, facts: NodeFacts) -> Waiting | None:
    """A node whose root does not outlive a restart, or of which that cannot be told."""
    kind = facts.text("root_fs.kind")
    if kind is None:
        words = f"whether it boots from an image is unknown: root_fs.kind ({_why(facts, 'root_fs.kind')})"
        return Waiting(node.name, WaitingOn.UNKNOWN_HEALTH, words)
    if kind in IMAGE_KINDS:
        words = f"boots from an image (root on {kind}): a change would be lost"
        return Waiting(node.name, WaitingOn.NO_SOLUTION, words)
    return None


def _change(
    given: PlanInput,
    node: Node,
    pool: Pool,
    kind: NodeClass,
    answer: Solution,
    facts: NodeFacts,
    because: dict[str, None],
) -> Waiting | tuple[NodePlan, Candidate]:
    target = answer.chosen.driver.text
    if not kind.packages:
        words = f"no installed package carries {kind.driver}: not installed by packages"
        return Waiting(node.name, WaitingOn.NO_SOLUTION, words)
    unknown = [f"{path} ({_why(facts, path)})" for path in _STACK if facts.text(path) is None]
    if unknown:
        # What the way back would have to prove cannot be told either.
        words = f"what it runs now is unknown: {', '.join(unknown)}"
        return Waiting(node.name, WaitingOn.UNKNOWN_HEALTH, words)
    manager = next(m for m in given.managers if m.name == kind.manager)
    version = manager.version_text(target, {pin.name: pin.version for pin in kind.packages})
    named = given.carried(kind, target, answer.chosen.flavour, version)
    if isinstance(named, NotNamed):
        return Waiting(node.name, WaitingOn.NO_SOLUTION, named.why)
    packages = named.packages
    upstream = target.partition("-")[0]
    seen = {path: facts.text(path) or "" for path in _STACK}
    wanted = dict.fromkeys(_STACK, upstream) | {"module.nvidia.flavour": answer.chosen.flavour}
    if packages == kind.packages and seen == wanted:
        return Waiting(node.name, WaitingOn.NOTHING_TO_DO, f"already runs {target}")
    step = Step(
        from_driver=kind.driver,
        to_driver=target,
        flavour=answer.chosen.flavour,
        manager=kind.manager,
        packages=packages,
        back=kind.packages,
        restart="reload" if pool.reload is Permission.ALLOWED and not answer.reboot else "reboot",
        expects=_stack_is(seen, kind.packages),
        done_when=_stack_is(wanted, packages),
    )
    said = (*answer.because, *(answer.reboot if pool.reload is Permission.ALLOWED else ()))
    because.update(dict.fromkeys(f"{target}: {sentence(rule)}" for rule in said))
    holders = facts.value("holder.pids")
    busy = isinstance(holders, Unknown) or bool(holders)
    stratum = f"{kind.product} / {kind.kernel} / {kind.flavour}"
    return NodePlan(node.name, pool.name, step), Candidate(node.name, stratum, _TIERS[pool.tier], busy)


_STACK = (
    "library.libcuda.version", "module.nvidia.disk_version", "module.nvidia.flavour", "module.nvidia.loaded_version",
)  # fmt: skip
"""What must agree on a node, beside the packages."""


def _stack_is(values: Mapping[str, str], packages: Sequence[PackagePin]) -> tuple[Expectation, ...]:
    return (
        *(Expectation(f"package[{pin.name}].version", pin.version) for pin in packages),
        *(Expectation(path, values[path]) for path in _STACK),
    )


def _why(facts: NodeFacts, path: str) -> str:
    return getattr(facts.value(path), "why", "not a text")


def _wishes(policy: Policy) -> tuple[StageWish, ...]:
    rollout = policy.rollout
    first = (StageWish("canary", None, rollout.canary_soak_s),) if rollout.canary else ()
    return first + tuple(StageWish(str(share), share, rollout.later_soak_s) for share in rollout.shares)


def _unheeded(policy: Policy, parts: Sequence[NodePlan]) -> tuple[str, ...]:
    """What the policy asks for and this release does not do, where going on without it takes down no job and no node: said, so that whoever
    approves knows. What would be broken by going on is left out instead (`_unkept`)."""
    used = {part.pool for part in parts}
    asked = {
        "rollout.control": "rollout.control" in policy.lines and policy.rollout.control is not None,
        "security.max_open_severity": policy.security.max_open_severity is not None,
    } | {
        f"pools.{pool.name}.drain.policy {pool.drain.policy.value} (jobs are waited for, none is ended)": True
        for pool in policy.pools
        if pool.name in used and pool.drain.policy is not DrainPolicy.WAIT
    }
    return tuple(f"{NOT_HEEDED} {what}" for what, is_asked in asked.items() if is_asked)


def _limits(given: PlanInput, parts: Sequence[NodePlan]) -> tuple[PoolLimits, ...]:
    """What each pool can spare: its share of the nodes that can be seen. One that cannot serves nobody, and makes the share no larger."""
    sizes: dict[str, int] = {}
    for name, placing in given.placings.items():
        pool = pool_of(placing, given.policy)
        facts = given.facts.get(name)
        if pool is not None and facts is not None and facts.trouble is None:
            sizes[pool.name] = sizes.get(pool.name, 0) + 1
    used = {part.pool for part in parts}
    return tuple(
        PoolLimits(
            pool.name,
            sizes[pool.name],
            pool.max_unavailable.pool.of(sizes[pool.name]),
            pool.drain.policy.value,
            pool.drain.limit_s,
        )
        for pool in given.policy.pools
        if pool.name in used
    )


def _one(values: Sequence[str]) -> str:
    """The one value, or all of them in order, as text."""
    return ", ".join(dict.fromkeys(values))


def _revision(facts: Mapping[str, NodeFacts]) -> str:
    seen = {
        name: {path: _plain(fact.value) for path, fact in sorted(each.facts.items()) if not fact.momentary}
        for name, each in sorted(facts.items())
    }
    return hashlib.sha256(canonical(seen)).hexdigest()[:16]


def _plain(value: object) -> object:
    if isinstance(value, Unknown):
        return {"unknown": value.why}
    return list(value) if isinstance(value, tuple) else value


__all__ = ["PlanInput", "Stage", "propose"]
