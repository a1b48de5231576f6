"""`muster collect`, `status`, `check`, `nodes`, `facts`: what there is. None of them changes a node."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.output import AsJson, Fleet, StorePath, app, envelope, note, run, say, table
from muster.control.bootstrap import capture_readers, fact_specs, open_site, script_to_carry
from muster.control.captures import parse_file
from muster.control.collect import carried_facts
from muster.control.collect import collect as collect_nodes
from muster.control.planning import findings
from muster.control.site import Site, named
from muster.health.cause import ASKED as CAUSE_ASKED
from muster.health.consistency import health_words
from muster.model.fact import FactValue, NodeFacts, Unknown
from muster.model.finding import Finding, Severity
from muster.model.inventory import Conflict
from muster.planner.pools import pool_of

PARTIAL, FOUND = 5, 1
MOST_WARNINGS = 20

collect_app = app("Look at every node over SSH and keep what was seen. Changes nothing on a node.")
status_app = app("Show the fleet as it was last seen: by pool, model, driver, flavour and kernel.")
check_app = app(
    "Find what disagrees: inside a node, in a pool, with what is wanted. Exit 1 with findings, 5 when something is unknown."
)
nodes_app = app("List nodes, or show one with all its facts.")
facts_app = app("What Muster can see on a node, and by which command.")

From = Annotated[
    Path | None,
    typer.Option("--from", help="Contact no node; read what was carried here: DIR/NODE.out or DIR/NODE/SOURCE.txt."),
]
Limit = Annotated[list[str] | None, typer.Option("--limit", help="Only this node; may be given more than once.")]


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
        _warn(warnings)
    return PARTIAL if away else 0


def _warn(warnings: Sequence[str]) -> None:
    """What could not be used, on standard error; of very many the first ones."""
    for warning in warnings[:MOST_WARNINGS]:
        note(f"warning: {warning}")
    if len(warnings) > MOST_WARNINGS:
        note(f"warning: and {len(warnings) - MOST_WARNINGS} more; --json shows all")


def _conflict(conflict: Conflict) -> Mapping[str, object]:
    said = [{"source": each.source, "value": each.value} for each in conflict.said]
    return {"node": conflict.node, "what": conflict.what, "said": said}


def _conflict_words(conflict: Conflict) -> str:
    first, *others = (f"{each.value} ({each.source})" for each in conflict.said)
    return f"{conflict.node}: {conflict.what} is {first}; not {', '.join(others)}"


@status_app.command()
def status(fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Show the fleet as it was last seen: by pool, model, driver, flavour and kernel, with its worst finding."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            rows = await _status_rows(site)
            if as_json:
                say(envelope("status", {"fleet": site.policy.fleet, "nodes": len(site.nodes), "groups": rows}))
            else:
                columns = ("pool", "model", "driver", "flavour", "kernel", "health", "nodes")
                table([*columns, "which"], [[*(str(row[c]) for c in columns), _few(row["names"])] for row in rows])
            return 0

    run(work, as_json=as_json)


async def _status_rows(site: Site) -> list[dict[str, object]]:
    facts = await site.known_facts()
    placings = await site.placings(facts)
    health = health_words(await findings(site))
    groups: dict[tuple[str, ...], list[str]] = {}
    for node in site.nodes:
        pool = pool_of(placings[node.name], site.policy)
        seen = facts.get(node.name)
        paths = ("gpu.product", "module.nvidia.loaded_version", "module.nvidia.flavour", "kernel.running")
        words = [(seen.text(path) if seen is not None else None) or "unknown" for path in paths]
        key = (pool.name if pool is not None else "-", *words, health.get(node.name, "ok"))
        groups.setdefault(key, []).append(node.name)
    columns = ("pool", "model", "driver", "flavour", "kernel", "health")
    return [
        {**dict(zip(columns, key, strict=True)), "nodes": len(names), "names": names}
        for key, names in sorted(groups.items())
    ]


def _few(names: object) -> str:
    listed = list(names) if isinstance(names, list) else []
    return ", ".join(listed[:4]) + (f" +{len(listed) - 4}" if len(listed) > 4 else "")


@check_app.command()
def check(fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Find what disagrees. Exit 0 clean, 1 findings, 5 something is unknown (which is not clean)."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            found = await findings(site)
            if as_json:
                say(envelope("check", {"findings": [_finding(each) for each in found]}))
            else:
                _say_findings(found, len(site.nodes))
            if any(each.severity is Severity.UNKNOWN for each in found):
                return PARTIAL
            return FOUND if found else 0

    run(work, as_json=as_json)


def _say_findings(found: tuple[Finding, ...], nodes: int) -> None:
    if not found:
        say(f"{nodes} nodes agree with themselves, with their pools and with what is wanted")
    for each in found:
        say(f"{each.severity.value.upper():8} {each.code}  {each.subject}: {each.evidence}")
        say(f"         on {len(each.nodes)} nodes: {_few(list(each.nodes))}")
        if each.cause or each.code in CAUSE_ASKED:
            say(f"         cause: {each.cause or 'the logs do not say'}")
        say(f"         {each.todo}")


def _finding(finding: Finding) -> Mapping[str, object]:
    return {
        "code": finding.code, "severity": finding.severity.value, "subject": finding.subject, "nodes": list(finding.nodes),
        "evidence": finding.evidence, "todo": finding.todo, "cause": finding.cause,
    }  # fmt: skip


@nodes_app.command("list")
def nodes_list(fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """List the nodes of the inventory with their pool and when they were last seen."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            facts = await site.known_facts()
            placings = await site.placings(facts)
            rows = []
            for node in site.nodes:
                seen = facts.get(node.name)
                last = seen.observed_at.strftime("%Y-%m-%dT%H:%M:%SZ") if seen is not None else "never"
                trouble = seen.trouble.why if seen is not None and seen.trouble is not None else ""
                others = ", ".join(site.inventory.other_names(node.name))
                pool = ", ".join(placings[node.name].pools) or "-"
                rows.append([node.name, pool, others, node.source, last, trouble])
            keys = ("node", "pool", "other_names", "source", "seen", "trouble")
            if as_json:
                conflicts: dict[str, list[Mapping[str, object]]] = {}
                for conflict in site.inventory.conflicts:
                    conflicts.setdefault(conflict.node, []).append(_conflict(conflict))
                listed = [{**dict(zip(keys, row, strict=True)), "conflicts": conflicts.get(row[0], [])} for row in rows]
                say(envelope("nodes", listed, site.inventory.warnings))
            else:
                table(tuple(key.replace("_", " ") for key in keys), rows)
                for conflict in site.inventory.conflicts:
                    say(f"sources disagree: {_conflict_words(conflict)}")
                _warn(site.inventory.warnings)
            return 0

    run(work, as_json=as_json)


@nodes_app.command("show")
def nodes_show(
    node: Annotated[str, typer.Argument(help="The node's name, or a unique beginning of it.")],
    fleet: Fleet = None,
    store: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of one node, with source and time."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            name = site.node_named(node)
            about = _about(site, name)
            facts = (await site.known_facts()).get(name)
            rows = [] if facts is None else [facts.facts[path] for path in sorted(facts.facts)]
            trouble = (
                "was never looked at" if facts is None else (facts.trouble.why if facts.trouble is not None else "")
            )
            if as_json:
                listed = [
                    {
                        "path": f.path,
                        "value": _value(f.value),
                        "source": f.source,
                        "observed_at": f.observed_at.isoformat(),
                    }
                    for f in rows
                ]
                say(envelope("node", {"node": name, **about, "trouble": trouble or None, "facts": listed}))
            else:
                _say_about(site, name)
                if trouble:
                    say(f"{name}: {trouble}")
                table(
                    ("fact", "value", "source", "seen"),
                    [[f.path, _text(f.value), f.source, f"{f.observed_at:%Y-%m-%d %H:%M:%S}"] for f in rows],
                )
            return PARTIAL if trouble else 0

    run(work, as_json=as_json)


def _about(site: Site, name: str) -> Mapping[str, object]:
    """What the inventory says of a node."""
    node = next(each for each in site.nodes if each.name == name)
    named_by = [{"name": each.value, "source": each.source} for each in site.inventory.names.get(name, ())]
    conflicts = [_conflict(each) for each in site.inventory.conflicts if each.node == name]
    return {
        "via": node.via.value, "address": node.address, "port": node.port, "user": node.user, "labels": dict(sorted(node.labels.items())),
        "named_by": named_by, "conflicts": conflicts,
    }  # fmt: skip


def _say_about(site: Site, name: str) -> None:
    node = next(each for each in site.nodes if each.name == name)
    port, user = f" port {node.port}" if node.port else "", f" as {node.user}" if node.user else ""
    say(f"{name}: {node.via.value} {node.address}{port}{user}")
    for said in site.inventory.names.get(name, ()):
        say(f"  named {said.value} by {said.source}")
    if node.labels:
        say("  labels: " + ", ".join(f"{key}={value}" for key, value in sorted(node.labels.items())))
    for conflict in site.inventory.conflicts:
        if conflict.node == name:
            say(f"  sources disagree: {_conflict_words(conflict)}")


def _value(value: FactValue) -> object:
    if isinstance(value, Unknown):
        return {"unknown": value.why}
    return list(value) if isinstance(value, tuple) else value


def _text(value: FactValue) -> str:
    if isinstance(value, Unknown):
        return f"unknown: {value.why}"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


@facts_app.command("list")
def facts_list(as_json: AsJson = False) -> None:
    """List the sources of facts: what each provides, its deadline and its cap."""

    async def work() -> int:
        rows = [(spec.name, spec.provides, spec.deadline_s, spec.cap_bytes) for spec in fact_specs()]
        if as_json:
            keys = ("name", "provides", "deadline_s", "cap_bytes")
            say(envelope("facts", [dict(zip(keys, row, strict=True)) for row in rows]))
        else:
            listed = [[n, ", ".join(p), f"{d} s", f"{c} B"] for n, p, d, c in rows]
            table(("source", "provides", "deadline", "cap"), listed)
        return 0

    run(work, as_json=as_json)


@facts_app.command("show")
def facts_show(
    name: Annotated[str, typer.Argument(help="The source, as `facts list` names it.")], as_json: AsJson = False
) -> None:
    """Show the command that a source runs on a node."""

    async def work() -> int:
        specs = {spec.name: spec for spec in fact_specs()}
        spec = specs[named("source of facts", name, list(specs))]
        if as_json:
            say(envelope("fact", {"name": spec.name, "command": spec.command, "provides": spec.provides}))
        else:
            say(spec.command.strip())
        return 0

    run(work, as_json=as_json)


@facts_app.command("script")
def facts_script() -> None:
    """Print the text that looks at a node, to be carried where no connection leads: `sh look.sh >NODE.out`, then `collect --from`."""
    sys.stdout.write(script_to_carry())


@facts_app.command("parse")
def facts_parse(
    file: Annotated[str, typer.Argument(help="The file that holds one tool's output; - is standard input.")],
    kind: Annotated[
        str | None, typer.Option("--kind", help="Which output it is; without it, it is recognised.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read one captured output. Exit 3 when it is not clear what it is, 5 when nothing in it could be understood."""

    async def work() -> int:
        capture = parse_file(file, kind=kind, readers=capture_readers())
        facts = {path: _value(capture.facts[path]) for path in sorted(capture.facts)}
        if as_json:
            body = {"kind": capture.kind, "facts": facts, "raw": capture.raw}
            say(envelope("capture", body, capture.warnings))
        else:
            note(f"read as {capture.kind}")
            for warning in capture.warnings:
                note(f"warning: {warning}")
            table(("fact", "value"), [[path, _text(capture.facts[path])] for path in facts])
        return 0 if capture.understood else PARTIAL

    run(work, as_json=as_json)
