"""`muster plan`, `plans`, `version`: what could be, and why. None of them changes a node."""

import platform
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from muster import __version__
from muster.cli.output import AsJson, Fleet, StorePath, app, envelope, run, say, table
from muster.control.bootstrap import open_site
from muster.control.planning import plan as make_plan
from muster.control.rollouts import approve as approve_plan
from muster.control.rollouts import past_failures
from muster.control.site import Site, plan_named
from muster.knowledge.loader import load
from muster.model.approval import Approval
from muster.model.plan import Plan, WaitingOn, plan_body
from muster.planner.lint import Note, lint
from muster.planner.words import lines

A_NO, PARTIAL = 1, 5

plan_app = app("Propose a change, as a plan. Changes nothing.")
plans_app = app("List, show, lint and approve plans.")
version_app = app("Print the version.")

PlanId = Annotated[str, typer.Argument(help="The plan's id, a unique beginning of it, or `last`.")]


@plan_app.command()
def plan(
    fleet: Fleet = None,
    store: StorePath = None,
    driver: Annotated[
        str | None, typer.Option("--driver", help="Plan for this driver instead of the policy's.")
    ] = None,
    pool: Annotated[str | None, typer.Option("--pool", help="Plan this pool alone.")] = None,
    seed: Annotated[str, typer.Option("--seed", help="Chooses the canaries; the same seed chooses the same.")] = "",
    as_json: AsJson = False,
) -> None:
    """Propose a change, as a plan, from what was last seen. Exit 1 when nothing is to be changed, 5 when too little is known."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            made = await make_plan(site, driver=driver, pool=pool, seed=seed)
            _show(made, (*lint(made), *await past_failures(site, made)), (), as_json=as_json)
            unknown = any(left.on in (WaitingOn.STALE_FACTS, WaitingOn.UNKNOWN_HEALTH) for left in made.left_out)
            return 0 if made.nodes else PARTIAL if unknown else A_NO

    run(work, as_json=as_json, waits=False)


@plans_app.command("list")
def plans_list(fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """List the plans that were made, oldest first."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            plans = await site.store.plans()
            rows = [[p.id, p.created_at, p.target, str(len(p.nodes)), await _approvals(site, p)] for p in plans]
            keys = ("plan", "made", "target", "nodes", "approvals")
            if as_json:
                say(envelope("plans", [dict(zip(keys, row, strict=True)) for row in rows]))
            else:
                table(keys, rows)
            return 0

    run(work, as_json=as_json, waits=False)


async def _approvals(site: Site, plan: Plan) -> str:
    return f"{len(await site.store.approvals(plan.id))} of {plan.approvals}"


@plans_app.command("show")
def plans_show(plan_id: PlanId, fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Show a plan: what, why, stages, limits, who is left out and why, what it still needs."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            found = await plan_named(site, plan_id)
            notes = (*lint(found), *await past_failures(site, found))
            _show(found, notes, await site.store.approvals(found.id), as_json=as_json)
            return 0

    run(work, as_json=as_json, waits=False)


def _show(plan: Plan, notes: Sequence[Note], approvals: Sequence[Approval], *, as_json: bool) -> None:
    if not as_json:
        for line in lines(plan, notes, len(approvals)):
            say(line)
        return
    data = {
        "id": plan.id,
        "plan": plan_body(plan),
        "lint": [_note(note) for note in notes],
        "approved_by": [{"by": each.by, "at": each.at, "note": each.note} for each in approvals],
    }
    say(envelope("plan", data))


def _note(note: Note) -> Mapping[str, str]:
    return {"severity": note.severity, "subject": note.subject, "says": note.says}


@plans_app.command("lint")
def plans_lint(plan_id: PlanId, fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Check a plan against the safety rules again. Exit 1 with a fatal note."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            notes = lint(await plan_named(site, plan_id))
            if as_json:
                say(envelope("lint", [_note(note) for note in notes]))
            for note in () if as_json else notes:
                say(f"{note.severity}: {note.subject} {note.says}")
            if not notes and not as_json:
                say("keeps every safety rule")
            return A_NO if any(note.severity == "fatal" for note in notes) else 0

    run(work, as_json=as_json, waits=False)


@plans_app.command("approve")
def plans_approve(
    plan_id: PlanId,
    fleet: Fleet = None,
    store: StorePath = None,
    note: Annotated[str, typer.Option("--note", help="Why, for the record.")] = "",
    as_json: AsJson = False,
) -> None:
    """Approve a plan as the user you are logged in as. The same person counts once."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            found = await plan_named(site, plan_id)
            approvals = await approve_plan(site, found, by=site.person, note=note)
            if as_json:
                listed = [{"by": each.by, "at": each.at, "note": each.note} for each in approvals]
                say(envelope("approvals", {"plan": found.id, "needed": found.approvals, "approved_by": listed}))
            else:
                say(f"{found.id}: {len(approvals)} of {found.approvals} approvals, yours as {site.person}")
                enough = len(approvals) >= found.approvals
                say(f"next: muster apply {found.id}" if enough else "next: another person's `muster plans approve`")
            return 0

    run(work, as_json=as_json, waits=False)


@version_app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version of Muster and of what it runs on."""

    async def work() -> int:
        revision, python = load().revision, platform.python_version()
        if as_json:
            say(envelope("version", {"version": __version__, "python": python, "knowledge": revision}))
        else:
            say(f"muster {__version__} (Python {python}, knowledge {revision[:12]})")
        return 0

    run(work, as_json=as_json, waits=False)
