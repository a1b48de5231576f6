"""The store's tables and statements beside those for looks: SQL that SQLite and PostgreSQL read alike, with named values (`:node`), which a
DB-API module of another style is given in its own. No value is ever written into a statement. It opens nothing.
"""

from muster.model.phase import BEFORE_CHANGE

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS nodes (
  name TEXT NOT NULL PRIMARY KEY, address TEXT NOT NULL, port INTEGER, "user" TEXT, labels TEXT NOT NULL, source TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS plans (serial INTEGER NOT NULL PRIMARY KEY, plan_id TEXT NOT NULL UNIQUE, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS approvals (
  serial INTEGER NOT NULL PRIMARY KEY, plan_id TEXT NOT NULL REFERENCES plans (plan_id), "by" TEXT NOT NULL, at TEXT NOT NULL,
  note TEXT NOT NULL, UNIQUE (plan_id, "by"));
CREATE TABLE IF NOT EXISTS rollouts (
  serial INTEGER NOT NULL PRIMARY KEY, rollout_id TEXT NOT NULL UNIQUE, plan_id TEXT NOT NULL REFERENCES plans (plan_id),
  state TEXT NOT NULL, why TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL, carried_by TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
  serial INTEGER NOT NULL PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, rollout_id TEXT NOT NULL REFERENCES rollouts (rollout_id),
  node TEXT NOT NULL, stage INTEGER NOT NULL, "group" INTEGER NOT NULL, phase TEXT NOT NULL, released BOOLEAN NOT NULL,
  ended BOOLEAN NOT NULL, claim INTEGER NOT NULL, lease INTEGER NOT NULL, wake_at TEXT NOT NULL, phase_since TEXT NOT NULL,
  attempt INTEGER NOT NULL, waiting TEXT NOT NULL, notes TEXT NOT NULL, UNIQUE (rollout_id, node));
CREATE INDEX IF NOT EXISTS runs_by_wake ON runs (ended, released, wake_at);
CREATE TABLE IF NOT EXISTS audit (
  chain TEXT NOT NULL, seq INTEGER NOT NULL, at TEXT NOT NULL, actor TEXT NOT NULL, node TEXT NOT NULL, kind TEXT NOT NULL,
  body TEXT NOT NULL, prev TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (chain, seq))
"""
"""Statements, each ended by a semicolon. A `serial` is the order in which rows came."""

ADD_META = "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING"
META = "SELECT value FROM meta WHERE key = :key"
SET_META = "UPDATE meta SET value = :value WHERE key = :key"

SAVE_NODE = (
    'INSERT INTO nodes (name, address, port, "user", labels, source) VALUES (:name, :address, :port, :user, :labels, :source) '
    "ON CONFLICT (name) DO UPDATE SET address = excluded.address, port = excluded.port, "
    '"user" = excluded."user", labels = excluded.labels, source = excluded.source'
)
NODES = "SELECT * FROM nodes ORDER BY name"

ADD_PLAN = "INSERT INTO plans (plan_id, body) VALUES (:plan_id, :body) ON CONFLICT (plan_id) DO NOTHING"
PLANS = "SELECT plan_id, body FROM plans ORDER BY serial"
PLAN = "SELECT plan_id, body FROM plans WHERE plan_id = :of"
PLAN_IDS = "SELECT plan_id FROM plans ORDER BY serial"

ADD_APPROVAL = 'INSERT INTO approvals (plan_id, "by", at, note) VALUES (:plan_id, :by, :at, :note) ON CONFLICT (plan_id, "by") DO NOTHING'
APPROVALS = 'SELECT plan_id, "by", at, note FROM approvals WHERE plan_id = :of ORDER BY serial'

ADD_ROLLOUT = (
    "INSERT INTO rollouts (rollout_id, plan_id, state, why, created_at, updated_at, carried_by) "
    "VALUES (:rollout_id, :plan_id, :state, :why, :created_at, :updated_at, :carried_by)"
)
ROLLOUTS = "SELECT * FROM rollouts ORDER BY serial"
ROLLOUT = "SELECT rollout_id FROM rollouts WHERE rollout_id = :of"
SET_ROLLOUT = "UPDATE rollouts SET state = :state, why = :why, updated_at = :updated_at WHERE rollout_id = :of"

ADD_RUN = (
    'INSERT INTO runs (run_id, rollout_id, node, stage, "group", phase, released, ended, claim, lease, wake_at, phase_since, attempt, '
    "waiting, notes) VALUES (:run_id, :rollout_id, :node, :stage, :group, :phase, :released, :ended, :claim, :lease, :wake_at, "
    ":phase_since, :attempt, :waiting, :notes)"
)
RUNS = 'SELECT * FROM runs WHERE rollout_id = :of ORDER BY stage, "group", node'
RUN = "SELECT * FROM runs WHERE run_id = :of"
CLAIM = "UPDATE runs SET claim = claim + 1 WHERE run_id = :of"
RECORD = (
    "UPDATE runs SET phase = :phase, ended = :ended, lease = :lease, wake_at = :wake_at, phase_since = :phase_since, attempt = :attempt, "
    "waiting = :waiting, notes = :notes, released = (released OR :let) WHERE run_id = :of AND claim = :claimed"
)
RELEASE = "UPDATE runs SET released = TRUE, wake_at = :from_then, phase_since = :from_then WHERE run_id = :of AND NOT released"
_OPEN_RUNS = (
    "SELECT r.run_id, r.wake_at FROM runs r JOIN rollouts o ON o.rollout_id = r.rollout_id "
    "WHERE NOT r.ended AND r.released AND (o.state <> :paused OR r.phase NOT IN ({held})) AND r.wake_at {which} "
    "ORDER BY r.wake_at, r.serial LIMIT {most}"
)
_HELD = ", ".join(f"'{phase.value}'" for phase in sorted(BEFORE_CHANGE))
DUE = _OPEN_RUNS.format(which="<= :now", most=":most", held=_HELD)
NEXT = _OPEN_RUNS.format(which="> :after", most="1", held=_HELD)

LAST_ENTRY = "SELECT seq, hash FROM audit WHERE chain = :of ORDER BY seq DESC LIMIT 1"
ADD_ENTRY = (
    "INSERT INTO audit (chain, seq, at, actor, node, kind, body, prev, hash) "
    "VALUES (:chain, :seq, :at, :actor, :node, :kind, :body, :prev, :hash)"
)
ENTRIES = "SELECT * FROM audit WHERE chain = :of AND seq > :after ORDER BY seq"
