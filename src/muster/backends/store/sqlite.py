"""The embedded store: one SQLite file, one writer connection, every method one transaction run inline.

Other processes (a `plans approve` beside a running rollout) open the same file: write-ahead logging lets them read meanwhile, and a writer
waits its turn for a bounded time. It holds no decision about nodes, and keeps nothing in memory that the file does not say.
"""

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

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.pool import NullPool

import muster
from muster.backends import _codec, _looks
from muster.model.approval import Approval
from muster.model.audit import GENESIS, Entry, Record, append, canonical
from muster.model.errors import ClaimLost, StoreBroken, StoreTooNew, UnknownName
from muster.model.fact import Fact, NodeFacts
from muster.model.node import Node
from muster.model.plan import Plan, plan_body
from muster.model.run import Rollout, RolloutState, Run
from muster.ports import Store

SCHEMA_VERSION = 2
"""The form of the tables below. Whoever changes it adds the way from the version before to `_MIGRATIONS`."""

BUSY_S = 10.0
"""How long a writer waits for another process's transaction. Ours last milliseconds; longer than this, somebody is stuck and a person must
look. It holds up our event loop, so it is not longer."""

_WAL_TRIES, _WAL_PAUSE_S = 100, 0.05
"""Switching a new file to WAL asks for the whole file and does not wait like a transaction does; so we try for five seconds."""

_T = TypeVar("_T")

_TABLES = sa.MetaData()


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=True)


def _serial() -> sa.Column[int]:
    # The order in which rows came; a rowid table keeps it for free.
    return sa.Column("serial", sa.Integer, primary_key=True)


def _text(name: str, *more: Any, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text, *more, nullable=False, **options)


def _whole(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False)


_META = sa.Table("meta", _TABLES, _key("key"), _text("value"))
_NODES = sa.Table(
    "nodes", _TABLES, _key("name"), _text("address"), sa.Column("port", sa.Integer), sa.Column("user", sa.Text), _text("labels"),
    _text("source"),
)  # fmt: skip
_PLANS = sa.Table("plans", _TABLES, _serial(), _text("plan_id", unique=True), _text("body"))
_APPROVALS = sa.Table(
    "approvals", _TABLES, _serial(), _text("plan_id", sa.ForeignKey("plans.plan_id")), _text("by"), _text("at"), _text("note"),
    sa.UniqueConstraint("plan_id", "by"),
)  # fmt: skip
_ROLLOUTS = sa.Table(
    "rollouts", _TABLES, _serial(), _text("rollout_id", unique=True), _text("plan_id", sa.ForeignKey("plans.plan_id")),
    _text("state"), _text("why"), _text("created_at"), _text("updated_at"), _text("carried_by"),
)  # fmt: skip
_RUNS = sa.Table(
    "runs", _TABLES, _serial(), _text("run_id", unique=True), _text("rollout_id", sa.ForeignKey("rollouts.rollout_id")),
    _text("node"), _whole("stage"), _whole("group"), _text("phase"), _flag("released"), _flag("ended"), _whole("claim"),
    _whole("lease"), _text("wake_at"), _text("phase_since"), _whole("attempt"), _text("waiting"), _text("notes"),
    sa.UniqueConstraint("rollout_id", "node"), sa.Index("runs_by_wake", "ended", "released", "wake_at"),
)  # fmt: skip
_AUDIT = sa.Table(
    "audit", _TABLES, _key("chain"), sa.Column("seq", sa.Integer, primary_key=True), _text("at"), _text("actor"), _text("node"),
    _text("kind"), _text("body"), _text("prev"), _text("hash"),
)  # fmt: skip

_FORM = "form"
"""The key in `meta` under which the schema version stands."""

_ADD_META = insert(_META).on_conflict_do_nothing()
_ADD_PLAN = insert(_PLANS).on_conflict_do_nothing(index_elements=["plan_id"])
_ADD_APPROVAL = insert(_APPROVALS).on_conflict_do_nothing(index_elements=["plan_id", "by"])
_LAST_ENTRY = (
    sa.select(_AUDIT.c.seq, _AUDIT.c.hash)
    .where(_AUDIT.c.chain == sa.bindparam("of"))
    .order_by(_AUDIT.c.seq.desc())
    .limit(1)
)
_CLAIM = sa.update(_RUNS).where(_RUNS.c.run_id == sa.bindparam("of")).values(claim=_RUNS.c.claim + 1)
_CLAIM_NOW = sa.select(_RUNS.c.claim).where(_RUNS.c.run_id == sa.bindparam("of"))
_ONE_RUN = sa.select(_RUNS).where(_RUNS.c.run_id == sa.bindparam("of"))
_RECORD = (
    sa.update(_RUNS)
    .where(_RUNS.c.run_id == sa.bindparam("of"), _RUNS.c.claim == sa.bindparam("claimed"))
    .values(released=sa.or_(_RUNS.c.released, sa.bindparam("let")))
)
_OPEN_RUNS = (
    sa.select(_RUNS.c.run_id, _RUNS.c.wake_at)
    .join(_ROLLOUTS, _ROLLOUTS.c.rollout_id == _RUNS.c.rollout_id)
    .where(~_RUNS.c.ended, _RUNS.c.released, _ROLLOUTS.c.state != RolloutState.PAUSED.value)
    .order_by(_RUNS.c.wake_at, _RUNS.c.serial)
)
_DUE = _OPEN_RUNS.where(_RUNS.c.wake_at <= sa.bindparam("now")).limit(sa.bindparam("most"))
_NEXT = _OPEN_RUNS.where(_RUNS.c.wake_at > sa.bindparam("after")).limit(1)
_RELEASE = (
    sa.update(_RUNS)
    .where(_RUNS.c.run_id == sa.bindparam("of"), ~_RUNS.c.released)
    .values(released=True, wake_at=sa.bindparam("from_then"), phase_since=sa.bindparam("from_then"))
)


def open_store(path: str, *, busy_s: float = BUSY_S) -> Store:
    """Open the store at `path` (a file; `:memory:` for one that ends with the process), making it, with its folder, for its owner alone.

    Raises StoreTooNew, with nothing written, when a newer release wrote it, and StoreBroken, naming the path and the remedy, when it is not
    a store or the place cannot be written. A writer waits `busy_s` seconds for another process's transaction, then raises StoreBroken.
    """
    return _SqliteStore(path, _connect(path, busy_s))


BACKEND: Callable[[str], Store] = open_store


class _SqliteStore:
    """See `ports.Store`."""

    def __init__(self, path: str, connection: sa.Connection) -> None:
        self._path = path
        self._connection = connection
        self._read_plans: dict[str, tuple[str, Plan]] = {}  # a cache of what the file says, by its very text

    async def save_facts(self, facts: Sequence[NodeFacts]) -> None:
        with self._write() as on:
            _looks.save(_raw(on), facts, self._changed)

    async def facts(self) -> tuple[NodeFacts, ...]:
        with self._read() as on:
            return _looks.load(_raw(on), self._changed)

    async def history(self, node: str) -> tuple[Fact, ...]:
        with self._read() as on:
            return _looks.history(_raw(on), node, self._changed)

    async def most_gpus(self, since: datetime) -> Mapping[str, int]:
        with self._read() as on:
            return _looks.most_gpus(_raw(on), since)

    async def save_nodes(self, nodes: Sequence[Node]) -> None:
        with self._write() as on:
            for node in nodes:
                row = {
                    "name": node.name, "address": node.address, "port": node.port, "user": node.user,
                    "labels": _codec.json_of(node.labels), "source": node.source,
                }  # fmt: skip
                on.execute(insert(_NODES).values(row).on_conflict_do_update(index_elements=["name"], set_=row))

    async def nodes(self) -> tuple[Node, ...]:
        with self._read() as on:
            rows = on.execute(sa.select(_NODES).order_by(_NODES.c.name)).all()
        return tuple(self._decoded(f"node {row.name}", _codec.node_from, row) for row in rows)

    async def save_plan(self, plan: Plan) -> None:
        with self._write() as on:
            on.execute(_ADD_META, {"key": "fleet", "value": plan.fleet})
            on.execute(_ADD_PLAN, {"plan_id": plan.id, "body": canonical(plan_body(plan)).decode()})

    async def plans(self) -> tuple[Plan, ...]:
        with self._read() as on:
            rows = on.execute(sa.select(_PLANS.c.plan_id, _PLANS.c.body).order_by(_PLANS.c.serial)).all()
        return tuple(self._plan(row.plan_id, row.body) for row in rows)

    def _plan(self, plan_id: str, body: str) -> Plan:
        known = self._read_plans.get(plan_id)
        if known is None or known[0] != body:
            known = (body, self._decoded(f"plan {plan_id}", lambda text: _codec.plan_of(plan_id, text), body))
            self._read_plans[plan_id] = known
        return known[1]

    async def approve(self, approval: Approval) -> None:
        with self._write() as on:
            self._need(on, _PLANS.c.plan_id, approval.plan_id, "plan")
            row = {"plan_id": approval.plan_id, "by": approval.by, "at": approval.at, "note": approval.note}
            on.execute(_ADD_APPROVAL, row)

    async def approvals(self, plan_id: str) -> tuple[Approval, ...]:
        with self._read() as on:
            rows = on.execute(
                sa.select(_APPROVALS).where(_APPROVALS.c.plan_id == plan_id).order_by(_APPROVALS.c.serial)
            )
            return tuple(Approval(row.plan_id, row.by, row.at, row.note) for row in rows)

    async def begin(self, rollout: Rollout, runs: Sequence[Run], record: Record) -> None:
        with self._write() as on:
            self._need(on, _PLANS.c.plan_id, rollout.plan_id, "plan")
            row = {
                "rollout_id": rollout.rollout_id, "plan_id": rollout.plan_id, "state": rollout.state.value, "why": rollout.why,
                "created_at": _codec.text_of(rollout.created_at), "updated_at": _codec.text_of(rollout.updated_at),
                "carried_by": rollout.carried_by,
            }  # fmt: skip
            on.execute(sa.insert(_ROLLOUTS), row)
            if runs:
                on.execute(sa.insert(_RUNS), [_codec.run_row(run) for run in runs])
            _append(on, rollout.rollout_id, (record,))

    async def rollouts(self) -> tuple[Rollout, ...]:
        with self._read() as on:
            rows = on.execute(sa.select(_ROLLOUTS).order_by(_ROLLOUTS.c.serial)).all()
        return tuple(self._decoded(f"rollout {row.rollout_id}", _codec.rollout_from, row) for row in rows)

    async def set_rollout(
        self, rollout_id: str, state: RolloutState, why: str, at: datetime, record: Record | None
    ) -> None:
        with self._write() as on:
            self._need(on, _ROLLOUTS.c.rollout_id, rollout_id, "rollout")
            on.execute(
                sa.update(_ROLLOUTS).where(_ROLLOUTS.c.rollout_id == rollout_id),
                {"state": state.value, "why": why, "updated_at": _codec.text_of(at)},
            )
            _append(on, rollout_id, () if record is None else (record,))

    async def runs(self, rollout_id: str) -> tuple[Run, ...]:
        order = (_RUNS.c.stage, _RUNS.c.group, _RUNS.c.node)
        with self._read() as on:
            rows = on.execute(sa.select(_RUNS).where(_RUNS.c.rollout_id == rollout_id).order_by(*order)).all()
        return tuple(self._decoded(f"run {row.run_id}", _codec.run_from, row) for row in rows)

    async def run(self, run_id: str) -> Run:
        with self._read() as on:
            row = on.execute(_ONE_RUN, {"of": run_id}).one_or_none()
        if row is None:
            raise _unknown("run", run_id)
        return self._decoded(f"run {run_id}", _codec.run_from, row)

    async def release(self, run_ids: Sequence[str], at: datetime, record: Record) -> None:
        with self._write() as on:
            rollouts = sorted({self._need(on, _RUNS.c.run_id, run_id, "run").rollout_id for run_id in run_ids})
            if len(rollouts) > 1:
                raise ValueError(f"runs of {len(rollouts)} rollouts cannot be released together")
            then = _codec.text_of(at)
            changed = sum(on.execute(_RELEASE, {"of": run_id, "from_then": then}).rowcount for run_id in run_ids)
            if changed:
                _append(on, rollouts[0], (record,))

    async def due(self, now: datetime, limit: int) -> tuple[str, ...]:
        with self._read() as on:
            return tuple(row.run_id for row in on.execute(_DUE, {"now": _codec.text_of(now), "most": limit}))

    async def next_wake(self, after: datetime) -> datetime | None:
        with self._read() as on:
            row = on.execute(_NEXT, {"after": _codec.text_of(after)}).one_or_none()
        return None if row is None else self._decoded(f"run {row.run_id}", _codec.time_of, row.wake_at)

    async def claim(self, run_id: str) -> int:
        with self._write() as on:
            if not on.execute(_CLAIM, {"of": run_id}).rowcount:
                raise _unknown("run", run_id)
            return int(on.execute(_CLAIM_NOW, {"of": run_id}).scalar_one())

    async def record(self, run: Run, records: Sequence[Record]) -> None:
        with self._write() as on:
            row = _codec.run_state_row(run) | {"of": run.run_id, "claimed": run.claim, "let": run.released}
            if not on.execute(_RECORD, row).rowcount:
                held = self._need(on, _RUNS.c.run_id, run.run_id, "run").claim
                raise ClaimLost(
                    f"{run.run_id} ({run.node}): another process took it (claim {held}, ours was {run.claim})",
                    hint="nothing of ours was written; let the other one go on, or stop it first",
                )
            _append(on, run.rollout_id, records)

    async def audit(self, chain: str, after: int = 0) -> tuple[Entry, ...]:
        wanted = (_AUDIT.c.chain == chain, _AUDIT.c.seq > after)
        with self._read() as on:
            rows = on.execute(sa.select(_AUDIT).where(*wanted).order_by(_AUDIT.c.seq)).all()
        return tuple(self._decoded(f"audit entry {row.seq} of {chain}", _codec.entry_from, row) for row in rows)

    async def close(self) -> None:
        self._connection.close()

    def _need(self, on: sa.Connection, column: sa.Column[Any], name: str, kind: str) -> sa.Row[Any]:
        row = on.execute(sa.select(column.table).where(column == name)).one_or_none()
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

    def _write(self) -> AbstractContextManager[sa.Connection]:
        # IMMEDIATE: the writer's turn is taken, and waited for, at the beginning; a reader that becomes a writer could only fail.
        return self._turn("BEGIN IMMEDIATE")

    def _read(self) -> AbstractContextManager[sa.Connection]:
        return self._turn("BEGIN")

    def _turn(self, begin: str) -> AbstractContextManager[sa.Connection]:
        return _turn(self._path, self._connection, begin)


@contextmanager
def _turn(path: str, connection: sa.Connection, begin: str) -> Iterator[sa.Connection]:
    try:
        with connection.execution_options(muster_begin=begin).begin():
            yield connection
    except sqlite3.Error as error:
        raise _broken(path, error) from error
    except sa.exc.DBAPIError as error:
        raise _broken(path, error.orig or error) from error


def _unknown(kind: str, name: str) -> UnknownName:
    return UnknownName(
        f"no {kind} {name} is known here", hint=f"is this the right store? `muster {kind}s list` shows what it holds"
    )


def _append(on: sa.Connection, chain: str, records: Sequence[Record]) -> None:
    last = on.execute(_LAST_ENTRY, {"of": chain}).one_or_none() if records else None
    seq, prev = (0, GENESIS) if last is None else (last.seq, last.hash)
    for record in records:
        seq += 1
        body = canonical(record.body).decode()
        # The hash is taken over what a reader will get back, so that no Python subtlety (a number as a key) looks like tampering later.
        entry = append(chain, seq, replace(record, body=json.loads(body)), prev)
        on.execute(
            sa.insert(_AUDIT),
            {
                "chain": chain, "seq": seq, "at": record.at, "actor": record.actor, "node": record.node, "kind": record.kind,
                "body": body, "prev": prev, "hash": entry.hash,
            },
        )  # fmt: skip
        prev = entry.hash


def _raw(on: sa.Connection) -> sqlite3.Connection:
    """The driver's own connection, in the transaction of `on`: thousands of looks a round are not worth a statement's compilation each."""
    raw = on.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


def _facts_into_parts(on: sa.Connection) -> None:
    """From form 1, which held each node's facts as one text and each change as a row of texts."""
    raw = _raw(on)

    def broken(what: str, error: Exception) -> StoreBroken:
        return StoreBroken(f"{what} was changed outside Muster: {error}", hint="restore the store from a backup")

    for node, body in raw.execute("SELECT node, body FROM facts ORDER BY node").fetchall():
        try:
            look = _codec.facts_from(body)
            rows = raw.execute(
                "SELECT path, value, source, observed_at FROM fact_history WHERE node = ? ORDER BY serial", (node,)
            ).fetchall()
            past = [Fact(p, _codec.value_from(json.loads(v)), s, _codec.time_of(at)) for p, v, s, at in rows]
        except (ValueError, TypeError) as error:
            raise broken(f"the facts of {node}", error) from error
        _looks.save(raw, [look], broken)
        _looks.add_history(raw, node, past)
    raw.execute("DROP TABLE facts")
    raw.execute("DROP TABLE fact_history")


_MIGRATIONS: Mapping[int, Callable[[sa.Connection], None]] = {1: _facts_into_parts}
"""Schema version -> what brings it to the next one, inside the transaction that opens the store."""


def _connect(path: str, busy_s: float) -> sa.Connection:
    try:
        if path != ":memory:":
            _make_place(Path(path))
            _look(path)
        return _opened(path, busy_s)
    except sqlite3.Error as error:
        raise _broken(path, error) from error
    except sa.exc.DBAPIError as error:
        raise _broken(path, error.orig or error) from error
    except OSError as error:
        raise StoreBroken(f"{path}: {error.strerror or error}", hint=_PLACE_HINT.format(path=path)) from error


def _make_place(path: Path) -> None:
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True)
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
            raise StoreBroken(f"{path}: a database, but not a store of Muster's", hint="give another path with --store")
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


def _opened(path: str, busy_s: float) -> sa.Connection:
    # The driver's own transactions are off (isolation_level None); ours begin as `muster_begin` says.
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=path),
        poolclass=NullPool,
        connect_args={"timeout": busy_s, "isolation_level": None},
    )
    sa.event.listen(engine, "connect", lambda raw, _: _set_up(path, raw))
    sa.event.listen(engine, "begin", lambda on: on.exec_driver_sql(on.get_execution_options()["muster_begin"]))
    connection = engine.connect()
    try:
        with _turn(path, connection, "BEGIN IMMEDIATE") as on:
            _make_tables(path, on)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(path: str, raw: Any) -> None:
    # FULL: each commit is on the disk when it returns. With NORMAL a power cut could take back the last commits: a node would then have
    # seen a higher fence, and an exported audit head would name an entry, that the store no longer knows.
    for pragma in ("foreign_keys=ON", "synchronous=FULL"):
        raw.execute(f"PRAGMA {pragma}")
    if path != ":memory:" and _write_ahead(raw) != "wal":
        raise StoreBroken(
            f"{path}: its file system cannot share memory between processes, which the store needs",
            hint="put the store on a local disk (--store)",
        )


def _write_ahead(raw: Any) -> str:
    for _ in range(_WAL_TRIES):
        try:
            return str(raw.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if _family(error) != sqlite3.SQLITE_BUSY:
                raise
        time.sleep(_WAL_PAUSE_S)
    return str(raw.execute("PRAGMA journal_mode=WAL").fetchone()[0])


def _make_tables(path: str, on: sa.Connection) -> None:
    _TABLES.create_all(on)
    for statement in _looks.TABLES.split(";"):
        on.exec_driver_sql(statement)
    on.execute(_ADD_META, {"key": _FORM, "value": str(SCHEMA_VERSION)})
    row = on.execute(sa.select(_META.c.value).where(_META.c.key == _FORM)).one_or_none()
    form = _known_form(path, None if row is None else (row.value,))
    for step in range(form, SCHEMA_VERSION):
        _MIGRATIONS[step](on)
    if form < SCHEMA_VERSION:
        on.execute(sa.update(_META).where(_META.c.key == _FORM), {"value": str(SCHEMA_VERSION)})


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


def _family(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _broken(path: str, error: BaseException) -> StoreBroken:
    said, hint = _TROUBLES.get(
        _family(error), ("SQLite refused", "this is a fault of ours; please report it with these words")
    )
    return StoreBroken(f"{path}: {said} ({error})", hint=hint.format(path=path))
