"""`muster plan` and `muster plans`: a change as a value that can be read, compared, checked and approved. None of them changes a node."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from muster.cli import declare
from muster.cli.output import AsJson, Fleet, StorePath, app, envelope, note, run, say, table
from muster.control.approving import Covered, covered, past_failures
from muster.control.approving import approve as approve_plan
from muster.control.bootstrap import open_site
from muster.control.plan_files import plan_given, write_plan
from muster.control.planning import plan as make_plan
from muster.control.site import Site
from muster.model.plan import Plan, WaitingOn, plan_body
from muster.planner.diff import diff, diff_lines
from muster.planner.lint import lint
from muster.planner.note import Note
from muster.planner.words import detects, lines

A_NO, PARTIAL = 1, 5

plan_app = app("Propose a change, as a plan. Changes nothing.")
plans_app = app("List, show, compare, lint and approve plans.")

PLAN_HELP = "The plan's id, a unique beginning of it, `last`, or a file that `plan --out` wrote (with a `/`, or ending in .json)."
PlanId = Annotated[str, declare.argument(says=PLAN_HELP)]
Wide = Annotated[bool, declare.option("--wide", says="Name every node and every reason; nothing is cut short.")]


@plan_app.command()
def plan(
    fleet: Fleet = None,
    store: StorePath = None,
    driver: Annotated[
        str | None, declare.option("--driver", says="Plan for this driver instead of the policy's.")
    ] = None,
    pool: Annotated[str | None, declare.option("--pool", says="Plan this pool alone.")] = None,
    seed: Annotated[str, declare.option("--seed", says="Chooses the canaries; the same seed chooses the same.")] = "",
    after: Annotated[
        str | None,
        declare.option(
            "--after", says="Another round of this plan: its pools and driver; its approval covers what stays within."
        ),
    ] = None,
    out: Annotated[Path | None, declare.option("--out", says="Also write the plan to this file.")] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Propose a change, as a plan, from what was last seen. Exit 1 when nothing is to be changed, 5 when too little is known."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            parent = None if after is None else await plan_given(site, after, keep=True)
            made, warnings = await make_plan(site, driver=driver, pool=pool, seed=seed, parent=parent)
            if out is not None:
                write_plan(out, made)
            await _show(site, made, as_json=as_json, wide=wide, warnings=warnings)
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
    return f"{len((await covered(site, plan)).approvals)} of {plan.approvals}"


@plans_app.command("show")
def plans_show(
    plan_id: PlanId, fleet: Fleet = None, store: StorePath = None, wide: Wide = False, as_json: AsJson = False
) -> None:
    """Show a plan: what, why, what breaks, stages and what each detects, limits, who is left out and why, what it still needs."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            await _show(site, await plan_given(site, plan_id), as_json=as_json, wide=wide)
            return 0

    run(work, as_json=as_json, waits=False)


async def _show(site: Site, plan: Plan, *, as_json: bool, wide: bool, warnings: Sequence[str] = ()) -> None:
    notes = (*lint(plan), *await past_failures(site, plan))
    approved = await covered(site, plan)
    if as_json:
        say(envelope("plan", _body(plan, notes, approved), warnings))
        return
    for warning in warnings:
        note(f"warning: {warning}")
    for line in lines(plan, notes, len(approved.approvals), wide=wide):
        say(line)
    for why in approved.outside:
        say(f"  the approval of {plan.parent} does not cover it: {why}")


def _body(plan: Plan, notes: Sequence[Note], approved: Covered) -> Mapping[str, object]:
    last = len(plan.stages) - 1
    return {
        "id": plan.id,
        "plan": plan_body(plan),
        "lint": [_note(note) for note in notes],
        "detects": {stage.name: detects(stage, last=at == last) for at, stage in enumerate(plan.stages)},
        "approved_by": [{"by": each.by, "at": each.at, "note": each.note} for each in approved.approvals],
        "outside_of_parent": list(approved.outside),
    }


def _note(note: Note) -> Mapping[str, str]:
    return {"severity": note.severity, "subject": note.subject, "says": note.says}


@plans_app.command("lint")
def plans_lint(plan_id: PlanId, fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Check a plan against the safety rules again. Exit 1 with a fatal note."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            notes = lint(await plan_given(site, plan_id))
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
    note: Annotated[str, declare.option("--note", says="Why, for the record.")] = "",
    as_json: AsJson = False,
) -> None:
    """Approve a plan as the user you are logged in as. The same person counts once."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            found = await plan_given(site, plan_id, keep=True)
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


@plans_app.command("diff")
def plans_diff(
    before: Annotated[str, declare.argument(says=PLAN_HELP)],
    after: Annotated[str, declare.argument(says=PLAN_HELP)],
    fleet: Fleet = None,
    store: StorePath = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Say what the second plan does otherwise than the first. Exit 1 when there is a difference."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            first, second = await plan_given(site, before), await plan_given(site, after)
            changes = diff(first, second)
            if as_json:
                listed = [{"what": each.what, "says": each.says, "nodes": list(each.nodes)} for each in changes]
                say(envelope("plan-diff", {"before": first.id, "after": second.id, "changes": listed}))
            for line in () if as_json else diff_lines(first, second, wide=wide):
                say(line)
            return A_NO if changes else 0

    run(work, as_json=as_json, waits=False)
