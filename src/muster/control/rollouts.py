"""The use cases of a rollout: begin, carry, show. One function each; what is decided is decided by pure code below."""

from collections.abc import Mapping, Sequence

from muster.control.approving import covered, fatal
from muster.control.site import Site
from muster.control.validating import floors
from muster.executor.runner import Runner, Tools, stamp
from muster.model.audit import Record
from muster.model.errors import NotApproved, Refused
from muster.model.phase import BEFORE_CHANGE, Phase
from muster.model.plan import NodePlan, Plan
from muster.model.run import Rollout, RolloutState, Run
from muster.planner.gates import decide


async def begin(site: Site, plan: Plan) -> tuple[Rollout, bool]:
    """The rollout of an approved plan, and whether it is new. Beginning again goes on with the one that is there.

    Raises NotApproved, or Refused when the policy has changed since, or when another rollout is at work on one of the nodes.
    """
    for rollout in await site.store.rollouts():
        if rollout.plan_id == plan.id:
            return rollout, False
    await _check_may_begin(site, plan)
    now = site.clock.now()
    rollout_id = site.ids.new("rollout")
    rollout = Rollout(rollout_id, plan.id, RolloutState.RUNNING, "", now, now, site.holder)
    runs = tuple(
        Run(
            run_id=site.ids.new("run"), rollout_id=rollout_id, node=node, stage=stage, group=group,
            phase=Phase.PREFLIGHT_REQUIRED, released=False, claim=0, lease=0, wake_at=now, phase_since=now, attempt=0,
            waiting="", notes={},
        )
        for stage, each in enumerate(plan.stages)
        for group, members in enumerate(each.groups)
        for node in members
    )  # fmt: skip
    approvals = (await covered(site, plan)).approvals
    body = {
        "plan": plan.id, "target": plan.target, "nodes": len(runs), "policy_revision": plan.policy_revision,
        "knowledge_revision": plan.knowledge_revision, "parent": plan.parent,
        "approved_by": [{"by": a.by, "at": a.at, "plan": a.plan_id} for a in approvals],
    }  # fmt: skip
    await site.store.begin(rollout, runs, Record(stamp(now), site.holder, "", "begin", body))
    return rollout, True


async def _check_may_begin(site: Site, plan: Plan) -> None:
    found = await covered(site, plan)
    if len(found.approvals) < plan.approvals:
        why = f"; the approval of {plan.parent} does not cover it: {found.outside[0]}" if found.outside else ""
        raise NotApproved(
            f"{plan.id} has {len(found.approvals)} of {plan.approvals} approvals{why}",
            hint=f"muster plans show {plan.id}; muster plans approve {plan.id}",
        )
    if not plan.nodes:
        raise Refused(f"{plan.id} changes nothing", hint=f"see why with: muster plans show {plan.id}")
    notes = fatal(plan)
    if notes:
        raise Refused(
            f"{plan.id} breaks a safety rule: {notes[0].subject} {notes[0].says}", hint="plan again: muster plan"
        )
    if plan.policy_revision != site.policy.revision:
        raise Refused(
            f"{plan.id} was made under another policy than {site.policy_path} holds now",
            hint="plan again under the present policy: muster plan",
        )
    busy = await _busy(site)
    taken = sorted({part.node for part in plan.nodes} & set(busy))
    if taken:
        raise Refused(
            f"{len(taken)} nodes of {plan.id} are at work in {busy[taken[0]][0]}: {', '.join(taken[:4])}",
            hint=f"wait for it: muster rollouts watch {busy[taken[0]][0]}",
        )
    shared = _shared(plan, busy)
    if shared is not None:
        rollout_id, kind, name = shared
        raise Refused(
            f"{rollout_id} is at work in {kind} {name}: two rollouts would each take the {kind}'s whole limit",
            hint=f"wait for it: muster rollouts watch {rollout_id}",
        )


def _shared(plan: Plan, busy: Mapping[str, tuple[str, Plan]]) -> tuple[str, str, str] | None:
    """A rollout, and the pool, rack or tenant that it and this plan would both take nodes from, where one of the two bounds that."""
    mine = {place: True for part in plan.nodes for place in _limited(part)}
    bounded = {(bound.kind, bound.name) for bound in plan.bounds}
    for node, (rollout_id, other) in sorted(busy.items()):
        theirs = {(bound.kind, bound.name) for bound in other.bounds}
        for kind, name in _limited(other.node(node)):
            if (kind, name) in mine and (kind == "pool" or (kind, name) in bounded or (kind, name) in theirs):
                return rollout_id, kind, name
    return None


def _limited(part: NodePlan) -> tuple[tuple[str, str], ...]:
    """What a node's absence counts against."""
    return (("pool", part.pool), ("rack", part.rack), ("tenant", part.tenant))


async def _busy(site: Site) -> dict[str, tuple[str, Plan]]:
    """Nodes that an open rollout still has to do with: the rollout and its plan."""
    busy: dict[str, tuple[str, Plan]] = {}
    for rollout in await site.store.rollouts():
        if rollout.state is RolloutState.DONE:
            continue
        plan = await site.store.plan(rollout.plan_id)
        for run in await site.store.runs(rollout.rollout_id):
            if not run.ended and (run.released or rollout.state not in (RolloutState.HALTED, RolloutState.ABORTED)):
                busy[run.node] = (rollout.rollout_id, plan)
    return busy


async def abort(site: Site, rollout_id: str, *, reason: str) -> Rollout:
    """End a rollout by hand. Nothing more begins; what is in mid-change goes on to its end. Raises Refused when it has ended already."""
    rollout = await _rollout(site, rollout_id)
    if rollout.state in (RolloutState.DONE, RolloutState.ABORTED):
        raise Refused(f"{rollout_id} is {rollout.state.value} already", hint="see: muster rollouts list")
    return await _set(site, rollout, RolloutState.ABORTED, reason)


async def pause(site: Site, rollout_id: str, *, reason: str) -> Rollout:
    """Let a rollout stand: nothing more begins, nodes on which nothing was changed stay as they are, what is in mid-change goes on to its end.

    Raises Refused for one that does not run.
    """
    rollout = await _rollout(site, rollout_id)
    if rollout.state is not RolloutState.RUNNING:
        raise Refused(
            f"{rollout_id} is {rollout.state.value}, and only a running one can pause", hint="see: muster rollouts list"
        )
    return await _set(site, rollout, RolloutState.PAUSED, reason)


async def resume(site: Site, rollout_id: str) -> Rollout:
    """Let a paused rollout go on. Raises Refused for one that does not pause: one that halted is never gone on with, but planned anew."""
    rollout = await _rollout(site, rollout_id)
    if rollout.state is not RolloutState.PAUSED:
        halted = rollout.state is RolloutState.HALTED
        hint = "plan again when its cause is mended: muster plan" if halted else "see: muster rollouts list"
        raise Refused(f"{rollout_id} is {rollout.state.value}, and only a paused one can go on", hint=hint)
    return await _set(site, rollout, RolloutState.RUNNING, "")


async def _rollout(site: Site, rollout_id: str) -> Rollout:
    return next(r for r in await site.store.rollouts() if r.rollout_id == rollout_id)


async def _set(site: Site, rollout: Rollout, state: RolloutState, why: str) -> Rollout:
    """Change how a rollout stands, by hand."""
    now = site.clock.now()
    body = {"from": rollout.state.value, "to": state.value, "why": why, "by": site.person}
    record = Record(stamp(now), site.holder, "", "rollout", body)
    await site.store.set_rollout(rollout.rollout_id, state, why, now, record)
    return await _rollout(site, rollout.rollout_id)


async def carry(site: Site) -> None:
    """Carry every rollout until nothing is left to do. One process at a time; who calls holds the carrier lock."""
    await site.store.save_nodes(site.nodes)
    runner = Runner(
        Tools(
            store=site.store, transport=site.transport, clock=site.clock, ids=site.ids, specs=site.specs,
            managers=site.managers, scheduler=site.scheduler, validator=site.validator(await floors(site)), holder=site.holder,
        )
    )  # fmt: skip
    plans: dict[str, Plan] = {}

    async def between() -> bool:
        open_ones = [r for r in await site.store.rollouts() if r.state is not RolloutState.DONE]
        left = False
        for rollout in open_ones:
            if rollout.plan_id not in plans:
                plans[rollout.plan_id] = await site.store.plan(rollout.plan_id)
            left = await _gate(site, rollout, plans[rollout.plan_id]) or left
        return left

    await site.engine.serve(runner.advance, between)


async def left_to_carry(site: Site) -> bool:
    """Whether a rollout of the store needs a carrying process: it runs, or it stands and nodes are still on their way."""
    for rollout in await site.store.rollouts():
        if rollout.state is RolloutState.RUNNING:
            return True
        if rollout.state is not RolloutState.DONE and _on_the_way(rollout, await site.store.runs(rollout.rollout_id)):
            return True
    return False


def _on_the_way(rollout: Rollout, runs: Sequence[Run]) -> bool:
    """Whether nodes of a rollout that releases nothing more are still carried to an end. A paused one lets stand what it has not changed."""
    stands = BEFORE_CHANGE if rollout.state is RolloutState.PAUSED else frozenset()
    return any(run.released and not run.ended and run.phase not in stands for run in runs)


async def _gate(site: Site, rollout: Rollout, plan: Plan) -> bool:
    """Release what may begin, or change how the rollout stands. Whether anything of it is left to carry."""
    runs = await site.store.runs(rollout.rollout_id)
    if rollout.state is not RolloutState.RUNNING:
        return _on_the_way(rollout, runs)
    now = site.clock.now()
    decision = decide(plan, runs, now)
    if decision.release:
        nodes = [run.node for run in runs if run.run_id in decision.release]
        stage = plan.stages[next(run.stage for run in runs if run.run_id in decision.release)].name
        record = Record(stamp(now), site.holder, "", "release", {"stage": stage, "nodes": nodes})
        await site.store.release(decision.release, now, record)
    if decision.state is not rollout.state:
        body = {"from": rollout.state.value, "to": decision.state.value, "why": decision.why}
        record = Record(stamp(now), site.holder, "", "rollout", body)
        await site.store.set_rollout(rollout.rollout_id, decision.state, decision.why, now, record)
    elif decision.why != rollout.why and not decision.release:
        await site.store.set_rollout(rollout.rollout_id, rollout.state, decision.why, now, None)
    return decision.state is not RolloutState.DONE


def summary(rollout: Rollout, plan: Plan, runs: Sequence[Run]) -> dict[str, object]:
    """A rollout as JSON values: how it stands, its stages, and each run's phase with its words."""
    stages = []
    for index, stage in enumerate(plan.stages):
        members = [run for run in runs if run.stage == index]
        phases: dict[str, int] = {}
        for run in members:
            key = run.phase.value if run.released else "held"
            phases[key] = phases.get(key, 0) + 1
        stages.append({"name": stage.name, "nodes": len(members), "phases": phases})
    return {
        "rollout_id": rollout.rollout_id,
        "plan_id": rollout.plan_id,
        "target": plan.target,
        "state": rollout.state.value,
        "why": rollout.why,
        "created_at": stamp(rollout.created_at),
        "updated_at": stamp(rollout.updated_at),
        "stages": stages,
        "runs": [
            {
                "node": run.node,
                "run_id": run.run_id,
                "stage": plan.stages[run.stage].name,
                "phase": run.phase.value,
                "released": run.released,
                "waiting": run.waiting,
                "cause": run.notes.get("cause", ""),
                "since": stamp(run.phase_since),
            }
            for run in runs
        ],
    }
