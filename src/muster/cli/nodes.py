"""`muster nodes upgrade|rollback|repair|install|hold`: one node alone, through the same plan, approval, lease and audit as a fleet."""

from typing import Annotated

from muster.cli import declare
from muster.cli.change import carry_out
from muster.cli.look import nodes_app
from muster.cli.output import AsJson, Fleet, StorePath, envelope, run, say
from muster.control.approving import approve, past_failures
from muster.control.bootstrap import open_site
from muster.control.holding import hold_for
from muster.control.installing import install_for
from muster.control.repairing import repair_for
from muster.control.single import plan_for, ran_before
from muster.control.site import Site
from muster.model.errors import Refused
from muster.model.plan import Plan, WaitingOn, plan_body
from muster.planner.lint import lint
from muster.planner.words import lines

A_NO = 1

OneNode = Annotated[str, declare.argument(says="The node's name, or a unique beginning of it.")]
Yes = Annotated[bool, declare.option("--yes", says="Approve the plan as yourself, carry it out and watch it.")]


@nodes_app.command("upgrade")
def nodes_upgrade(
    node: OneNode,
    fleet: Fleet = None,
    store: StorePath = None,
    driver: Annotated[str | None, declare.option("--driver", says="This driver instead of the policy's.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Look at one node and plan its change alone; with --yes also approve and carry it out. Exit 1 when nothing is to be changed."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            name = site.node_named(node)
            return await _change(site, await plan_for(site, name, driver=driver), yes=yes, as_json=as_json)

    run(work, as_json=as_json)


@nodes_app.command("rollback")
def nodes_rollback(
    node: OneNode, fleet: Fleet = None, store: StorePath = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Plan the way of one node back to the driver from which its last finished change came; with --yes also carry it out."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            name = site.node_named(node)
            made = await plan_for(site, name, driver=await ran_before(site, name))
            return await _change(site, made, yes=yes, as_json=as_json)

    run(work, as_json=as_json)


@nodes_app.command("repair")
def nodes_repair(
    node: OneNode,
    fleet: Fleet = None,
    store: StorePath = None,
    driver: Annotated[
        str | None, declare.option("--driver", says="This driver instead of the one it had when it was last whole.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Plan how one node's broken stack becomes whole again; with --yes also carry it out. Exit 1 when it is whole, 4 when it may not be."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            name = site.node_named(node)
            made = await repair_for(site, name, driver=driver)
            return await _or_refused(site, name, made, "is not repaired", yes=yes, as_json=as_json)

    run(work, as_json=as_json)


@nodes_app.command("install")
def nodes_install(
    node: OneNode,
    fleet: Fleet = None,
    store: StorePath = None,
    driver: Annotated[str | None, declare.option("--driver", says="This driver instead of the policy's.")] = None,
    gpu: Annotated[
        str | None, declare.option("--gpu", says="The GPUs' model or family, which a bare node cannot tell.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Plan the first driver of one bare node; with --yes also carry it out. Exit 1 when it has a driver, 4 when it may not be."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            name = site.node_named(node)
            made = await install_for(site, name, driver=driver, gpu=gpu)
            return await _or_refused(site, name, made, "is not installed on", yes=yes, as_json=as_json)

    run(work, as_json=as_json)


@nodes_app.command("hold")
def nodes_hold(
    node: OneNode, fleet: Fleet = None, store: StorePath = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Plan to hold one node's driver and kernel as the policy says; with --yes also hold them. No package changes, no job is disturbed."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            name = site.node_named(node)
            made = await hold_for(site, name)
            return await _or_refused(site, name, made, "is not held", yes=yes, as_json=as_json)

    run(work, as_json=as_json)


async def _or_refused(site: Site, name: str, made: Plan, words: str, *, yes: bool, as_json: bool) -> int:
    """Like `_change`, but that a node was left out for a reason is a refusal."""
    left = next((each for each in made.left_out if each.subject == name), None)
    code = await _change(site, made, yes=yes, as_json=as_json)
    if left is not None and left.on is not WaitingOn.NOTHING_TO_DO:
        raise Refused(f"{name} {words}: {left.detail}", hint=f"look closer: muster nodes show {name}")
    return code


async def _change(site: Site, made: Plan, *, yes: bool, as_json: bool) -> int:
    notes = (*lint(made), *await past_failures(site, made))
    if as_json and not (yes and made.nodes):
        said = [{"severity": each.severity, "subject": each.subject, "says": each.says} for each in notes]
        say(envelope("plan", {"id": made.id, "plan": plan_body(made), "lint": said, "approved_by": []}))
    elif not as_json:
        for line in lines(made, notes, 0):
            say(line)
    if not made.nodes:
        return A_NO
    if not yes:
        return 0
    await approve(site, made, by=site.person, note="one node, by hand")
    return await carry_out(site, made, detach=False, as_json=as_json)


__all__ = ["nodes_app"]
