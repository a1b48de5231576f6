"""The embedded store: one SQLite file, one writer connection, every method one transaction run inline.

Other processes (a `plans approve` beside a running rollout) open the same file: write-ahead logging lets them read meanwhile, and a writer
waits its turn for a bounded time. It holds no decision about nodes, and keeps nothing in memory that the file does not say.
"""

import errno
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import muster
from muster.backends import _codec, _forms, _gpu_counts, _looks, _validations
from muster.backends import _statements as sql
from muster.model.approval import Approval
from muster.model.audit import GENESIS, Entry, Record, append, canonical
from muster.model.errors import ClaimLost, NoStore, StoreBroken, StoreTooNew, UnknownName
from muster.model.fact import Fact, NodeFacts
from muster.model.node import Node
from muster.model.plan import Plan
from muster.model.run import Rollout, RolloutState, Run
from muster.model.validation import Validated
from muster.ports import Store

SCHEMA_VERSION = 3
"""The form of the tables below. Whoever changes it adds the way from the version before to `_MIGRATIONS`."""

BUSY_S = 10.0
"""How long a writer waits for another process's transaction. Ours last milliseconds; longer than this, somebody is stuck and a person must
look. It holds up our event loop, so it is not longer."""

_WAL_TRIES, _WAL_PAUSE_S = 100, 0.05
"""Switching a new file to WAL asks for the whole file and does not wait like a transaction does; so we try for five seconds."""

_T = TypeVar("_T")

_FORM = "form"
"""The key in `meta` under which the schema version stands."""


def open_store(path: str, *, busy_s: float = BUSY_S, tell: Callable[[str], None] = lambda _: None) -> Store:
    """Open the store at `path` (a file; `:memory:` for one that ends with the process), making it, with its folder, for its owner alone.

    A store of an older form is brought to today's, after a copy of it was put beside it; `tell` gets a line about that. Raises StoreTooNew,
    with nothing written, when a newer release wrote it, and StoreBroken, naming the path and the remedy, when it is not a store or the
    place cannot be written. A writer waits `busy_s` seconds for another process's transaction, then raises StoreBroken.
    """
    return _SqliteStore(path, _connect(path, busy_s, tell))


BACKEND: Callable[[str], Store] = open_store


class _SqliteStore:
    """See `ports.Store`."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._read_plans: dict[str, tuple[str, Plan]] = {}  # a cache of what the file says, by its very text

    async def save_facts(self, facts: Sequence[NodeFacts]) -> None:
        with self._write() as on:
            _looks.save(on, facts, self._changed)

    async def facts(self) -> tuple[NodeFacts, ...]:
        with self._read() as on:
            return _looks.load(on, self._changed)

    async def facts_of(self, node: str) -> NodeFacts | None:
        with self._read() as on:
            return _looks.load_one(on, node, self._changed)

    async def history(self, node: str) -> tuple[Fact, ...]:
        with self._read() as on:
            return _looks.history(on, node, self._changed)

    async def most_gpus(self, since: datetime) -> Mapping[str, int]:
        with self._read() as on:
            return _gpu_counts.most(on, since)

    async def save_nodes(self, nodes: Sequence[Node]) -> None:
        with self._write() as on:
            for node in nodes:
                row = {
                    "name": node.name, "address": node.address, "port": node.port, "user": node.user,
                    "labels": _codec.json_of(node.labels), "source": node.source,
                }  # fmt: skip
                on.execute(sql.SAVE_NODE, row)

    async def nodes(self) -> tuple[Node, ...]:
        with self._read() as on:
            rows = on.execute(sql.NODES).fetchall()
        return tuple(self._decoded(f"node {row['name']}", _codec.node_from, row) for row in rows)

    async def save_plan(self, plan: Plan) -> None:
        with self._write() as on:
            on.execute(sql.ADD_META, {"key": "fleet", "value": plan.fleet})
            on.execute(sql.ADD_PLAN, {"plan_id": plan.id, "body": plan.text.decode()})

    async def plans(self) -> tuple[Plan, ...]:
        with self._read() as on:
            rows = on.execute(sql.PLANS).fetchall()
        return tuple(self._plan(row["plan_id"], row["body"]) for row in rows)

    async def plan_ids(self) -> tuple[str, ...]:
        with self._read() as on:
            return tuple(row["plan_id"] for row in on.execute(sql.PLAN_IDS))

    async def plan(self, plan_id: str) -> Plan:
        with self._read() as on:
            row = self._need(on, sql.PLAN, plan_id, "plan")
        return self._plan(row["plan_id"], row["body"])

    def _plan(self, plan_id: str, body: str) -> Plan:
        known = self._read_plans.get(plan_id)
        if known is None or known[0] != body:
            known = (body, self._decoded(f"plan {plan_id}", lambda text: _codec.plan_of(plan_id, text), body))
            self._read_plans[plan_id] = known
        return known[1]

    async def approve(self, approval: Approval) -> None:
        with self._write() as on:
            self._need(on, sql.PLAN, approval.plan_id, "plan")
            row = {"plan_id": approval.plan_id, "by": approval.by, "at": approval.at, "note": approval.note}
            on.execute(sql.ADD_APPROVAL, row)

    async def approvals(self, plan_id: str) -> tuple[Approval, ...]:
        with self._read() as on:
            rows = on.execute(sql.APPROVALS, {"of": plan_id})
            return tuple(Approval(row["plan_id"], row["by"], row["at"], row["note"]) for row in rows)

    async def begin(self, rollout: Rollout, runs: Sequence[Run], record: Record) -> None:
        with self._write() as on:
            self._need(on, sql.PLAN, rollout.plan_id, "plan")
            row = {
                "rollout_id": rollout.rollout_id, "plan_id": rollout.plan_id, "state": rollout.state.value, "why": rollout.why,
                "created_at": _codec.text_of(rollout.created_at), "updated_at": _codec.text_of(rollout.updated_at),
                "carried_by": rollout.carried_by,
            }  # fmt: skip
            on.execute(sql.ADD_ROLLOUT, row)
            on.executemany(sql.ADD_RUN, [_codec.run_row(run) for run in runs])
            _append(on, rollout.rollout_id, (record,))

    async def rollouts(self) -> tuple[Rollout, ...]:
        with self._read() as on:
            rows = on.execute(sql.ROLLOUTS).fetchall()
        return tuple(self._decoded(f"rollout {row['rollout_id']}", _codec.rollout_from, row) for row in rows)

    async def set_rollout(
        self, rollout_id: str, state: RolloutState, why: str, at: datetime, record: Record | None
    ) -> None:
        with self._write() as on:
            self._need(on, sql.ROLLOUT, rollout_id, "rollout")
            row = {"of": rollout_id, "state": state.value, "why": why, "updated_at": _codec.text_of(at)}
            on.execute(sql.SET_ROLLOUT, row)
            _append(on, rollout_id, () if record is None else (record,))

    async def runs(self, rollout_id: str) -> tuple[Run, ...]:
        with self._read() as on:
            rows = on.execute(sql.RUNS, {"of": rollout_id}).fetchall()
        return tuple(self._decoded(f"run {row['run_id']}", _codec.run_from, row) for row in rows)

    async def run(self, run_id: str) -> Run:
        with self._read() as on:
            row = on.execute(sql.RUN, {"of": run_id}).fetchone()
        if row is None:
            raise _unknown("run", run_id)
        return self._decoded(f"run {run_id}", _codec.run_from, row)

    async def release(self, run_ids: Sequence[str], at: datetime, record: Record) -> None:
        with self._write() as on:
            rollouts = sorted({self._need(on, sql.RUN, run_id, "run")["rollout_id"] for run_id in run_ids})
            if len(rollouts) > 1:
                raise ValueError(f"runs of {len(rollouts)} rollouts cannot be released together")
            then = _codec.text_of(at)
            changed = sum(on.execute(sql.RELEASE, {"of": run_id, "from_then": then}).rowcount for run_id in run_ids)
            if changed:
                _append(on, rollouts[0], (record,))

    async def due(self, now: datetime, limit: int) -> tuple[str, ...]:
        with self._read() as on:
            rows = on.execute(sql.DUE, {"now": _codec.text_of(now), "most": limit, "paused": RolloutState.PAUSED.value})
            return tuple(row["run_id"] for row in rows)

    async def next_wake(self, after: datetime) -> datetime | None:
        with self._read() as on:
            wanted = {"after": _codec.text_of(after), "paused": RolloutState.PAUSED.value}
            row = on.execute(sql.NEXT, wanted).fetchone()
        return None if row is None else self._decoded(f"run {row['run_id']}", _codec.time_of, row["wake_at"])

    async def claim(self, run_id: str) -> int:
        with self._write() as on:
            if not on.execute(sql.CLAIM, {"of": run_id}).rowcount:
                raise _unknown("run", run_id)
            return int(on.execute(sql.RUN, {"of": run_id}).fetchone()["claim"])

    async def record(self, run: Run, records: Sequence[Record]) -> None:
        with self._write() as on:
            row = _codec.run_state_row(run) | {"of": run.run_id, "claimed": run.claim, "let": run.released}
            if not on.execute(sql.RECORD, row).rowcount:
                held = self._need(on, sql.RUN, run.run_id, "run")["claim"]
                raise ClaimLost(
                    f"{run.run_id} ({run.node}): another process took it (claim {held}, ours was {run.claim})",
                    hint="nothing of ours was written; let the other one go on, or stop it first",
                )
            _append(on, run.rollout_id, records)

    async def audit(self, chain: str, after: int = 0) -> tuple[Entry, ...]:
        with self._read() as on:
            rows = on.execute(sql.ENTRIES, {"of": chain, "after": after}).fetchall()
        return tuple(self._decoded(f"audit entry {row['seq']} of {chain}", _codec.entry_from, row) for row in rows)

    async def save_validation(self, validated: Validated) -> None:
        with self._write() as on:
            _validations.save(on, validated)

    async def validations(self) -> tuple[Validated, ...]:
        with self._read() as on:
            return _validations.load(on, self._changed)

    async def close(self) -> None:
        self._connection.close()

    def _need(self, on: sqlite3.Connection, statement: str, name: str, kind: str) -> sqlite3.Row:
        row: sqlite3.Row | None = on.execute(statement, {"of": name}).fetchone()
        if row is None:
            raise _unknown(kind, name)
        return row

    def _decoded(self, what: str, decode: Callable[[Any], _T], stored: object) -> _T:
        try:
            return decode(stored)
        except (ValueError, TypeError) as error:
            raise self._changed(what, error) from error

    def _changed(self, what: str, error: Exception) -> StoreBroken:
        return StoreBroken(
            f"{self._path}: {what} was changed outside Muster: {error}",
            hint="restore the store from a backup, or find out who wrote to it",
        )

    def _write(self) -> AbstractContextManager[sqlite3.Connection]:
        # IMMEDIATE: the writer's turn is taken, and waited for, at the beginning; a reader that becomes a writer could only fail.
        return self._turn("BEGIN IMMEDIATE")

    def _read(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._turn("BEGIN")

    def _turn(self, begin: str) -> AbstractContextManager[sqlite3.Connection]:
        return _turn(self._path, self._connection, begin)


@contextmanager
def _turn(path: str, connection: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
    try:
        connection.execute(begin)
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            # SQLite itself ends a transaction for which the disk had no room.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise _broken(path, error) from error


def _unknown(kind: str, name: str) -> UnknownName:
    return UnknownName(
        f"no {kind} {name} is known here", hint=f"is this the right store? `muster {kind}s list` shows what it holds"
    )


def _append(on: sqlite3.Connection, chain: str, records: Sequence[Record]) -> None:
    last = on.execute(sql.LAST_ENTRY, {"of": chain}).fetchone() if records else None
    seq, prev = (0, GENESIS) if last is None else (last["seq"], last["hash"])
    for record in records:
        seq += 1
        body = canonical(record.body).decode()
        # The hash is taken over what a reader will get back, so that no Python subtlety (a number as a key) looks like tampering later.
        entry = append(chain, seq, replace(record, body=json.loads(body)), prev)
        on.execute(
            sql.ADD_ENTRY,
            {
                "chain": chain, "seq": seq, "at": record.at, "actor": record.actor, "node": record.node, "kind": record.kind,
                "body": body, "prev": prev, "hash": entry.hash,
            },
        )  # fmt: skip
        prev = entry.hash


def _older(on: sqlite3.Connection, kept: Iterator[_forms.Kept], path: str) -> None:
    """Write what an older form kept in today's."""

    def broken(what: str, error: Exception) -> StoreBroken:
        return StoreBroken(
            f"{path}: {what} was changed outside Muster: {error}", hint="restore the store from a backup"
        )

    try:
        for each in kept:
            _looks.save(on, [each.look], broken)
            _looks.add_history(on, each.look.node, each.history)
    except (ValueError, TypeError) as error:
        raise broken("a node's facts", error) from error


def _bring_up(on: sqlite3.Connection, form: int, path: str) -> None:
    """Bring a store of an older form to today's, inside the transaction that opens it."""
    if form == _SECOND:
        on.execute(f"ALTER TABLE fact_changes RENAME TO {_forms.OLD_CHANGES}")
    _run(on, _looks.TABLES)
    _older(on, _forms.first(on) if form < _SECOND else _forms.second(on), path)
    for table in _forms.FIRST_TABLES if form < _SECOND else (*_forms.SECOND_TABLES, _forms.OLD_CHANGES):
        on.execute(f"DROP TABLE {table}")
    on.execute(sql.SET_META, {"key": _FORM, "value": str(SCHEMA_VERSION)})


_SECOND = 2


def _connect(path: str, busy_s: float, tell: Callable[[str], None]) -> sqlite3.Connection:
    try:
        if path != ":memory:":
            _make_place(Path(path))
            _look(path)
        return _opened(path, busy_s, tell)
    except sqlite3.Error as error:
        broken = _broken(path, error)
        raise (NoStore(broken.message, hint=broken.hint) if _family(error) in _NO_STORE else broken) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind = StoreBroken if full else NoStore
        raise kind(f"{path}: {error.strerror or error}", hint=_PLACE_HINT.format(path=path)) from error


def _make_place(path: Path) -> None:
    if path.is_dir():
        raise NoStore(f"{path}: is a folder", hint=f"name the file in it: --store {path}/muster.db")
    if path.parent.exists() and not path.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # another process may make it too
    # SQLite makes its side files with the mode of this one. An existing file keeps the mode its owner gave it, and is not touched: to
    # close any descriptor of it would end the locks that SQLite holds on it in this process (https://sqlite.org/howtocorrupt.html 2.2).
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _look(path: str) -> None:
    """Refuse a foreign or newer file before anything, even a lock, is written into it or beside it."""
    file = Path(path).absolute()
    if not file.stat().st_size:
        return
    # When nobody has it open it may be read as if it could not change, which alone makes no side files.
    ways = ("mode=ro",) if Path(f"{file}-wal").exists() else ("immutable=1", "mode=ro")
    for way in ways:
        with suppress(sqlite3.DatabaseError) if way != ways[-1] else nullcontext():
            _look_as(path, f"file:{quote(str(file))}?{way}")
            return


def _look_as(path: str, uri: str) -> None:
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S)) as on:
        tables = {name for (name,) in on.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "meta" not in tables:
            raise NoStore(f"{path}: a database, but not a store of Muster's", hint="give another path with --store")
        if "meta" in tables:
            _known_form(path, on.execute("SELECT value FROM meta WHERE key = ?", (_FORM,)).fetchone())


def _known_form(path: str, row: Sequence[str] | None) -> int:
    if row is None or not row[0].isdecimal():
        raise StoreBroken(f"{path}: its schema version cannot be read", hint="restore it from a backup")
    form = int(row[0])
    if form > SCHEMA_VERSION:
        raise StoreTooNew(
            f"{path}: its schema is version {form}; this release ({muster.__version__}) knows up to {SCHEMA_VERSION}",
            hint="use the release that wrote it, or a later one (nothing was changed); to stay with this one, restore the backup that the "
            "upgrade made",
        )
    return form


def _opened(path: str, busy_s: float, tell: Callable[[str], None]) -> sqlite3.Connection:
    # The driver's own transactions are off (isolation_level None); ours begin in `_turn`.
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        _set_up(path, connection)
        with _turn(path, connection, "BEGIN IMMEDIATE") as on:
            _make_tables(path, on, tell)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(path: str, on: sqlite3.Connection) -> None:
    # FULL: each commit is on the disk when it returns. With NORMAL a power cut could take back the last commits: a node would then have
    # seen a higher fence, and an exported audit head would name an entry, that the store no longer knows.
    for pragma in ("foreign_keys=ON", "synchronous=FULL"):
        on.execute(f"PRAGMA {pragma}")
    if path != ":memory:" and _write_ahead(on) != "wal":
        raise StoreBroken(
            f"{path}: its file system cannot share memory between processes, which the store needs",
            hint="put the store on a local disk (--store)",
        )


def _write_ahead(raw: sqlite3.Connection) -> str:
    for _ in range(_WAL_TRIES):
        try:
            return str(raw.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if _family(error) != sqlite3.SQLITE_BUSY:
                raise
        time.sleep(_WAL_PAUSE_S)
    return str(raw.execute("PRAGMA journal_mode=WAL").fetchone()[0])


def _make_tables(path: str, on: sqlite3.Connection, tell: Callable[[str], None]) -> None:
    _run(on, sql.TABLES)
    on.execute(sql.ADD_META, {"key": _FORM, "value": str(SCHEMA_VERSION)})
    form = _known_form(path, on.execute(sql.META, {"key": _FORM}).fetchone())
    if form < SCHEMA_VERSION:
        if path != ":memory:":
            tell(
                f"the store is brought to the form of this release; as it was, it is kept as {_kept_beside(path, form)}"
            )
        _bring_up(on, form, path)
    _run(on, _looks.TABLES)
    _run(on, _validations.TABLE)


def _run(on: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        on.execute(statement)


def _kept_beside(path: str, form: int) -> str:
    """A copy of the store beside it, whole, for its owner alone; where it lies. Our transaction has written nothing yet, and nobody else may."""
    copy = next(
        each
        for each in (f"{path}.form-{form}{'' if again == 1 else f'-{again}'}" for again in range(1, _MOST_COPIES))
        if not Path(each).exists()
    )
    os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with closing(sqlite3.connect(path)) as here, closing(sqlite3.connect(copy)) as there:
            here.backup(there)
    except BaseException:
        Path(copy).unlink()
        raise
    return copy


_MOST_COPIES = 1000


_PLACE_HINT = "{path} and its folder must be writable for you; --store gives another place"

_TROUBLES: Mapping[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: (
        "the disk is full",
        "free some space beside {path} and go on; what was written before stands",
    ),
    sqlite3.SQLITE_NOTADB: (
        "not a database",
        "give the right path with --store; a damaged store comes back from its backup",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "the database is damaged",
        "restore it from a backup; keep the damaged file, it is evidence",
    ),
    sqlite3.SQLITE_READONLY: ("cannot be written", _PLACE_HINT),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", _PLACE_HINT),
    sqlite3.SQLITE_PERM: ("cannot be opened", _PLACE_HINT),
    sqlite3.SQLITE_BUSY: (
        "another process holds it and does not let go",
        "find the stopped or stuck process (`fuser {path}`), let it end, and try again",
    ),
    sqlite3.SQLITE_IOERR: (
        "the disk gave an error",
        "look at the disk and the system log; what was written before stands",
    ),
}
"""SQLite's primary result code -> what to say and what to do."""


_NO_STORE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY)
"""What, when it is opened, says that the wrong thing was named, and not that a store is in trouble."""


def _family(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _broken(path: str, error: BaseException) -> StoreBroken:
    said, hint = _TROUBLES.get(
        _family(error), ("SQLite refused", "this is a fault of ours; please report it with these words")
    )
    return StoreBroken(f"{path}: {said} ({error})", hint=hint.format(path=path))
