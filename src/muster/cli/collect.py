"""`muster collect`: looks at every node and keeps what was seen. Changes nothing on a node."""

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

from muster.cli import declare
from muster.cli.output import AsJson, Fleet, StorePath, app, envelope, note, run, say
from muster.cli.text import say_warnings
from muster.control.bootstrap import open_site
from muster.control.collect import carried_facts
from muster.control.collect import collect as collect_nodes
from muster.model.fact import NodeFacts

PARTIAL = 5

collect_app = app("Look at every node over SSH and keep what was seen. Changes nothing on a node.")

From = Annotated[
    Path | None,
    declare.option("--from", says="Contact no node; read what was carried here: DIR/NODE.out or DIR/NODE/SOURCE.txt."),
]
Limit = Annotated[list[str] | None, declare.option("--limit", says="Only this node; may be given more than once.")]


@collect_app.command()
def collect(
    fleet: Fleet = None, store: StorePath = None, limit: Limit = None, folder: From = None, as_json: AsJson = False
) -> None:
    """Look at every node over SSH and keep what was seen. Changes nothing on a node. Exit 5 when a node could not be looked at."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            chosen = {site.node_named(each) for each in limit} if limit else {node.name for node in site.nodes}
            nodes = [node for node in site.nodes if node.name in chosen]
            carried = carried_facts(nodes, site.caller(), site.carried, folder)
            brought = {facts.node: facts for facts in carried.facts}
            if folder is not None:
                nodes = [node for node in nodes if node.name in brought]
            done = Counter[str]()

            def seen(facts: NodeFacts) -> None:
                done["all"] += 1
                if sys.stderr.isatty():
                    sys.stderr.write(f"\r{done['all']}/{len(nodes)} nodes")
                    sys.stderr.flush()

            found = await collect_nodes(
                nodes, specs=site.specs, transport=site.transport, store=site.store, clock=site.clock, ids=site.ids,
                concurrency=site.policy.ssh.concurrency, seen=seen, carried=brought,
                program=site.program,
            )  # fmt: skip
            if sys.stderr.isatty():
                note("")
            return _collected(found, (*site.inventory.warnings, *carried.warnings), as_json=as_json)

    run(work, as_json=as_json)


def _collected(found: tuple[NodeFacts, ...], warnings: tuple[str, ...], *, as_json: bool) -> int:
    away = {facts.node: facts.trouble.why for facts in found if facts.trouble is not None}
    drivers = Counter(
        facts.text("module.nvidia.loaded_version") or "unknown" for facts in found if facts.trouble is None
    )
    if as_json:
        data = {"nodes": len(found), "drivers": dict(sorted(drivers.items())), "unreachable": away}
        say(envelope("collect", data, warnings))
    else:
        say(f"{len(found) - len(away)} of {len(found)} nodes looked at")
        for driver, count in sorted(drivers.items()):
            say(f"  driver {driver} on {count} nodes")
        for node, why in away.items():
            say(f"  {node}: {why}")
        say_warnings(warnings)
    # Nothing looked at is nothing known, whatever was carried here of others.
    return PARTIAL if away or not found else 0
