"""The use case `nodes repair`: look at one broken node and propose the plan that makes its stack whole again. It changes nothing on the node.

Who may not be repaired is found here, before anybody is asked to approve: a node that a person took out of service, one that somebody else
holds, one on which jobs run. A run of this store that ended in quarantine still holds its node; that lease the repair takes over.
"""

from dataclasses import replace

from muster.control.collect import collect
from muster.control.site import Site
from muster.control.solving import known_driver, solve_for
from muster.control.windows import open_windows
from muster.control.work import work_of
from muster.model.errors import Refused
from muster.model.fact import NodeFacts, Unknown
from muster.model.phase import Phase
from muster.model.plan import Plan, WaitingOn
from muster.planner.bare import Installer
from muster.planner.holding import Holder
from muster.planner.mend import Mender, last_whole, remembered
from muster.planner.propose import PlanInput, propose
from muster.planner.standing import No, Way
from muster.planner.work import Work
from muster.ports import PackageRepairs
from muster.solver.carried import carried


async def repair_for(site: Site, name: str, *, driver: str | None) -> Plan:
    """Look at the node now, and propose its repair; kept in the store. A plan without nodes says why there is nothing to do, or why not.

    Raises UnknownName for a driver nobody knows; Refused when the node cannot be looked at, or its package manager cannot be mended.
    """
    if driver is not None:
        known_driver(site, driver)
    seen = await look_at(site, name)
    manager = next((each for each in site.managers.values() if each.serves(seen)), None)
    if manager is not None and not isinstance(manager, PackageRepairs):
        raise Refused(
            f"{name}: what {manager.name} left half done is not mended by this release",
            hint="mend it on the node, then: muster nodes upgrade",
        )
    history = await site.store.history(name)
    mender = Mender(
        pools={pool.name: pool for pool in site.policy.pools},
        managers=tuple(site.managers.values()),
        solve=lambda kind, pool: solve_for(site, kind, pool),
        carried=lambda kind, target, flavour, version: carried(kind, target, flavour, version, site.knowledge()),
        had=None if manager is None else last_whole(history, manager),
        drivers=frozenset(version.text for version in site.knowledge().releases),
        wanted=driver,
        ours=await _ended_here(site, name, seen),
    )
    return await proposed(site, name, mender, remembered(seen, history))


async def look_at(site: Site, name: str) -> NodeFacts:
    """What the node shows now, kept in the store. Raises Refused when it is away."""
    node = next(each for each in site.nodes if each.name == name)
    (seen,) = await collect(
        (node,), specs=site.specs, transport=site.transport, store=site.store, clock=site.clock, ids=site.ids,
        concurrency=1, seen=lambda _: None, program=site.program,
    )  # fmt: skip
    if seen.trouble is not None:
        raise Refused(f"{name} could not be looked at: {seen.trouble.why}", hint=f"try: muster collect --limit {name}")
    return seen


async def _ended_here(site: Site, name: str, facts: NodeFacts) -> str:
    """The rollout of this store whose lease the node carries though its run there has ended (in quarantine); empty where there is none."""
    holder = facts.text("lease.rollout_id")
    if holder is None or holder not in [rollout.rollout_id for rollout in await site.store.rollouts()]:
        return ""
    ended = [run.phase is Phase.QUARANTINED for run in await site.store.runs(holder) if run.node == name]
    return holder if ended and all(ended) else ""


async def proposed(site: Site, name: str, mender: Mender | Installer | Holder, facts: NodeFacts) -> Plan:
    """The plan for one node by a judge of its own; kept in the store."""
    known = {**await site.known_facts(), name: facts}
    work = await work_of(site)
    ours = mender.ours if isinstance(mender, Mender) else ""
    if ours and work.rollouts.get(name) == ours:  # what that rollout left drained is what is to be repaired
        work = replace(work, owned={node: why for node, why in work.owned.items() if node != name})
    now = site.clock.now()

    def judge(facts: NodeFacts, pool: str) -> No | Way:
        busy = None if isinstance(mender, Holder) else _at_work(name, facts, work)  # a hold disturbs no job
        return busy or mender(facts, pool)

    made = propose(
        PlanInput(
            policy=site.policy,
            nodes=[node for node in site.nodes if node.name == name],
            facts=known,
            placings=await site.placings(known),
            managers=tuple(site.managers.values()),
            solve=lambda kind, pool: solve_for(site, kind, pool),
            order=(name,),
            now=now,
            knowledge_revision=site.knowledge().revision,
            work=work,
            windows=open_windows(site.policy, now),
            policy_name=site.policy_path.name,
            judge=judge,
        )
    )
    await site.store.save_plan(made)
    return made


def _at_work(name: str, facts: NodeFacts, work: Work) -> No | None:
    """A repair waits for no job, and takes no node from one. What cannot be told here (a broken driver lists nobody) preflight asks again."""
    if work.jobs.get(name):
        return No(WaitingOn.DRAIN, f"job {work.jobs[name][0].job_id} runs on it: drain it first, by muster or by hand")
    holders = facts.value("holder.names")
    if not isinstance(holders, Unknown) and holders:
        words = ", ".join(holders) if isinstance(holders, tuple) else str(holders)
        return No(WaitingOn.DRAIN, f"{words} computes on it: a repair waits until nobody does")
    return None
