"""`muster status`, `check`, `nodes`, `facts`: what there is. None of them changes a node."""

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

from muster.cli import declare
from muster.cli.output import AsJson, Fleet, StorePath, app, envelope, note, run, say, table
from muster.cli.text import few_names, say_csv, say_warnings
from muster.control.bootstrap import capture_readers, fact_specs, open_site, script_to_carry, script_to_install
from muster.control.captures import parse_file
from muster.control.history import Change, changes
from muster.control.planning import findings
from muster.control.query import NO_POOL, STATUS_PATHS, Chosen, Condition, choose, condition, grouped, seen_as, views
from muster.control.report import Wanted, exit_code, one_line, put_textfile, textfile
from muster.control.site import Site, named
from muster.health.codes import CAUSE_ASKED, CODES
from muster.model.fact import FactValue, Unknown
from muster.model.finding import Finding, Severity
from muster.model.inventory import Conflict

PARTIAL = 5
LEAST_TOGETHER = 6
"""A GPU tool that does not answer takes a hundred values with it; so many lines would hide what else has changed."""
LIST_WIDTH = 96
"""Of what is listed in blocks: fits a terminal of 100 columns."""

status_app = app("Show the fleet as it was last seen: by pool, model, driver, flavour and kernel.")
check_app = app(
    "Find what disagrees: inside a node, in a pool, with what is wanted. Exit 1 with findings, 5 when something is unknown."
)
nodes_app = app("List nodes, show one with all its facts, or change one alone.")
facts_app = app("What Muster can see on a node, and by which command.")

Where = Annotated[
    list[str] | None,
    declare.option(
        "--where",
        metavar="FACT=PATTERN",
        says="Only nodes whose fact is like this (`gpu.product=H100*`, `label.rack!=r1`); all that are given must hold.",
    ),
]
OnePool = Annotated[str | None, declare.option("--pool", says="Only this pool.")]
AsCsv = Annotated[bool, declare.option("--csv", says="Print comma-separated values with a line of names.")]


def provided() -> tuple[str, ...]:
    """The paths that the sources of facts can give, with `*` for the keys of lists."""
    return tuple(path for spec in fact_specs() for path in spec.provides)


def _conflict(conflict: Conflict) -> Mapping[str, object]:
    said = [{"source": each.source, "value": each.value} for each in conflict.said]
    return {"node": conflict.node, "what": conflict.what, "said": said}


def _conflict_words(conflict: Conflict) -> str:
    first, *others = (f"{each.value} ({each.source})" for each in conflict.said)
    return f"{conflict.node}: {conflict.what} is {first}; not {', '.join(others)}"


@status_app.command()
def status(
    fleet: Fleet = None,
    store: StorePath = None,
    where: Where = None,
    pool: OnePool = None,
    by: Annotated[
        list[str] | None,
        declare.option("--by", metavar="FACT", says="Group by this fact instead; may be given more than once."),
    ] = None,
    csv: AsCsv = False,
    as_json: AsJson = False,
) -> None:
    """Show the fleet as it was last seen: by pool, model, driver, flavour, kernel and worst finding, or by any fact."""

    async def work() -> int:
        columns = {path: path for path in by} if by else STATUS_PATHS
        async with open_site(fleet, store) as site:
            chosen = await _chosen(site, where, pool)
            groups = grouped(chosen.views, list(columns.values()), provided() if by else ())
            if as_json:
                rows = [
                    {**dict(zip(columns, key, strict=True)), "nodes": len(names), "names": list(names)}
                    for key, names in groups
                ]
                data = {"fleet": site.policy.fleet, "nodes": len(chosen.views), "groups": rows}
                say(envelope("status", data, chosen.words))
            elif csv:
                say_csv(
                    (*columns, "nodes", "names"), [[*key, str(len(names)), " ".join(names)] for key, names in groups]
                )
            else:
                table(
                    (*columns, "nodes", "which"), [[*key, str(len(names)), few_names(names)] for key, names in groups]
                )
                say_warnings(chosen.words)
            return 0

    run(work, as_json=as_json, waits=False)


async def _chosen(site: Site, where: Sequence[str] | None, pool: str | None = None) -> Chosen:
    """The nodes that meet all conditions of a command. Raises BadInput, UnknownName."""
    conditions = [condition(each) for each in where or ()]
    if pool is not None:
        conditions.append(Condition("pool", named("pool", pool, [NO_POOL, *(each.name for each in site.policy.pools)])))
    return choose(await views(site), conditions, provided() if conditions else ())


@check_app.command()
def check(
    fleet: Fleet = None,
    store: StorePath = None,
    severity: Annotated[
        list[Severity] | None, declare.option("--severity", says="Only findings of this severity; may be given again.")
    ] = None,
    code: Annotated[
        list[str] | None,
        declare.option("--code", says="Only findings of this code (docs/reference/findings.md); may be given again."),
    ] = None,
    node: Annotated[str | None, declare.option("--node", says="Only findings that name this node.")] = None,
    oneline: Annotated[
        bool, declare.option("--oneline", says="One line for --node, as a scheduler's health check wants it.")
    ] = False,
    folder: Annotated[
        Path | None,
        declare.option(
            "--textfile", metavar="DIR", says="Also write DIR/muster.prom for node-exporter, with all findings."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find what disagrees. Exit 0 clean, 1 findings, 5 something is unknown (which is not clean)."""
    if oneline and node is None:
        raise declare.BadParameter("--oneline speaks of one node: give --node NODE")

    async def work() -> int:
        # A code that nothing can have would always be clean, which is what a script must not believe.
        codes = tuple(named("finding code", each, list(CODES)) for each in code or ())
        async with open_site(fleet, store) as site:
            facts = await site.known_facts()
            every = await findings(site, facts)
            name = site.node_named(node) if node else ""
            found = Wanted(tuple(severity or ()), codes, name).of(every)
            if folder is not None:
                pools = {view.node.name: view.pool for view in seen_as(site, facts, every)}
                put_textfile(folder, textfile(every, pools, facts, site.clock.now()))
            if as_json:
                say(envelope("check", {"findings": [_finding(each) for each in found]}))
            elif oneline:
                say(one_line(name, found))
            else:
                _say_findings(found, len(site.nodes), chosen=len(found) < len(every))
            return exit_code(found)

    run(work, as_json=as_json, waits=False)


def _say_findings(found: tuple[Finding, ...], nodes: int, *, chosen: bool) -> None:
    if not found and chosen:
        say("no finding is of this kind")
    elif not found:
        say(f"{nodes} nodes agree with themselves, with their pools and with what is wanted")
    for each in found:
        say(f"{each.severity.value.upper():8} {each.code}  {each.subject}: {each.evidence}")
        if each.nodes:
            say(f"         on {len(each.nodes)} node{'' if len(each.nodes) == 1 else 's'}: {few_names(each.nodes)}")
        if each.cause or each.code in CAUSE_ASKED:
            say(f"         cause: {each.cause or 'the logs do not say'}")
        say(f"         {each.todo}")


def _finding(finding: Finding) -> Mapping[str, object]:
    return {
        "code": finding.code, "severity": finding.severity.value, "subject": finding.subject, "nodes": list(finding.nodes),
        "evidence": finding.evidence, "todo": finding.todo, "cause": finding.cause,
    }  # fmt: skip


@nodes_app.command("list")
def nodes_list(
    fleet: Fleet = None,
    store: StorePath = None,
    where: Where = None,
    pool: OnePool = None,
    csv: AsCsv = False,
    as_json: AsJson = False,
) -> None:
    """List the nodes of the inventory with their pool and when they were last seen."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            chosen = await _chosen(site, where, pool)
            facts = await site.known_facts()
            placings = await site.placings(facts)
            rows = []
            for node in (view.node for view in chosen.views):
                seen = facts.get(node.name)
                last = seen.observed_at.strftime("%Y-%m-%dT%H:%M:%SZ") if seen is not None else "never"
                trouble = seen.trouble.why if seen is not None and seen.trouble is not None else ""
                others = ", ".join(site.inventory.other_names(node.name))
                pools = ", ".join(placings[node.name].pools) or "-"
                rows.append([node.name, pools, others, node.source, last, trouble])
            keys = ("node", "pool", "other_names", "source", "seen", "trouble")
            if csv and not as_json:
                say_csv(keys, rows)
            else:
                _say_nodes(site, keys, rows, chosen.words, as_json=as_json)
            return 0

    run(work, as_json=as_json, waits=False)


def _say_nodes(
    site: Site, keys: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str], *, as_json: bool
) -> None:
    names = {row[0] for row in rows}
    conflicts: dict[str, list[Conflict]] = {}
    for conflict in site.inventory.conflicts:
        if conflict.node in names:
            conflicts.setdefault(conflict.node, []).append(conflict)
    if as_json:
        listed = [
            {**dict(zip(keys, row, strict=True)), "conflicts": [_conflict(each) for each in conflicts.get(row[0], [])]}
            for row in rows
        ]
        say(envelope("nodes", listed, (*site.inventory.warnings, *words)))
        return
    table(tuple(key.replace("_", " ") for key in keys), rows)
    for conflict in (each for listed in conflicts.values() for each in listed):
        say(f"sources disagree: {_conflict_words(conflict)}")
    say_warnings((*site.inventory.warnings, *words))


@nodes_app.command("show")
def nodes_show(
    node: Annotated[str, declare.argument(says="The node's name, or a unique beginning of it.")],
    fleet: Fleet = None,
    store: StorePath = None,
    history: Annotated[bool, declare.option("--history", says="What changed on it and when, oldest first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of one node, with source and time; or what changed on it."""

    async def work() -> int:
        async with open_site(fleet, store) as site:
            name = site.node_named(node)
            if history:
                return _say_history(name, changes(await site.store.history(name)), as_json=as_json)
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

    run(work, as_json=as_json, waits=False)


def _say_history(name: str, found: Sequence[Change], *, as_json: bool) -> int:
    """What changed on a node. What was first seen in its first look is no change, and is counted."""
    first = sum(1 for each in found if each.is_first_look)
    changed = [each for each in found if not each.is_first_look]
    if as_json:
        listed = [
            {
                "at": each.at.isoformat(), "path": each.path, "source": each.source,
                "before": None if each.before is None else _value(each.before), "after": _value(each.after),
            }
            for each in changed
        ]  # fmt: skip
        say(envelope("history", {"node": name, "first_seen": first, "changes": listed}))
        return 0
    if not found:
        say(f"{name}: was never looked at")
    elif not changed:
        say(
            f"{name}: nothing has changed since {found[0].at:%Y-%m-%d %H:%M:%S} UTC, when {first} values were first seen"
        )
    for together in _together(changed):
        each, more = together[0], len(together) - 1
        before = "(not there)" if each.before is None else _text(each.before)
        rest = f" (and {more} more of {each.source})" if more else ""
        say(f"{each.at:%Y-%m-%d %H:%M:%S}  {each.path}: {before} -> {_text(each.after)}{rest}")
    return 0


def _together(changed: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """The changes as they are told: one by one, but what a source lost at once, or has again, in one line."""

    def lost(each: Change) -> tuple[object, ...]:
        was, now = isinstance(each.before, Unknown), isinstance(each.after, Unknown)
        return (each.at, each.source, each.before if was else None, each.after if now else None, was or now)

    for key, group in groupby(sorted(changed, key=lambda each: (each.at, each.source)), key=lost):
        members = tuple(group)
        yield from ((members,) if key[-1] and len(members) >= LEAST_TOGETHER else ((each,) for each in members))


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
            return 0
        for name, provides, deadline_s, cap_bytes in rows:
            say(f"{name}  (within {deadline_s} s, at most {cap_bytes} bytes)")
            for line in textwrap.wrap("  ".join(provides), LIST_WIDTH - 4, break_on_hyphens=False):
                say(f"    {line}")
        return 0

    run(work, as_json=as_json, waits=False)


@facts_app.command("show")
def facts_show(
    name: Annotated[str, declare.argument(says="The source, as `facts list` names it.")], as_json: AsJson = False
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

    run(work, as_json=as_json, waits=False)


@facts_app.command("script")
def facts_script(
    install: Annotated[
        bool,
        declare.option("--install", says="Print the program to install on nodes instead, as `ssh: script:` names it."),
    ] = False,
) -> None:
    """Print the text that looks at a node, to be carried where no connection leads: `sh look.sh >NODE.out`, then `collect --from`."""
    sys.stdout.write(script_to_install() if install else script_to_carry())


@facts_app.command("parse")
def facts_parse(
    file: Annotated[str, declare.argument(says="The file that holds one tool's output; - is standard input.")],
    kind: Annotated[
        str | None, declare.option("--kind", says="Which output it is; without it, it is recognised.")
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

    run(work, as_json=as_json, waits=False)
