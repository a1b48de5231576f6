"""How values become rows and come back: shared by the stores, which may not know each other.

Times are fixed-width RFC 3339 texts in UTC with microseconds, so that their order as texts is their order in time, on every database and
for the eye. Nothing is lost on the way: what is read equals what was written. It opens no file and no database.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from muster.model.audit import Entry, Record
from muster.model.fact import Fact, FactValue, NodeFacts, Unknown
from muster.model.node import Node
from muster.model.phase import Phase
from muster.model.plan import Plan
from muster.model.plan_form import plan_from_body
from muster.model.run import Rollout, RolloutState, Run


def text_of(at: datetime) -> str:
    """`at` as `2026-01-31T12:00:00.000000Z`. Raises ValueError for a time without a zone: it could mean any hour."""
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no time zone")
    return at.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def time_of(text: str) -> datetime:
    """The inverse of `text_of`, aware UTC. Raises ValueError for any other text."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:  # astimezone would take it for this machine's own hour
        raise ValueError(f"{text} has no time zone")
    return at if at.tzinfo is UTC else at.astimezone(UTC)


def json_of(value: object) -> str:
    """JSON as ASCII text, keys sorted: a node's odd bytes (lone surrogates) come back as they were."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


def texts_of(text: str) -> Mapping[str, str]:
    """A stored mapping of texts. Raises ValueError when it is something else."""
    value: object = json.loads(text)
    if not isinstance(value, dict) or not all(isinstance(member, str) for member in value.values()):
        raise ValueError("it is not a mapping of texts")
    return value


def value_json(value: FactValue) -> object:
    """A fact's value as JSON: Unknown is `{"unknown": why}`, a list of texts an array, the rest itself."""
    match value:
        case Unknown(why=why):
            return {"unknown": why}
        case tuple():
            return list(value)
        case _:
            return value


def value_from(body: object) -> FactValue:
    """The inverse of `value_json`. Raises ValueError for what no fact can be."""
    match body:
        case {"unknown": str(why), **rest} if not rest:
            return Unknown(why)
        case bool() | int() | str():
            return body
        case list() if all(isinstance(member, str) for member in body):
            return tuple(body)
        case _:
            raise ValueError(f"{body!r} is no fact's value")


def facts_text(facts: NodeFacts) -> str:
    """One node's facts as JSON text."""
    return json_of(
        {
            "node": facts.node,
            "observed_at": text_of(facts.observed_at),
            "trouble": facts.trouble.why if facts.trouble else None,
            "facts": {
                path: [value_json(fact.value), fact.source, text_of(fact.observed_at), fact.momentary]
                for path, fact in facts.facts.items()
            },
        }
    )


def facts_from(text: str) -> NodeFacts:
    """The inverse of `facts_text`. Raises ValueError when the text is something else."""
    match json.loads(text):
        case {"node": str(node), "observed_at": str(at), "trouble": None | str() as why, "facts": dict(facts)}:
            known = {str(path): _fact(str(path), row) for path, row in facts.items()}
            return NodeFacts(node, time_of(at), known, None if why is None else Unknown(why))
        case _:
            raise ValueError("it does not hold a node's facts")


def _fact(path: str, row: object) -> Fact:
    match row:
        case [value, str(source), str(at), bool(momentary)]:
            return Fact(path, value_from(value), source, time_of(at), momentary)
        case _:
            raise ValueError(f"{path} is not a fact")


def node_from(row: Any) -> Node:
    """A row of `nodes` as a value. Raises ValueError, like its sisters below, for what no release wrote."""
    return Node(row["name"], row["address"], row["port"], row["user"], texts_of(row["labels"]), row["source"])


def rollout_from(row: Any) -> Rollout:
    """A row of `rollouts` as a value."""
    return Rollout(
        row["rollout_id"], row["plan_id"], RolloutState(row["state"]), row["why"], time_of(row["created_at"]),
        time_of(row["updated_at"]), row["carried_by"],
    )  # fmt: skip


def run_row(run: Run) -> Mapping[str, object]:
    """A new run as a row."""
    identity = {
        "run_id": run.run_id, "rollout_id": run.rollout_id, "node": run.node, "stage": run.stage, "group": run.group,
        "released": run.released, "claim": run.claim,
    }  # fmt: skip
    return identity | run_state_row(run)


def run_state_row(run: Run) -> dict[str, object]:
    """What changes in a run, as columns; not its identity, `released` and `claim`."""
    return {
        "phase": run.phase.value, "ended": run.ended, "lease": run.lease, "wake_at": text_of(run.wake_at),
        "phase_since": text_of(run.phase_since), "attempt": run.attempt, "waiting": run.waiting,
        "notes": json_of(run.notes),
    }  # fmt: skip


def run_from(row: Any) -> Run:
    """A row of `runs` as a value."""
    return Run(
        run_id=row["run_id"],
        rollout_id=row["rollout_id"],
        node=row["node"],
        stage=row["stage"],
        group=row["group"],
        phase=Phase(row["phase"]),
        released=bool(row["released"]),
        claim=row["claim"],
        lease=row["lease"],
        wake_at=time_of(row["wake_at"]),
        phase_since=time_of(row["phase_since"]),
        attempt=row["attempt"],
        waiting=row["waiting"],
        notes=texts_of(row["notes"]),
    )


def entry_from(row: Any) -> Entry:
    """A row of `audit` as a value."""
    record = Record(row["at"], row["actor"], row["node"], row["kind"], json.loads(row["body"]))
    return Entry(row["chain"], row["seq"], record, row["prev"], row["hash"])


def plan_of(plan_id: str, body: str) -> Plan:
    """The plan kept under `plan_id`. Raises ValueError when its content is not what the id says."""
    plan = plan_from_body(json.loads(body))
    if plan.id != plan_id:
        raise ValueError(f"its content is that of {plan.id}")
    return plan
