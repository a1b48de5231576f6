"""`muster why`, `knowledge`, `version`: what could be, and why. None of them changes a node."""

import platform
from collections.abc import Mapping
from typing import Annotated

import typer

from muster import __version__
from muster.cli.output import AsJson, Fleet, StorePath, app, envelope, run, say
from muster.control.bootstrap import open_site
from muster.control.planning import Why
from muster.control.planning import why as why_target
from muster.control.rollouts import covered, summary
from muster.control.site import Site, plan_named
from muster.knowledge.loader import load
from muster.model.errors import UnknownName
from muster.model.plan import Waiting
from muster.planner.lint import lint
from muster.planner.words import few, heading, lines
from muster.solver.problem import NoSolution
from muster.solver.words import body, paragraphs

A_NO, PARTIAL = 1, 5

why_app = app("Say why a node or pool can or cannot carry a driver; why a plan or rollout stands as it does.")
knowledge_app = app("What the knowledge base holds.")
version_app = app("Print the version.")


@why_app.command()
def why(
    target: Annotated[str, typer.Argument(help="A node, a pool, a plan or a rollout.")],
    fleet: Fleet = None,
    store: StorePath = None,
    driver: Annotated[
        str | None, typer.Option("--not", help="Ask about this driver instead of the wanted one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say why a node or pool can or cannot carry a driver, or why a plan or rollout stands as it does. Exit 1 for a "no"."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            if target.startswith("plan-"):
                return await _why_plan(site, target, as_json=as_json)
            if target.startswith("rollout-"):
                return await _why_rollout(site, target, as_json=as_json)
            answers = await why_target(site, target, driver=driver)
            if as_json:
                say(envelope("why", [_why_body(each) for each in answers]))
            for each in () if as_json else answers:
                _say_why(each)
            return A_NO if any(isinstance(each.answer, NoSolution | Waiting) for each in answers) else 0

    run(work, as_json=as_json)


def _say_why(answer: Why) -> None:
    match answer.answer:
        case Waiting(detail=detail):
            say(f"{few(answer.nodes)}: {detail}")
        case NoSolution(because=because, hints=hints):
            say(f"{few(answer.nodes)} cannot carry {answer.wanted} (pool {answer.pool}):")
            for line in paragraphs(because):
                say(f"  {line}")
            for hint in hints:
                say(f"  what would help: {hint.says}")
        case solution:
            say(
                f"{few(answer.nodes)} can carry {solution.chosen.driver.text}, {solution.chosen.flavour} modules (pool {answer.pool}):"
            )
            for rule in solution.because:
                for line in paragraphs(rule):
                    say(f"  {line}")
            for rule in solution.reboot:
                say("  with a restart of the node, not a reload of the module:")
                for line in paragraphs(rule):
                    say(f"    {line}")


def _why_body(answer: Why) -> Mapping[str, object]:
    shared = {"nodes": list(answer.nodes), "pool": answer.pool, "wanted": answer.wanted}
    match answer.answer:
        case Waiting(on=on, detail=detail):
            return {**shared, "answer": "unknown", "on": on.value, "detail": detail}
        case NoSolution(because=because, hints=hints):
            return {**shared, "answer": "no", "because": body(because), "hints": [hint.says for hint in hints]}
        case solution:
            chosen = {"driver": solution.chosen.driver.text, "flavour": solution.chosen.flavour}
            return {
                **shared,
                "answer": "yes",
                "chosen": chosen,
                "because": [body(rule) for rule in solution.because],
                "reboot": [body(rule) for rule in solution.reboot],
            }


async def _why_plan(site: Site, target: str, *, as_json: bool) -> int:
    found = await plan_named(site, target)
    if as_json:
        left = [{"subject": w.subject, "on": w.on.value, "detail": w.detail} for w in found.left_out]
        say(envelope("why", {"plan": found.id, "because": list(found.because), "left_out": left}))
    else:
        say(heading(found))
        for line in lines(found, lint(found), len((await covered(site, found)).approvals))[1:]:
            say(line)
    return 0


async def _why_rollout(site: Site, target: str, *, as_json: bool) -> int:
    rollouts = [r for r in await site.store.rollouts() if r.rollout_id.startswith(target)]
    if len(rollouts) != 1:
        raise UnknownName(f"no rollout is called {target!r}", hint="see: muster rollouts list")
    runs = await site.store.runs(rollouts[0].rollout_id)
    data = summary(rollouts[0], await plan_named(site, rollouts[0].plan_id), runs)
    if as_json:
        say(envelope("why", data))
        return 0
    say(f"{rollouts[0].rollout_id} is {rollouts[0].state.value}: {rollouts[0].why or 'going on'}")
    for run_ in runs:
        words = run_.waiting or run_.notes.get("cause", "")
        if words and run_.released:
            say(f"  {run_.node}: {run_.phase.value}: {words}")
    return 0


@knowledge_app.command("info")
def knowledge_info(as_json: AsJson = False) -> None:
    """Show the revision of the knowledge base and how many records it holds."""

    async def work() -> int:
        base = load()
        data = {
            "revision": base.revision, "branches": len(base.branches), "driver_releases": len(base.releases),
            "cuda_toolkits": len(base.toolkits), "architectures": len(base.architectures), "package_sets": len(base.package_sets),
        }  # fmt: skip
        if as_json:
            say(envelope("knowledge", data))
        else:
            for key, value in data.items():
                say(f"{key.replace('_', ' ')}: {value}")
        return 0

    run(work, as_json=as_json)


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

    run(work, as_json=as_json)
