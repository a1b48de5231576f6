"""The use cases of one node alone: look at it, plan for it, and find out what it ran before. They change nothing on it."""

from muster.control.collect import collect
from muster.control.planning import plan
from muster.control.site import Site
from muster.model.errors import Refused
from muster.model.phase import Phase
from muster.model.plan import Plan, StepKind


async def plan_for(site: Site, name: str, *, driver: str | None) -> Plan:
    """Look at the node now, and propose a plan for it alone: a canary that nothing follows. Raises UnknownName, or Refused when it is away."""
    node = next(each for each in site.nodes if each.name == name)
    (seen,) = await collect(
        (node,), specs=site.specs, transport=site.transport, store=site.store, clock=site.clock, ids=site.ids,
        concurrency=1, seen=lambda _: None, program=site.program,
    )  # fmt: skip
    if seen.trouble is not None:
        raise Refused(f"{name} could not be looked at: {seen.trouble.why}", hint=f"try: muster collect --limit {name}")
    made, _ = await plan(site, driver=driver, pool=None, seed="", only=name)
    return made


async def ran_before(site: Site, name: str) -> str:
    """The driver from which the node's last finished change came. Raises Refused when this store knows of none."""
    plans = {each.id: each for each in await site.store.plans()}
    for rollout in reversed(await site.store.rollouts()):
        for run in await site.store.runs(rollout.rollout_id):
            step = plans[rollout.plan_id].node(name).step if run.node == name else None
            if step is not None and run.phase is Phase.DONE and step.kind is StepKind.CHANGE:
                return step.from_driver
    raise Refused(
        f"no finished change of {name} is known here, so there is nothing to go back to",
        hint=f"name the driver: muster nodes upgrade {name} --driver VERSION",
    )
