"""The use cases of a plan before it is carried out: what speaks against it, who has approved it, approve it. They change no node."""

from muster.control.site import Site
from muster.model.approval import Approval
from muster.model.errors import Refused
from muster.model.frozen import dataclass
from muster.model.plan import Plan
from muster.model.run import RolloutState
from muster.planner.envelope import outside
from muster.planner.lint import lint
from muster.planner.note import Note
from muster.planner.work import stamp


def fatal(plan: Plan) -> tuple[Note, ...]:
    """The notes that forbid a plan."""
    return tuple(note for note in lint(plan) if note.severity == "fatal")


async def past_failures(site: Site, plan: Plan) -> tuple[Note, ...]:
    """What this fleet has already learnt about the plan's drivers: each rollout to one of them that halted."""
    targets = {part.step.to_driver for part in plan.nodes}
    halted = [rollout for rollout in await site.store.rollouts() if rollout.state is RolloutState.HALTED]
    plans = {each.plan_id: await site.store.plan(each.plan_id) for each in halted}
    return tuple(
        Note(
            "advice",
            rollout.rollout_id,
            f"to {plans[rollout.plan_id].target} halted here on {rollout.updated_at:%Y-%m-%d}: {rollout.why}",
        )
        for rollout in halted
        if targets & {part.step.to_driver for part in plans[rollout.plan_id].nodes}
    )


@dataclass(frozen=True, slots=True)
class Covered:
    """The approvals that a plan has: its own, and those of the plan that it is a round of as long as it stays within what was approved there.

    `outside` says why the approval of the plan before does not cover it; empty where it does, or where there is none.
    """

    approvals: tuple[Approval, ...]
    outside: tuple[str, ...] = ()


async def covered(site: Site, plan: Plan) -> Covered:
    """Who has approved a plan, or the one that it is a round of. The same person counts once."""
    own = await site.store.approvals(plan.id)
    if plan.parent is None:
        return Covered(own)
    if plan.parent not in await site.store.plan_ids():
        return Covered(own, (f"{plan.parent}, of which it is a round, is not in this store",))
    parent = await site.store.plan(plan.parent)
    why = outside(plan, parent)
    if why:
        return Covered(own, why)
    before = await covered(site, parent)
    people = {approval.by for approval in own}
    return Covered((*own, *(each for each in before.approvals if each.by not in people)), before.outside)


async def approve(site: Site, plan: Plan, *, by: str, note: str) -> tuple[Approval, ...]:
    """Approve a plan as `by`; all its approvals come back. Raises Refused for a plan that breaks a safety rule or changes nothing."""
    notes = fatal(plan)
    if notes:
        raise Refused(
            f"{plan.id} breaks a safety rule: {notes[0].subject} {notes[0].says}",
            hint=f"see all with: muster plans lint {plan.id}; then plan again",
        )
    if not plan.nodes:
        raise Refused(f"{plan.id} changes nothing", hint=f"see why with: muster plans show {plan.id}")
    await site.store.approve(Approval(plan.id, by, stamp(site.clock.now()), note))
    return (await covered(site, plan)).approvals
