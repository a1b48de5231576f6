"""`muster knowledge`: what is known of drivers, CUDA and GPUs, from where and how well; and a site's own records beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from muster.cli import declare
from muster.cli.output import AsJson, Fleet, StorePath, app, envelope, guarded, say, table
from muster.control.bootstrap import own_knowledge
from muster.control.knowledge import Imported, Summary, bring_in, compare, faults, summed_up, write_out
from muster.knowledge.listing import KindView, kind_named, line_of, lines_of, record_named, views
from muster.knowledge.loader import load
from muster.knowledge.packing import plain
from muster.model.errors import BadInput

A_NO = 1
MOST_CHANGES = 40
"""Changes told one by one; more are counted."""

knowledge_app = app("Show, check and extend what Muster knows of drivers, CUDA and GPUs.")

Source = Annotated[
    Path, declare.argument(says="A YAML file called as one of the release's, or a folder of such files.")
]


@knowledge_app.command("info")
def knowledge_info(fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Show the revision, how many records each file holds, how old they are and how far they can be trusted."""

    def work() -> int:
        site = own_knowledge(fleet, store)
        found = summed_up(load(site), site)
        if as_json:
            say(envelope("knowledge", _info_body(found)))
        else:
            _say_info(found, site)
        return 0

    guarded(work, as_json=as_json)


def _info_body(found: Summary) -> Mapping[str, object]:
    files = [
        {"file": each.file, "records": each.records, "oldest": each.oldest, "newest": each.newest}
        for each in found.files
    ]
    return {
        "revision": found.revision, "records": sum(found.kinds.values()), "oldest": found.oldest, "newest": found.newest,
        "confidence": found.confidence, "kinds": found.kinds, "files": files, "site_files": list(found.site_files),
    }  # fmt: skip


def _say_info(found: Summary, site: Path | None) -> None:
    say(f"revision {found.revision}")
    total = sum(found.kinds.values())
    say(f"{total} records in {len(found.files)} files, read between {found.oldest} and {found.newest}")
    say(", ".join(f"{count} {name}" for name, count in found.confidence.items()))
    say()
    table(("file", "records", "oldest", "newest"), [[f.file, str(f.records), f.oldest, f.newest] for f in found.files])
    say()
    if found.site_files:
        for each in found.site_files:
            say(f"this site added {each}")
    elif site is not None:
        say(f"this site added none; `muster knowledge import` would keep them in {site}")


@knowledge_app.command("show")
def knowledge_show(
    kind: Annotated[
        str, declare.argument(says="A kind of record, such as branch or known-issue; none lists them.")
    ] = "",
    key: Annotated[str, declare.argument(says="The record; none lists all of the kind.")] = "",
    fleet: Fleet = None,
    store: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Show the kinds of records, all records of one kind, or one record with where it comes from."""

    def work() -> int:
        base = load(own_knowledge(fleet, store))
        if not kind:
            return _kinds(views(base), as_json=as_json)
        view = kind_named(base, kind)
        return _one(view, key, as_json=as_json) if key else _all(view, as_json=as_json)

    guarded(work, as_json=as_json)


def _kinds(found: tuple[KindView, ...], *, as_json: bool) -> int:
    if as_json:
        rows = [{"kind": v.name, "file": v.file, "records": len(v.records), "about": v.about} for v in found]
        say(envelope("knowledge-kinds", rows))
    else:
        table(("kind", "records", "about"), [[v.name, str(len(v.records)), v.about] for v in found])
    return 0


def _all(view: KindView, *, as_json: bool) -> int:
    if as_json:
        say(
            envelope(
                "knowledge-records",
                [{"kind": view.name, "key": key, "record": plain(r)} for key, r in view.records.items()],
            )
        )
        return 0
    rows = [[key, r.provenance.confidence.value, line_of(r)] for key, r in view.records.items()]
    table((view.name, "confidence", "what"), rows)
    return 0


def _one(view: KindView, key: str, *, as_json: bool) -> int:
    name, record = record_named(view, key)
    if as_json:
        say(envelope("knowledge-record", {"kind": view.name, "key": name, "record": plain(record)}))
        return 0
    say(f"{view.name} {name}")
    for line in lines_of(record):
        say(f"  {line}")
    return 0


@knowledge_app.command("verify")
def knowledge_verify(fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Read all files anew and check form, schema, cross references and the compiled form. Exit 1 with every fault."""

    def work() -> int:
        site = own_knowledge(fleet, store)
        found = faults(site)
        revision = None if found else load(site).revision
        if as_json:
            say(envelope("knowledge-verify", {"revision": revision, "faults": list(found)}))
        elif found:
            for line in found:
                say(line)
        else:
            summary = summed_up(load(site), site)
            say(
                f"{sum(summary.kinds.values())} records in {len(summary.files)} files fit together, revision {revision}"
            )
        return A_NO if found else 0

    guarded(work, as_json=as_json)


@knowledge_app.command("diff")
def knowledge_diff(source: Source, fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Show what importing a file or a folder would change. Exit 1 when it would change anything."""

    def work() -> int:
        done = compare(source, _site(fleet, store))
        _say_changes(done, as_json=as_json)
        return A_NO if done.changes else 0

    guarded(work, as_json=as_json)


@knowledge_app.command("import")
def knowledge_import(source: Source, fleet: Fleet = None, store: StorePath = None, as_json: AsJson = False) -> None:
    """Add a site's own records, each with its source, to what the release knows; all of them or none."""

    def work() -> int:
        site = _site(fleet, store)
        done = bring_in(source, site)
        _say_changes(done, as_json=as_json)
        if not as_json:
            say(f"kept in {site}; revision {done.before[:12]} is now {done.after[:12]}")
        return 0

    guarded(work, as_json=as_json)


@knowledge_app.command("export")
def knowledge_export(
    folder: Annotated[Path, declare.argument(says="A folder that is empty or not there yet.")],
    fleet: Fleet = None,
    store: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Write all files of the knowledge base into a folder, this site's own in `site/`."""

    def work() -> int:
        written = write_out(folder, own_knowledge(fleet, store))
        if as_json:
            say(envelope("knowledge-export", list(written)))
        else:
            say(f"{len(written)} files written to {folder}")
        return 0

    guarded(work, as_json=as_json)


def _site(fleet: str | None, store: str | None) -> Path:
    site = own_knowledge(fleet, store)
    if site is None:
        raise BadInput(
            "there is no fleet.yaml here, so it is not known where this site keeps its knowledge",
            hint="name the policy with --fleet FILE",
        )
    return site


def _say_changes(done: Imported, *, as_json: bool) -> None:
    if as_json:
        rows: list[Mapping[str, Any]] = [
            {"what": c.what, "kind": c.kind, "key": c.key, "fields": [dict(zip(("field", "before", "after"), f, strict=True)) for f in c.fields]}
            for c in done.changes
        ]  # fmt: skip
        body = {"before": done.before, "after": done.after, "files": list(done.files), "changes": rows}
        say(envelope("knowledge-changes", body))
        return
    for change in done.changes[:MOST_CHANGES]:
        say(f"{change.what} {change.kind} {change.key}")
        for name, before, after in change.fields:
            say(f"  {name.replace('_', ' ')}: {before} -> {after}")
    if len(done.changes) > MOST_CHANGES:
        say(f"and {len(done.changes) - MOST_CHANGES} more")
    if not done.changes:
        say("nothing would change")
