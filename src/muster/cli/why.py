"""`muster why`: one grammar for nodes, pools, plans and rollouts. A conclusion, what it rests on, and apart from that what would help."""

from collections.abc import Mapping
from typing import Annotated

from muster.cli import declare
from muster.cli.output import AsJson, Fleet, StorePath, app, envelope, run, say
from muster.control.bootstrap import open_site
from muster.control.why import About, Answered, Says
from muster.control.why import why as why_target
from muster.solver.words import MOST_CAUSES, body, paragraphs

A_NO = 1

why_app = app("Say why a node or pool can or cannot carry a driver; why a plan or rollout stands as it does.")


@why_app.command()
def why(
    target: Annotated[str, declare.argument(says="A node, a pool, a plan or a rollout.")],
    fleet: Fleet = None,
    store: StorePath = None,
    driver: Annotated[
        str | None, declare.option("--not", says="Ask about this driver instead of the wanted one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say why a node or pool can or cannot carry a driver, or why a plan or rollout stands as it does. Exit 1 for a "no"."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            found = await why_target(site, target, driver=driver)
        if as_json:
            answers = [_body(each) for each in found.answers]
            say(envelope("why", {"about": found.about.value, "target": found.target, "answers": answers}))
        for each in () if as_json else found.answers:
            _say(each)
        asked = found.about in (About.NODE, About.POOL)
        words = [each.says for each in found.answers]
        good = Says.YES in words and not {Says.NO, Says.UNKNOWN} & set(words)
        return A_NO if asked and not good else 0

    run(work, as_json=as_json, waits=False)


def _say(answered: Answered) -> None:
    for line in paragraphs(answered.because, most=MOST_CAUSES if answered.says is not Says.YES else None):
        say(line)
    for hint in answered.hints:
        say(f"  what would help: {hint.says}")


def _body(answered: Answered) -> Mapping[str, object]:
    """The same tree as JSON values."""
    found: dict[str, object] = {
        "nodes": list(answered.nodes),
        "pool": answered.pool,
        "answer": answered.says.value,
        "because": body(answered.because),
        "hints": [hint.says for hint in answered.hints],
    }
    if answered.chosen is not None:
        found["chosen"] = {
            "driver": answered.chosen.driver.text,
            "flavour": answered.chosen.flavour,
            "restart": "reboot" if answered.restart else "reload",
        }
    return found
