"""Advances one run: load the phase, observe, check, act, record - the record and the phase in one transaction - and so on until it waits.

Idempotent: after a kill at any point, `advance` begins the same phase again, and whatever the node was asked to do is found there under its
task id. The runner sequences; what to do in a phase is in `phases`, what follows is in `machine`, what may begin is in the planner's gates.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from muster.executor import machine
from muster.executor.installs import OF_KIND
from muster.executor.scene import Result, Scene
from muster.executor.session import Session
from muster.model.audit import Record
from muster.model.errors import MusterError
from muster.model.fact import FactSpec, NodeFacts
from muster.model.frozen import dataclass
from muster.model.lease import Fence
from muster.model.node import Node
from muster.model.phase import BEFORE_CHANGE, Event, Phase
from muster.model.plan import Plan
from muster.model.run import Rollout, RolloutState, Run
from muster.ports import Clock, Ids, PackageManager, Scheduler, Store, Transport, Validator

STRIDE_S = 2.0
"""How long one advance may go on from phase to phase. Each phase is recorded before the next; a stop waits for no more than this."""

POLL_FIRST_S = 0.2
POLL_GROWTH = 1.5
POLL_MOST_S = 15.0
"""A wait is looked at again after 0.2 s, then ever more rarely, at most every 15 s: quick on short work, cheap on long work."""

UNREACHABLE_LIMIT_S = 3600
"""How long a node may be unreachable without a break before the phase counts as failed. An hour lets a slow restart or a network repair
pass; time in which the node answered does not count, so a drain of a day is not ended by one lost packet."""

UNREACHABLE_BEFORE_LEASE_S = 10
"""A node that does not answer before anything was begun is left out soon; the rollout does not wait for it."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The ways to look and act that a runner is given."""

    store: Store
    transport: Transport
    clock: Clock
    ids: Ids
    specs: tuple[FactSpec, ...]
    managers: Mapping[str, PackageManager]
    scheduler: Callable[[Transport], Scheduler]
    validator: Validator
    holder: str


class Runner:
    """Advances runs. Holds only what cannot change: plans by id, nodes by name, and which commands it has noted."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._plans: dict[str, Plan] = {}
        self._nodes: dict[str, Node] = {}
        self._noted: set[str] = set()
        self._scheduler = tools.scheduler(tools.transport)

    async def advance(self, run_id: str, claim: int) -> None:
        """Advance a run under `claim`, phase after phase until it has to wait, but not much longer than STRIDE_S.

        Raises ClaimLost when another process has taken the run; nothing was recorded after that.
        """
        run = await self._tools.store.run(run_id)
        until_s = self._tools.clock.monotonic() + STRIDE_S
        while not run.ended and run.claim == claim:
            rollout = await self._rollout(run.rollout_id)
            if rollout.state is RolloutState.PAUSED and run.phase in BEFORE_CHANGE:
                return
            after = await self._step(run, rollout)
            if after.phase is run.phase or self._tools.clock.monotonic() > until_s:
                return
            run = after

    async def _step(self, run: Run, rollout: Rollout) -> Run:
        plan = await self._plan(rollout.plan_id)
        seen: list[NodeFacts] = []
        result = await self._result(run, rollout, plan, seen.append)
        if seen:
            await self._tools.store.save_facts(seen[-1:])
        if result.validated is not None:
            await self._tools.store.save_validation(result.validated)
        now = self._tools.clock.now()
        after = advanced(run, result, now)
        await self._tools.store.record(after, self._records(run, after, result, now))
        return after

    async def _result(self, run: Run, rollout: Rollout, plan: Plan, keep: Callable[[NodeFacts], None]) -> Result:
        if rollout.state in (RolloutState.HALTED, RolloutState.ABORTED) and run.phase in BEFORE_CHANGE:
            return _given_up(run, f"the rollout is {rollout.state.value}: {rollout.why}")
        now = self._tools.clock.now()
        if run.phase in BEFORE_CHANGE and not plan.limits(run.node).open_at(now):
            return _given_up(
                run,
                f"the window of pool {plan.node(run.node).pool} closes too soon for a change to begin: {run.phase.value}",
            )
        session = Session(
            transport=self._tools.transport,
            clock=self._tools.clock,
            ids=self._tools.ids,
            specs=self._tools.specs,
            node=await self._node(run.node),
            run=run,
            plan=plan,
            fence=Fence(run.lease, run.claim),
            holder=self._tools.holder,
            note=partial(self._note, run),
            keep=keep,
            at=stamp(now),
        )
        scene = Scene(
            run=run,
            plan=plan,
            step=plan.node(run.node).step,
            session=session,
            manager=self._tools.managers[plan.node(run.node).step.manager],
            scheduler=self._scheduler,
            validator=self._tools.validator,
            waited_s=(now - run.phase_since).total_seconds(),
        )
        return await OF_KIND[scene.step.kind][run.phase](scene)

    async def _note(self, run: Run, key: str, record: Record) -> None:
        if key not in self._noted:
            await self._tools.store.record(run, (record,))
            self._noted.add(key)

    def _records(self, run: Run, after: Run, result: Result, now: datetime) -> tuple[Record, ...]:
        if after.phase is run.phase and after.waiting == run.waiting and not result.retry:
            return ()
        body = {"from": run.phase.value, "to": after.phase.value, "event": result.event.value, "why": result.why}
        return (Record(stamp(now), self._tools.holder, run.node, "phase", body),)

    async def _rollout(self, rollout_id: str) -> Rollout:
        for rollout in await self._tools.store.rollouts():
            if rollout.rollout_id == rollout_id:
                return rollout
        raise MusterError(f"run of an unknown rollout {rollout_id}")

    async def _plan(self, plan_id: str) -> Plan:
        if plan_id not in self._plans:
            self._plans[plan_id] = await self._tools.store.plan(plan_id)
        return self._plans[plan_id]

    async def _node(self, name: str) -> Node:
        if name not in self._nodes:
            self._nodes |= {node.name: node for node in await self._tools.store.nodes()}
        return self._nodes[name]


def _given_up(run: Run, why: str) -> Result:
    """The end of a run that has changed nothing yet."""
    # In the lease phase the node may have given its lease and the answer been lost: that goes over a release.
    return Result(Event.FAILED if run.phase is Phase.LEASE_REQUIRED else Event.REFUSED, why)


def advanced(run: Run, result: Result, now: datetime) -> Run:
    """The run after `result`. Pure: where a bound on waiting is passed, the wait becomes a refusal or a failure here."""
    silent_since = _silent_since(run, result, now)
    result = _bounded(run, result, silent_since, now)
    phase = machine.step(run.phase, result.event)
    notes = _noted(run, result, phase)
    if phase is not run.phase:
        return replace(
            run,
            phase=phase,
            phase_since=now,
            wake_at=now,
            attempt=0,
            waiting="",
            notes=notes,
            lease=result.lease or run.lease,
        )
    if silent_since is not None:
        notes |= {"unreachable": result.notes["unreachable"], "unreachable_since": silent_since.isoformat()}
    waited = max((now - run.phase_since).total_seconds(), 0)
    delay = min(POLL_FIRST_S + waited * (POLL_GROWTH - 1) / 2, POLL_MOST_S)
    attempt = run.attempt + 1 if result.retry else run.attempt
    return replace(run, wake_at=now + timedelta(seconds=delay), waiting=result.why, notes=notes, attempt=attempt)


def _noted(run: Run, result: Result, phase: Phase) -> dict[str, str]:
    """What later phases and the gates need to know, once the run comes to `phase`. Silence is noted elsewhere: it ends with its phase."""
    notes = {**run.notes, **result.notes}
    for passing in ("unreachable", "unreachable_since"):
        notes.pop(passing, None)
    if phase is Phase.ROLLBACK_REQUIRED:
        notes = {"cause": result.why, "failed_in": run.phase.value, "direction": "back"} | notes
    if phase in (Phase.LEFT_OUT, Phase.RELEASE_REQUIRED, Phase.QUARANTINED):
        notes.setdefault("cause", result.why)
    if phase is Phase.QUARANTINED and (run.phase in BEFORE_CHANGE or run.phase is Phase.RELEASE_REQUIRED):
        # Nothing of the node was changed, so whatever broke it, the new driver did not.
        notes.setdefault("broken_before", result.why)
    return notes


def _silent_since(run: Run, result: Result, now: datetime) -> datetime | None:
    """Since when the node has not answered, in this phase and without a break; None when it just did."""
    if result.event is not Event.WAITING or "unreachable" not in result.notes:
        return None
    known = run.notes.get("unreachable_since")
    return datetime.fromisoformat(known) if known is not None else now


def _bounded(run: Run, result: Result, silent_since: datetime | None, now: datetime) -> Result:
    if silent_since is None:
        return result
    silent_s = (now - silent_since).total_seconds()
    if run.phase is Phase.PREFLIGHT_REQUIRED and silent_s > UNREACHABLE_BEFORE_LEASE_S:
        return replace(result, event=Event.REFUSED)
    if silent_s > UNREACHABLE_LIMIT_S:
        return replace(result, event=Event.FAILED, why=f"{result.why}, for {int(silent_s)} s")
    return result


def stamp(now: datetime) -> str:
    """RFC 3339 UTC with milliseconds and `Z`."""
    return now.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
