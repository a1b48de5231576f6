"""What an approval covers: not a list of nodes, which come, go and move, but an envelope. A later plan inside it needs no new approval. Pure."""

from collections.abc import Iterator

from muster.model.plan import STRATUM_AT_LEAST, Plan, PoolLimits
from muster.solver.words import DOUBT


def outside(plan: Plan, approved: Plan) -> tuple[str, ...]:
    """Why the approval of `approved` does not cover `plan`; nothing where it does.

    The envelope: fleet, target, flavour, the policy's revision, the pools, what may be away of each, and what is known. The revision of the
    knowledge must be the same one: whether another is newer or older cannot be told from it, and what it newly admits somebody must have seen.
    """
    return tuple(_outside(plan, approved))


def _outside(plan: Plan, approved: Plan) -> Iterator[str]:
    for what in ("fleet", "target", "flavour"):
        before, now = getattr(approved, what), getattr(plan, what)
        if before != now:
            yield f"its {what} is {now or 'none'}, and {before or 'none'} was approved"
    if plan.policy_revision != approved.policy_revision:
        yield "the policy has changed"
    if plan.knowledge_revision != approved.knowledge_revision:
        yield "the knowledge base is another one"
    if plan.approvals > approved.approvals:
        yield f"it needs {plan.approvals} approvals, and {approved.approvals} were asked for"
    yield from _bolder(plan, approved)
    yield from _unseen(plan, approved)


def _bolder(plan: Plan, approved: Plan) -> Iterator[str]:
    """What goes on faster, or less carefully, than what was approved."""
    limits = {each.pool: each for each in approved.pools}
    for each in plan.pools:
        if each.pool not in limits:
            yield f"pool {each.pool} was not part of it"
        elif _takes_more(each, limits[each.pool]):
            yield f"of pool {each.pool} {each.unavailable} nodes may be away, and {limits[each.pool].unavailable} were approved"
    if plan.control < approved.control:
        yield "it holds back fewer nodes for comparison"
    if any(stage.canary for stage in approved.stages) and not any(stage.canary for stage in plan.stages):
        yield "it has no canaries"


def _takes_more(now: PoolLimits, before: PoolLimits) -> bool:
    """Whether more may be away, beyond what follows from a pool that has grown."""
    grown = -(-before.unavailable * now.nodes // max(1, before.nodes))
    return now.unavailable > max(before.unavailable, grown)


def _unseen(plan: Plan, approved: Plan) -> Iterator[str]:
    """What whoever approved did not see, and has to answer for."""
    known = set(approved.because)
    doubts = [line for line in plan.because if DOUBT in line and line not in known]
    if doubts:
        yield f"it rests on more that is from memory: {doubts[0]}"
    strata = {each.name for each in approved.strata}
    small = [each.name for each in plan.strata if each.units < STRATUM_AT_LEAST and each.name not in strata]
    if small:
        yield f"a kind of node without a statistical gate has joined: {small[0]}"
