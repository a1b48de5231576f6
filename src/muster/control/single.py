"""The use cases of one node alone: look at it, plan for it, and find out what it ran before. They change nothing on it."""

from muster.control.planning import plan
from muster.control.repairing import look_at
from muster.control.site import Site
from muster.model.errors import Refused
from muster.model.phase import Phase
from muster.model.plan import Plan, StepKind


async def plan_for(site: Site, name: str, *, driver: str | None) -> Plan:
    """Look at the node now, and propose a plan for it alone: a canary that nothing follows. Raises UnknownName, or Refused when it is away."""
    await look_at(site, name)
    made, _ = await plan(site, driver=driver, pool=None, seed="", only=(name,))
    return made


async def ran_before(site: Site, name: str) -> str:
    """The driver from which the node's last finished change came. Raises Refused when this store knows of none."""
    for rollout in reversed(await site.store.rollouts()):
        for run in await site.store.runs(rollout.rollout_id):
            step = (await site.store.plan(rollout.plan_id)).node(name).step if run.node == name else None
            if step is not None and run.phase is Phase.DONE and step.kind is StepKind.CHANGE:
                return step.from_driver
    raise Refused(
        f"no finished change of {name} is known here, so there is nothing to go back to",
        hint=f"name the driver: muster nodes upgrade {name} --driver VERSION",
    )
