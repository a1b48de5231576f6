"""`muster validate`: exercises the GPUs of idle nodes, and says what was found and measured."""

import asyncio
from typing import Annotated

from muster.cli import declare
from muster.cli.output import AsJson, Fleet, StorePath, app, envelope, note, run, say, table
from muster.control.bootstrap import open_site
from muster.control.site import Site
from muster.control.validating import validate
from muster.executor.runner import stamp
from muster.health.floors import learn
from muster.model.errors import MusterError, Partial, Refused
from muster.model.validation import Validated
from muster.model.verdict import Degraded, Fail, Skipped, Undecided, word

FAILED, REFUSED, UNKNOWN = 1, 4, 5

validate_app = app("Exercise the GPUs of an idle node, check what they compute, and measure how fast.")


@validate_app.command()
def validate_nodes(
    nodes: Annotated[list[str] | None, declare.argument(says="Names of nodes, or unique beginnings of them.")] = None,
    force: Annotated[
        bool, declare.option("--force", says="Also where jobs hold the GPUs, or nobody can say: it disturbs them.")
    ] = False,
    kept: Annotated[
        bool,
        declare.option("--kept", says="Validate nothing: show what is kept of these nodes, or of all, and the floors."),
    ] = False,
    fleet: Fleet = None,
    store: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Validate nodes, each under a lease of its own, as the policy's `validate` section says. The result is kept: floors are learnt from it.

    A node that a job uses, or that somebody holds, is refused. Interrupted, it goes on where it was when it is called again.
    Exit 1 when a node fails, 4 when one was refused, 5 when one is unknown or unreachable.
    """

    if not nodes and not kept:
        raise declare.BadParameter("name a node, or give --kept", where="NODES")

    async def work() -> int:
        async with open_site(fleet, store) as site:
            names = list(dict.fromkeys(site.node_named(name) for name in nodes or ()))
            if kept:
                return await _show_kept(site, names, as_json=as_json)
            if len(names) == 1 and not as_json:
                note(f"{names[0]}: exercising its GPUs; this takes some minutes")
            found = await _each(site, names, force=force)
        if len(names) == 1 and isinstance(found[0], MusterError):
            raise found[0]
        validated = [each for each in found if isinstance(each, Validated)]
        refused = {name: each for name, each in zip(names, found, strict=True) if isinstance(each, MusterError)}
        if as_json:
            body = [_body(each) for each in validated]
            why = {name: error.message for name, error in refused.items()}
            say(envelope("validations", {"validations": body, "not_validated": why}))
        else:
            _tell(validated, refused)
        return _code(found)

    run(work, as_json=as_json)


async def _each(site: Site, names: list[str], *, force: bool) -> list[Validated | MusterError]:
    gate = asyncio.Semaphore(site.policy.ssh.concurrency)

    async def one(name: str) -> Validated | MusterError:
        async with gate:
            try:
                return await validate(site, name, force=force)
            except (Refused, Partial) as error:
                return error

    return list(await asyncio.gather(*(one(name) for name in names)))


async def _show_kept(site: Site, names: list[str], *, as_json: bool) -> int:
    found = [each for each in await site.store.validations() if not names or each.node in names]
    learnt = [
        {"gpu": kind, "metric": metric, "minimum": floor.minimum, "median": floor.median, "nodes": floor.nodes}
        for (kind, metric), floor in learn(await site.store.validations()).items()
    ]
    if as_json:
        say(envelope("validations", {"validations": [_body(each) for each in found], "learnt": learnt}))
        return 0
    if not found:
        say("no validation is kept" + (f" of {', '.join(names)}" if names else ""))
        return 0
    rows = [[each.node, stamp(each.at), each.driver, word(each.verdict), _why(each)[:100]] for each in found]
    table(("node", "at", "driver", "verdict", "why"), rows)
    say()
    shown = [[str("-" if value is None else value) for value in row.values()] for row in learnt]
    table(("gpu", "metric", "floor to learn", "median", "nodes"), shown)
    return 0


def _body(each: Validated) -> dict[str, object]:
    return {
        "node": each.node, "at": stamp(each.at), "validator": each.validator, "gpu": each.kind, "driver": each.driver,
        "verdict": word(each.verdict), "why": _why(each), "figures": dict(each.figures), "under": each.under,
    }  # fmt: skip


def _why(each: Validated) -> str:
    return "" if isinstance(each.verdict, Skipped) else each.verdict.why


def _tell(validated: list[Validated], refused: dict[str, MusterError]) -> None:
    for each in validated:
        say(f"{each.node}: {word(each.verdict)}: {_why(each)}")
    metrics = list(dict.fromkeys(metric for each in validated for metric in sorted(each.figures)))
    if metrics:
        say()
        rows = [
            [each.node, *(f"{each.figures[metric]:g}" if metric in each.figures else "-" for metric in metrics)]
            for each in validated
        ]
        table(("node", *metrics), rows)
    for name, error in refused.items():
        say(f"{name}: not validated: {error.message}" + (f" ({error.hint})" if error.hint else ""))


def _code(found: list[Validated | MusterError]) -> int:
    verdicts = [each.verdict for each in found if isinstance(each, Validated)]
    errors = [each for each in found if isinstance(each, MusterError)]
    if any(isinstance(verdict, Fail | Degraded) for verdict in verdicts):
        return FAILED
    if any(isinstance(error, Refused) for error in errors):
        return REFUSED
    return UNKNOWN if errors or any(isinstance(verdict, Undecided | Skipped) for verdict in verdicts) else 0
