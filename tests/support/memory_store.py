"""A store that lasts as long as its object: `ports.Store` in plain Python, for fast tests of what works on a store."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from muster.model.approval import Approval
from muster.model.audit import GENESIS, Entry, Record, append, canonical
from muster.model.errors import ClaimLost, UnknownName
from muster.model.fact import GONE, Fact, NodeFacts, Unknown
from muster.model.node import Node
from muster.model.phase import BEFORE_CHANGE
from muster.model.plan import Plan
from muster.model.run import Rollout, RolloutState, Run
from muster.model.validation import Validated


class MemoryStore:
    """See `ports.Store`; it passes the same contract."""

    def __init__(self) -> None:
        self._facts: dict[str, NodeFacts] = {}
        self._history: dict[str, list[Fact]] = {}
        self._nodes: dict[str, Node] = {}
        self._plans: dict[str, Plan] = {}
        self._approvals: dict[tuple[str, str], Approval] = {}
        self._rollouts: dict[str, Rollout] = {}
        self._runs: dict[str, Run] = {}
        self._chains: dict[str, tuple[Entry, ...]] = {}
        self._validations: list[Validated] = []

    async def save_facts(self, facts: Sequence[NodeFacts]) -> None:
        for look in facts:
            before = self._facts.get(look.node)
            if look.trouble is not None and before is not None:
                seen = {path: fact for path, fact in look.facts.items() if not isinstance(fact.value, Unknown)}
                look = replace(look, observed_at=before.observed_at, facts={**before.facts, **seen})
            elif look.partial and before is not None:
                asked = {fact.source for fact in look.facts.values()}
                others = {path: fact for path, fact in before.facts.items() if fact.source not in asked}
                look = replace(look, facts={**others, **look.facts})
            self._facts[look.node] = replace(look, partial=False)
            self._note_changes(look)

    def _note_changes(self, look: NodeFacts) -> None:
        past = self._history.setdefault(look.node, [])
        last = {fact.path: fact for fact in past}
        noted = []
        for path, fact in look.facts.items():
            known = path in last and not isinstance(last[path].value, Unknown)
            is_known = not isinstance(fact.value, Unknown)
            same = known and (type(last[path].value), last[path].value) == (type(fact.value), fact.value)
            if not fact.momentary and (known or is_known) and not same:
                noted.append(fact)
        for path, fact in last.items():
            if path not in look.facts and not isinstance(fact.value, Unknown):
                noted.append(replace(fact, value=Unknown(GONE), observed_at=look.observed_at))
        past += sorted(noted, key=lambda fact: fact.path)

    async def facts(self) -> tuple[NodeFacts, ...]:
        return tuple(self._facts[name] for name in sorted(self._facts))

    async def facts_of(self, node: str) -> NodeFacts | None:
        return self._facts.get(node)

    async def history(self, node: str) -> tuple[Fact, ...]:
        return tuple(self._history.get(node, ()))

    async def most_gpus(self, since: datetime) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for node, past in self._history.items():
            counts = [fact for fact in past if fact.path == "gpu.count" and isinstance(fact.value, int)]
            before = [fact for fact in counts if fact.observed_at <= since][-1:]
            lately = [
                int(str(fact.value)) for fact in (*before, *(each for each in counts if each.observed_at > since))
            ]
            if lately:
                found[node] = max(lately)
        return found

    async def save_nodes(self, nodes: Sequence[Node]) -> None:
        self._nodes |= {node.name: node for node in nodes}

    async def nodes(self) -> tuple[Node, ...]:
        return tuple(self._nodes[name] for name in sorted(self._nodes))

    async def save_plan(self, plan: Plan) -> None:
        self._plans.setdefault(plan.id, plan)

    async def plans(self) -> tuple[Plan, ...]:
        return tuple(self._plans.values())

    async def plan_ids(self) -> tuple[str, ...]:
        return tuple(self._plans)

    async def plan(self, plan_id: str) -> Plan:
        self._known(self._plans, plan_id)
        return self._plans[plan_id]

    async def approve(self, approval: Approval) -> None:
        self._known(self._plans, approval.plan_id)
        self._approvals.setdefault((approval.plan_id, approval.by), approval)

    async def approvals(self, plan_id: str) -> tuple[Approval, ...]:
        return tuple(each for each in self._approvals.values() if each.plan_id == plan_id)

    async def begin(self, rollout: Rollout, runs: Sequence[Run], record: Record) -> None:
        self._known(self._plans, rollout.plan_id)
        self._append(rollout.rollout_id, (record,))
        self._rollouts[rollout.rollout_id] = rollout
        self._runs |= {run.run_id: run for run in runs}

    async def rollouts(self) -> tuple[Rollout, ...]:
        return tuple(self._rollouts.values())

    async def set_rollout(
        self, rollout_id: str, state: RolloutState, why: str, at: datetime, record: Record | None
    ) -> None:
        self._known(self._rollouts, rollout_id)
        self._append(rollout_id, () if record is None else (record,))
        self._rollouts[rollout_id] = replace(self._rollouts[rollout_id], state=state, why=why, updated_at=at)

    async def runs(self, rollout_id: str) -> tuple[Run, ...]:
        ours = (run for run in self._runs.values() if run.rollout_id == rollout_id)
        return tuple(sorted(ours, key=lambda run: (run.stage, run.group, run.node)))

    async def run(self, run_id: str) -> Run:
        self._known(self._runs, run_id)
        return self._runs[run_id]

    async def release(self, run_ids: Sequence[str], at: datetime, record: Record) -> None:
        for run_id in run_ids:
            self._known(self._runs, run_id)
        fresh = [self._runs[run_id] for run_id in run_ids if not self._runs[run_id].released]
        if len({run.rollout_id for run in fresh}) > 1:
            raise ValueError("runs of several rollouts cannot be released together")
        if fresh:
            self._append(fresh[0].rollout_id, (record,))
        for run in fresh:
            self._runs[run.run_id] = replace(run, released=True, wake_at=at, phase_since=at)

    async def due(self, now: datetime, limit: int) -> tuple[str, ...]:
        if now.tzinfo is None:
            raise ValueError("a time without a time zone")
        return tuple(run.run_id for run in self._open() if run.wake_at <= now)[:limit]

    async def next_wake(self, after: datetime) -> datetime | None:
        return next((run.wake_at for run in self._open() if run.wake_at > after), None)

    async def claim(self, run_id: str) -> int:
        run = await self.run(run_id)
        self._runs[run_id] = replace(run, claim=run.claim + 1)
        return run.claim + 1

    async def record(self, run: Run, records: Sequence[Record]) -> None:
        held = await self.run(run.run_id)
        if held.claim != run.claim:
            raise ClaimLost(f"{run.run_id}: another process took it (claim {held.claim}, ours was {run.claim})")
        self._append(run.rollout_id, records)
        self._runs[run.run_id] = replace(run, released=run.released or held.released)

    async def audit(self, chain: str, after: int = 0) -> tuple[Entry, ...]:
        return tuple(entry for entry in self._chains.get(chain, ()) if entry.seq > after)

    async def save_validation(self, validated: Validated) -> None:
        self._validations.append(validated)
        of_node = [each for each in self._validations if each.node == validated.node]
        if len(of_node) > 10:
            self._validations.remove(of_node[0])

    async def validations(self) -> tuple[Validated, ...]:
        return tuple(self._validations)

    async def close(self) -> None:
        pass

    def _open(self) -> list[Run]:
        paused = {each.rollout_id for each in self._rollouts.values() if each.state is RolloutState.PAUSED}
        runs = [r for r in self._runs.values() if r.released and not r.ended]
        going = [r for r in runs if r.rollout_id not in paused or r.phase not in BEFORE_CHANGE]
        return sorted(going, key=lambda run: run.wake_at)

    def _append(self, chain: str, records: Iterable[Record]) -> None:
        entries = self._chains.get(chain, ())
        for record in records:  # an error leaves the chain as it was: it is put in place whole
            kept = replace(record, body=json.loads(canonical(record.body)))
            entries = (*entries, append(chain, len(entries) + 1, kept, entries[-1].hash if entries else GENESIS))
        self._chains[chain] = entries

    def _known(self, rows: dict[str, Plan] | dict[str, Rollout] | dict[str, Run], name: str) -> None:
        if name not in rows:
            raise UnknownName(f"nothing named {name} is known")
