"""The use case `nodes hold`: look at one node and propose to hold its driver and kernel as the policy says. It changes nothing on the node."""

from muster.control.repairing import look_at, proposed
from muster.control.site import Site
from muster.model.errors import Refused
from muster.model.plan import Plan
from muster.planner.holding import Holder
from muster.ports import PackageHolds


async def hold_for(site: Site, name: str) -> Plan:
    """Look at the node now, and propose the holds; kept in the store. Raises Refused when it cannot be looked at, or held."""
    seen = await look_at(site, name)
    manager = next((each for each in site.managers.values() if each.serves(seen)), None)
    if manager is not None and not isinstance(manager, PackageHolds):
        raise Refused(f"{name}: {manager.name} is not held apart from a change in this release", hint="hold it by hand")
    also = manager.holds_tell() if isinstance(manager, PackageHolds) else ()
    pools = {pool.name: pool for pool in site.policy.pools}
    return await proposed(site, name, Holder(pools, tuple(site.managers.values()), also), seen)
