"""The use case `rollouts rollback`: plans that take the nodes of a finished rollout back to what they ran before it. It changes nothing on them.

Going back is a change like any other: planned from what the nodes show now, approved, in stages, with a canary. What a person or another rollout
has changed since is left out with its reason, and the rules admit or refuse the old driver as they would any.
"""

from muster.control.collect import collect
from muster.control.planning import plan
from muster.control.site import Site
from muster.model.errors import Refused
from muster.model.phase import Phase
from muster.model.plan import Plan, StepKind
from muster.model.run import RolloutState


async def plans_back(site: Site, rollout_id: str) -> tuple[Plan, ...]:
    """Look at the nodes that the rollout changed, and propose their way back: one plan for each driver that they came from, kept in the store.

    Raises Refused for a rollout that is still at work, and for one that changed nothing.
    """
    rollout = next(each for each in await site.store.rollouts() if each.rollout_id == rollout_id)
    runs = await site.store.runs(rollout_id)
    if rollout.state is RolloutState.PAUSED or any(run.released and not run.ended for run in runs):
        raise Refused(
            f"{rollout_id} is {rollout.state.value}, and some of its nodes are still at work",
            hint=f"end it first: muster rollouts abort {rollout_id} --reason WHY",
        )
    made = await site.store.plan(rollout.plan_id)
    came_from: dict[str, list[str]] = {}
    for run in runs:
        step = made.node(run.node).step
        if run.phase is Phase.DONE and step.kind is StepKind.CHANGE:
            came_from.setdefault(step.from_driver, []).append(run.node)
    if not came_from:
        raise Refused(
            f"{rollout_id} changed no node, so there is nothing to go back to", hint="see: muster rollouts show"
        )
    changed = {name for names in came_from.values() for name in names}
    await collect(
        [node for node in site.nodes if node.name in changed], specs=site.specs, transport=site.transport, store=site.store,
        clock=site.clock, ids=site.ids, concurrency=site.policy.ssh.concurrency, seen=lambda _: None, program=site.program,
    )  # fmt: skip
    found = []
    for driver, names in came_from.items():
        going, _ = await plan(site, driver=driver, pool=None, seed=f"back/{rollout_id}", only=names)
        found.append(going)
    return tuple(found)
