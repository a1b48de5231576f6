"""The use case `nodes install`: look at one bare node and propose its first driver. It changes nothing on the node."""

from dataclasses import replace

from muster.control.repairing import look_at, proposed
from muster.control.site import Site
from muster.control.solving import known_driver, solve_for
from muster.knowledge.query import package_set, package_sets
from muster.knowledge.schema import PackageSet
from muster.model.errors import Refused
from muster.model.fact import Fact
from muster.model.plan import Plan
from muster.model.policy import Flavour, Pool
from muster.planner.bare import Installer
from muster.planner.pools import place
from muster.ports import PackageInstalls


async def install_for(site: Site, name: str, *, driver: str | None, gpu: str | None) -> Plan:
    """Look at the node now, and propose its first driver; kept in the store. A plan without nodes says why not.

    A bare node cannot tell its GPUs' model: `gpu` says it, or the one pool does that can be the node's and names one family. Raises
    UnknownName; Refused when the node cannot be looked at, when nobody says the model, or when its package manager cannot do it.
    """
    if driver is not None:
        known_driver(site, driver)
    seen = await look_at(site, name)
    manager = next((each for each in site.managers.values() if each.serves(seen)), None)
    if manager is not None and not isinstance(manager, PackageInstalls):
        raise Refused(f"{name}: {manager.name} brings no first driver in this release", hint="install it by hand, once")
    product = gpu or _said_by(site, name)
    facts = {
        **{path: seen.facts[path] for path in seen.facts},
        "gpu.product": Fact("gpu.product", product, "said", seen.observed_at),
    }
    installer = Installer(
        pools={pool.name: pool for pool in site.policy.pools},
        managers=tuple(site.managers.values()),
        solve=lambda kind, pool: solve_for(site, kind, pool),
        set_of=lambda system, arch, number, flavour: _set_of(site, system, arch, number, flavour),
        product=product,
        drivers=frozenset(version.text for version in site.knowledge().releases),
        brings=manager.tells() if isinstance(manager, PackageInstalls) else (),
        wanted=driver,
    )
    return await proposed(site, name, installer, replace(seen, facts=facts))


def _said_by(site: Site, name: str) -> str:
    """The GPUs' family by the policy: of the pools that the node is in but for what it cannot tell, the one that names one family."""
    node = next(each for each in site.nodes if each.name == name)
    blind = replace(site.policy, pools=tuple(_without_gpu(pool) for pool in site.policy.pools))
    fitting = [site.policy.pool(each) for each in place(node, None, blind).pools]
    families = {
        value
        for pool in fitting
        if pool is not None
        for match in pool.match
        if match.key == "gpu"
        for value in match.values
    }
    if len(families) != 1 or "*" in families:
        words = f"a bare node cannot tell which GPUs it has, and the policy names {', '.join(sorted(families)) or 'none'} for it"
        raise Refused(words, hint=f"say it: muster nodes install {name} --gpu H100")
    return families.pop()


def _without_gpu(pool: Pool) -> Pool:
    return replace(pool, match=tuple(match for match in pool.match if match.key != "gpu"))


def _set_of(site: Site, system: str, arch: str, number: int, flavour: str) -> PackageSet | None:
    """The set of NVIDIA's own repository, else the only one that there is."""
    base = site.knowledge()
    own = package_set(base, system, arch, f"R{number}", Flavour(flavour))
    others = package_sets(base, system, arch, f"R{number}", Flavour(flavour))
    return own or (others[0] if len(others) == 1 else None)
