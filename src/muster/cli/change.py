"""`muster apply`, `rollouts`, `serve`, `audit`: carry a plan out, see how it goes, see what was done."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated

from muster.cli import declare
from muster.cli.output import INTERRUPTED, AsJson, Fleet, StorePath, app, envelope, note, run, say, table
from muster.control.approving import covered
from muster.control.bootstrap import carrier_lock, open_site
from muster.control.going_back import plans_back
from muster.control.lock import CarrierLock
from muster.control.plan_files import plan_given
from muster.control.rollouts import abort, begin, carry, left_to_carry, pause, resume, summary
from muster.control.site import Site, plan_named, rollout_named
from muster.model.audit import Entry, faults
from muster.model.errors import Halted, Refused
from muster.model.phase import Phase
from muster.model.plan import Plan, plan_body
from muster.model.run import Rollout, RolloutState
from muster.planner.lint import lint
from muster.planner.words import lines

HALTED, PARTIAL, A_NO = 6, 5, 1
WATCH_EVERY_S = 0.3
STARTS_WITHIN_S = 60.0
NOBODY_AFTER_S = 5.0
"""How long a rollout may have no carrying process before the watcher says so: one that somebody else just started needs a moment."""

apply_app = app("Carry out an approved plan, or go on with it after a kill.")
rollouts_app = app("List, show and watch rollouts.")
serve_app = app("Carry all rollouts in this process.")
audit_app = app("Show and verify what was done, by whom, when.")

RolloutId = Annotated[str, declare.argument(says="The rollout's id, a unique beginning of it, or `last`.")]


@apply_app.command()
def apply(
    plan_id: Annotated[
        str, declare.argument(says="The plan's id, a unique beginning of it, `last`, or a file of `plan --out`.")
    ],
    fleet: Fleet = None,
    store: StorePath = None,
    dry_run: Annotated[bool, declare.option("--dry-run", says="Show what would be done and stop.")] = False,
    detach: Annotated[bool, declare.option("--detach", says="Do not watch.")] = False,
    as_json: AsJson = False,
) -> None:
    """Carry out an approved plan in a process of its own and watch it; again after a kill, it goes on. Exit 0 done, 5 in part, 6 halted."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            plan = await plan_given(site, plan_id, keep=not dry_run)
            if dry_run and as_json:
                notes = [{"severity": each.severity, "subject": each.subject, "says": each.says} for each in lint(plan)]
                say(envelope("plan", {"id": plan.id, "plan": plan_body(plan), "lint": notes}))
                return 0
            if dry_run:
                for line in lines(plan, lint(plan), len((await covered(site, plan)).approvals)):
                    say(line)
                return 0
            return await carry_out(site, plan, detach=detach, as_json=as_json)

    run(work, as_json=as_json)


async def carry_out(site: Site, plan: Plan, *, detach: bool, as_json: bool) -> int:
    """Begin an approved plan, or go on with it, in a process of its own, and watch it unless `detach`; the exit code of its end."""
    rollout, is_new = await begin(site, plan)
    if await _ended(site, rollout):
        if not as_json:
            say(f"{plan.id} was carried out already, nothing is done")
        return await _say_end(site, rollout, as_json=as_json)
    is_starting = _nobody
    if carrier_lock(site.store_path).holder() is None:
        is_starting = site.spawn_carrier()
    if not as_json:
        say(f"{rollout.rollout_id}: {'begins' if is_new else 'goes on'}, {len(plan.nodes)} nodes to {plan.target}")
    if detach:
        code = _detached(rollout, as_json=as_json)
        await _until_carried(site, is_starting)
        return code
    return await _watch(site, rollout.rollout_id, as_json=as_json, is_starting=is_starting)


def _nobody() -> bool:
    return False


async def _until_carried(site: Site, is_starting: Callable[[], bool]) -> None:
    """Wait until the process that we started to carry rollouts says that it does, or has ended: who watches next need not guess."""
    limit = site.clock.monotonic() + STARTS_WITHIN_S
    lock = carrier_lock(site.store_path)
    while is_starting() and lock.holder() is None and site.clock.monotonic() < limit:
        await site.clock.sleep(0.05)


def _detached(rollout: Rollout, *, as_json: bool) -> int:
    if as_json:
        say(envelope("rollout", {"rollout_id": rollout.rollout_id, "state": rollout.state.value}))
    else:
        say(f"next: muster rollouts watch {rollout.rollout_id}")
    return 0


async def _watch(site: Site, rollout_id: str, *, as_json: bool, is_starting: Callable[[], bool] = _nobody) -> int:
    """Follow a rollout to its end. Interrupting ends the watching, not the rollout.

    `is_starting` says whether a process runs that we started to carry it: on a busy machine it takes its time to say so itself.
    """
    quiet_since: float | None = None
    try:
        async for rollout, entries in _steps(site, rollout_id):
            for entry in entries:
                _say_entry(entry, as_json=as_json)
            if await _ended(site, rollout):
                return await _say_end(site, rollout, as_json=as_json)
            is_carried = carrier_lock(site.store_path).holder() is not None or is_starting()
            if is_carried or rollout.state is RolloutState.PAUSED:
                quiet_since = None
            elif quiet_since is None:
                # Its end may have come since we looked at the rollout, however long ago we last saw it carried.
                quiet_since = site.clock.monotonic()
            elif site.clock.monotonic() - quiet_since > NOBODY_AFTER_S:
                raise Halted(
                    f"no process carries {rollout_id} (its words are in {site.store_path}.log)",
                    hint=f"go on with: muster apply {rollout.plan_id}",
                )
    except asyncio.CancelledError:  # what Ctrl-C is to a coroutine
        note(f"the watching ends; {rollout_id} goes on. Watch again with: muster rollouts watch {rollout_id}")
        raise declare.Exit(INTERRUPTED) from None
    return 0


async def _steps(site: Site, rollout_id: str) -> AsyncIterator[tuple[Rollout, tuple[Entry, ...]]]:
    """How the rollout stands, again and again, with the audit entries that are new."""
    after = 0
    while True:
        # The state first: entries that come between the two looks are shown before an end that they led to.
        rollout = next(r for r in await site.store.rollouts() if r.rollout_id == rollout_id)
        entries = await site.store.audit(rollout_id, after)
        after = entries[-1].seq if entries else after
        yield rollout, entries
        await site.clock.sleep(WATCH_EVERY_S)


async def _ended(site: Site, rollout: Rollout) -> bool:
    if rollout.state is RolloutState.DONE:
        return True
    if rollout.state not in (RolloutState.HALTED, RolloutState.ABORTED):
        return False
    return all(each.ended or not each.released for each in await site.store.runs(rollout.rollout_id))


def _say_entry(entry: Entry, *, as_json: bool) -> None:
    record = entry.record
    if as_json:
        say(json.dumps(_entry(entry), ensure_ascii=False))
    elif record.kind == "phase" and record.body.get("from") != record.body.get("to"):
        say(f"{record.at[11:19]}  {record.node:<8} {record.body['from']} -> {record.body['to']}: {record.body['why']}")
    elif record.kind == "release":
        nodes = record.body["nodes"]
        say(
            f"{record.at[11:19]}  released {record.body['stage']}: {', '.join(nodes) if isinstance(nodes, list) else nodes}"
        )
    elif record.kind == "rollout":
        say(f"{record.at[11:19]}  rollout {record.body['to']}: {record.body['why']}")


async def _say_end(site: Site, rollout: Rollout, *, as_json: bool) -> int:
    runs = await site.store.runs(rollout.rollout_id)
    plan = await plan_named(site, rollout.plan_id)
    if as_json:
        say(envelope("rollout", summary(rollout, plan, runs)))
    else:
        say(f"{rollout.rollout_id} is {rollout.state.value}: {rollout.why}")
        for each in runs:
            if each.released and each.phase.value not in ("done", "preflight-required"):
                say(f"  {each.node}: {each.phase.value}: {each.notes.get('cause', '')}")
    if rollout.state in (RolloutState.HALTED, RolloutState.ABORTED):
        return HALTED
    return 0 if all(each.phase is Phase.DONE for each in runs) else PARTIAL


@rollouts_app.command("list")
def rollouts_list(fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """List rollouts, oldest first, with how they stand."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            rows = [
                [r.rollout_id, r.plan_id, r.state.value, r.why, f"{r.created_at:%Y-%m-%dT%H:%M:%SZ}"]
                for r in await site.store.rollouts()
            ]
            keys = ("rollout_id", "plan_id", "state", "why", "created_at")
            if as_json:
                say(envelope("rollouts", [dict(zip(keys, row, strict=True)) for row in rows]))
            else:
                table(keys, rows)
            return 0

    run(work, as_json=as_json)


@rollouts_app.command("show")
def rollouts_show(rollout_id: RolloutId, fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Show a rollout: its stages and each node's phase, with what it waits for."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            wanted = await rollout_named(site, rollout_id)
            rollout = next(r for r in await site.store.rollouts() if r.rollout_id == wanted)
            runs = await site.store.runs(wanted)
            plan = await plan_named(site, rollout.plan_id)
            if as_json:
                say(envelope("rollout", summary(rollout, plan, runs)))
            else:
                say(f"{wanted} to {plan.target} is {rollout.state.value}: {rollout.why or 'going on'}")
                if not await _ended(site, rollout):
                    say(f"carried by: {_carrier(site) or f'nobody; go on with: muster apply {plan.id}'}")
                rows = [
                    [
                        r.node,
                        plan.stages[r.stage].name,
                        r.phase.value if r.released else "held",
                        r.waiting or r.notes.get("cause", ""),
                    ]
                    for r in runs
                ]
                table(("node", "stage", "phase", "words"), rows)
            return 0

    run(work, as_json=as_json)


def _carrier(site: Site) -> str:
    """The process that carries this store's rollouts, in words; empty when there is none."""
    holder = carrier_lock(site.store_path).holder()
    return f"process {holder.pid} on {holder.host} since {holder.since}" if holder is not None else ""


@rollouts_app.command("abort")
def rollouts_abort(
    rollout_id: RolloutId,
    reason: Annotated[str, declare.option("--reason", says="Why, for the audit log.")],
    fleet: Fleet = None,
    store: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Begin nothing more: nodes on which nothing was changed are given back, those in mid-change go on to their end. Cannot be undone."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            rollout = await abort(site, await rollout_named(site, rollout_id), reason=reason)
            rest = f"see the rest end with: muster rollouts watch {rollout.rollout_id}"
            return await _say_state(site, rollout, rest, as_json=as_json)

    run(work, as_json=as_json)


@rollouts_app.command("pause")
def rollouts_pause(
    rollout_id: RolloutId,
    reason: Annotated[str, declare.option("--reason", says="Why, for the audit log.")],
    fleet: Fleet = None,
    store: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Let a rollout stand: nodes on which nothing was changed stay as they are, those in mid-change go on to their end."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            rollout = await pause(site, await rollout_named(site, rollout_id), reason=reason)
            return await _say_state(
                site, rollout, f"next: muster rollouts resume {rollout.rollout_id}", as_json=as_json
            )

    run(work, as_json=as_json)


@rollouts_app.command("resume")
def rollouts_resume(
    rollout_id: RolloutId, fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False
) -> None:
    """Let a paused rollout go on."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            rollout = await resume(site, await rollout_named(site, rollout_id))
            return await _say_state(site, rollout, f"next: muster rollouts watch {rollout.rollout_id}", as_json=as_json)

    run(work, as_json=as_json)


@rollouts_app.command("rollback")
def rollouts_rollback(
    rollout_id: RolloutId, fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False
) -> None:
    """Plan the way of all nodes that a rollout changed back to what they ran before. Exit 1 when there is nothing to change."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            made = await plans_back(site, await rollout_named(site, rollout_id))
            if as_json:
                say(envelope("plans", [{"id": each.id, "plan": plan_body(each)} for each in made]))
            else:
                for each in made:
                    for line in lines(each, lint(each), 0):
                        say(line)
            return 0 if any(each.nodes for each in made) else A_NO

    run(work, as_json=as_json)


async def _say_state(site: Site, rollout: Rollout, following: str, *, as_json: bool) -> int:
    """How a rollout stands now, by hand; and see that somebody carries what is left of it."""
    if as_json:
        body = {"rollout_id": rollout.rollout_id, "state": rollout.state.value, "why": rollout.why}
        say(envelope("rollout", body))
    else:
        say(f"{rollout.rollout_id} is {rollout.state.value}{f': {rollout.why}' if rollout.why else ''}")
        say(following)
    if await left_to_carry(site) and carrier_lock(site.store_path).holder() is None:
        await _until_carried(site, site.spawn_carrier())
    return 0


@rollouts_app.command("watch")
def rollouts_watch(
    rollout_id: RolloutId, fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False
) -> None:
    """Follow a rollout to its end. Ctrl-C ends the watching, not the rollout. Exit 0 done, 5 done on some nodes, 6 halted."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            return await _watch(site, await rollout_named(site, rollout_id), as_json=as_json)

    run(work, as_json=as_json)


@serve_app.command()
def serve(
    fleet: Fleet = None,
    store: StorePath = None,
    until_done: Annotated[bool, declare.option("--until-done", says="End when no rollout is left to carry.")] = False,
    as_json: AsJson = False,
) -> None:
    """Carry all rollouts in this process. One process at a time carries a store; another one refuses."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            lock = carrier_lock(site.store_path)
            if not lock.acquire():
                raise Refused(
                    f"{_who(lock)} carries the rollouts of {site.store_path}",
                    hint="watch with: muster rollouts watch last",
                )
            try:
                # What was begun while the last one ended saw our lock, and relies on us: looked at again after the lock is free.
                while lock.acquire():
                    await carry(site)
                    if until_done:
                        lock.release()
                        if not await left_to_carry(site):
                            break
                    else:
                        await site.clock.sleep(1.0)
            finally:
                lock.release()
            return 0

    run(work, as_json=as_json)


def _who(lock: CarrierLock) -> str:
    holder = lock.holder()
    return "another process" if holder is None else f"process {holder.pid} on {holder.host} since {holder.since}"


@audit_app.command("show")
def audit_show(rollout_id: RolloutId, fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Show what was done in a rollout, in order: who, where, which command."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            for entry in await site.store.audit(await rollout_named(site, rollout_id)):
                if as_json:
                    say(json.dumps(_entry(entry), ensure_ascii=False))
                else:
                    body = json.dumps(
                        {k: v for k, v in entry.record.body.items() if k != "script"}, ensure_ascii=False, default=dict
                    )
                    say(f"{entry.seq:5} {entry.record.at} {entry.record.node or '-':<10} {entry.record.kind:<8} {body}")
            return 0

    run(work, as_json=as_json)


def _entry(entry: Entry) -> Mapping[str, object]:
    record = entry.record
    return {
        "schema": "muster.audit/1", "chain": entry.chain, "seq": entry.seq, "at": record.at, "actor": record.actor,
        "node": record.node, "kind": record.kind, "body": dict(record.body), "prev": entry.prev, "hash": entry.hash,
    }  # fmt: skip


@audit_app.command("verify")
def audit_verify(
    rollout_id: RolloutId,
    fleet: Fleet = None,
    store: StorePath = None,
    head: Annotated[
        str | None, declare.option("--head", says="The head as it was kept elsewhere; finds a cut tail too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a rollout's chain: changed, missing and (with --head) cut-off entries. Exit 1 when it does not hold."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            wanted = await rollout_named(site, rollout_id)
            entries = await site.store.audit(wanted)
            found = faults(entries, head=head) or (
                () if entries else ("every rollout has entries, and this one has none",)
            )
            last = entries[-1].hash if entries else ""
            if as_json:
                say(
                    envelope(
                        "audit-verify",
                        {"rollout_id": wanted, "entries": len(entries), "head": last, "faults": list(found)},
                    )
                )
            else:
                for fault in found:
                    say(fault)
                say(
                    f"{wanted}: {len(entries)} entries, {'the chain holds' if not found else 'THE CHAIN DOES NOT HOLD'}"
                )
                say(f"head {last}")
            return A_NO if found else 0

    run(work, as_json=as_json)
