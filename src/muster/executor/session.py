"""One run's dealings with its node: look, ask, take and release the lease, start and follow tasks. Wraps node-side texts in commands.

What is about to run is written to the audit log before it runs, and a task is started at most once by
the node, whoever asks.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import StrEnum

from muster.executor import look as looking
from muster.model.audit import Record
from muster.model.command import (
    Answered,
    Collect,
    Command,
    Outcome,
    Preflight,
    ReleaseLease,
    StartTask,
    TakeLease,
    Unreachable,
    Work,
    describe,
)
from muster.model.fact import FactSpec, NodeFacts
from muster.model.frozen import dataclass
from muster.model.lease import Fence
from muster.model.node import Node
from muster.model.plan import Plan
from muster.model.run import Run
from muster.node.lease import lease_release, lease_take, parse_lease_answer
from muster.node.task import parse_answer, task_start
from muster.ports import Clock, Ids, Transport

ASK_S = 60
"""How long a node may take to answer a short question; starting a task waits up to 15 s for its first sign of life."""

LONG_SCRIPT = 16 * 1024
"""A script longer than this (a program that is the same for every node) stands in the audit log once for a process that carries the rollout,
under its hash, and not again for each node."""

LEASE_MARGIN_S = 6 * 3600
"""A lease lasts as long as the pool's drain may, and this long on top; after it, another control plane may take the duty to recover the node."""


class TaskState(StrEnum):
    """What became of a task. `failed`: the node could not start it; `unknown`: the node's answer did not arrive whole."""

    RUNNING = "running"
    DONE = "done"
    LOST = "lost"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


NOT_BEGUN = (TaskState.REFUSED, TaskState.FAILED, TaskState.UNKNOWN)
"""The node did not say that the task was begun."""

_BOOT_ID = 'cat "$MUSTER_ROOT/proc/sys/kernel/random/boot_id"\n'


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """A task as the node knows it: its state, its exit status when done, its last words, its output (the tail)."""

    state: TaskState
    exit_status: int | None
    words: str
    out: bytes


@dataclass(frozen=True, slots=True)
class LeaseAnswer:
    """The lease number the node gave, or None and the words of its refusal."""

    number: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Session:
    """See the module. Made anew for every advance of a run."""

    transport: Transport
    clock: Clock
    ids: Ids
    specs: tuple[FactSpec, ...]
    node: Node
    run: Run
    plan: Plan
    fence: Fence
    holder: str
    note: Callable[[str, Record], Awaitable[None]]
    """Writes a record unless one was written under the same key in this process: a poll is not a new command."""
    keep: Callable[[NodeFacts], None]
    """Told of every look that came back: what the fleet's facts say afterwards is what was seen here last."""
    at: str

    async def look(self, *, whole: bool = False) -> NodeFacts | Unreachable:
        """The facts of the node that a rollout decides by, now; all of them when `whole`, as at the end of a run."""
        specs = self.specs if whole else tuple(spec for spec in self.specs if not spec.whole_only)
        seen = await looking.look(self.node, specs=specs, transport=self.transport, clock=self.clock, ids=self.ids)
        if isinstance(seen, NodeFacts) and len(specs) < len(self.specs):
            seen = replace(seen, partial=True)
        if isinstance(seen, NodeFacts):
            self.keep(seen)
        return seen

    async def ask(self, text: str, *, deadline_s: float) -> Outcome:
        """Run a text that changes nothing, and wait for it."""
        step = self.plan.node(self.run.node).step
        return await self.transport.run(
            self.node, Command(("sh", "-s"), text.encode(), deadline_s, Preflight(step.incoming, step.back))
        )

    async def boot_id(self) -> str | Unreachable:
        """The node's present boot id."""
        intent = Collect(("system",))
        outcome = await self.transport.run(self.node, Command(("sh", "-s"), _BOOT_ID.encode(), ASK_S, intent))
        if isinstance(outcome, Unreachable):
            return outcome
        lines = outcome.stdout.decode(errors="replace").split()
        if outcome.exit_status != 0 or not lines:
            return Unreachable("lost", f"the boot id cannot be read: {_last(outcome)}", "")
        return lines[-1]

    async def take_lease(self, reason: str) -> LeaseAnswer | Unreachable:
        """Claim the node for this rollout; taking again gives the same number."""
        rollout_id = self.run.rollout_id
        text = lease_take(
            holder=self.holder,
            rollout_id=rollout_id,
            plan_id=self.plan.id,
            reason=reason,
            ttl_s=self._drain_limit_s() + LEASE_MARGIN_S,
        )
        intent = TakeLease(self.holder, rollout_id)
        await self.note(
            f"{self.run.run_id}-{self.run.phase.value}",
            Record(self.at, self.holder, self.node.name, "command", describe(intent)),
        )
        outcome = await self.transport.run(self.node, Command(("sh", "-s"), text.encode(), ASK_S, intent))
        if isinstance(outcome, Unreachable):
            return outcome
        answer = parse_lease_answer(outcome.stdout)
        if answer.state == "taken":
            return LeaseAnswer(answer.number, "")
        if answer.state == "refused":
            return LeaseAnswer(
                None,
                f"{answer.why}: {answer.holder} since {answer.taken_at} for {answer.rollout_id} ({answer.plan_id})",
            )
        return LeaseAnswer(None, answer.why or _last(outcome))

    def _drain_limit_s(self) -> int:
        return self.plan.limits(self.node.name).drain_limit_s

    async def release_lease(self, *, of: str = "") -> LeaseAnswer | Unreachable:
        """Give the node back; a lease that is not there any more is fine, somebody else's is left alone.

        `of` names an ended rollout whose lease is given back in place of this one's.
        """
        rollout_id = of or self.run.rollout_id
        intent = ReleaseLease(rollout_id)
        await self.note(
            f"{self.run.run_id}-{self.run.phase.value}{of}",
            Record(self.at, self.holder, self.node.name, "command", describe(intent)),
        )
        text = lease_release(rollout_id=rollout_id)
        outcome = await self.transport.run(self.node, Command(("sh", "-s"), text.encode(), ASK_S, intent))
        if isinstance(outcome, Unreachable):
            return outcome
        answer = parse_lease_answer(outcome.stdout)
        if answer.state in ("released", "free", "refused"):
            return LeaseAnswer(0, answer.why)
        return LeaseAnswer(None, answer.why or _last(outcome))

    async def task(self, name: str, script: str, work: Work, deadline_s: int) -> TaskEnd | Unreachable:
        """Start the detached task of this run, phase and attempt, or learn what became of it. Never starts it twice.

        `deadline_s` 0 never cuts it. The exact script stands in the audit log before the node is first asked.
        """
        task_id = f"{self.run.run_id}-{name}-{self.run.attempt}"
        intent = StartTask(task_id, self.fence, work)
        digest = hashlib.sha256(script.encode()).hexdigest()
        body = {**describe(intent), "sha256": digest}
        if len(script) <= LONG_SCRIPT:
            body |= {"script": script}
        else:
            whole = {"sha256": digest, "script": script}
            await self.note(f"{self.run.rollout_id}-{digest}", Record(self.at, self.holder, "", "script", whole))
        await self.note(task_id, Record(self.at, self.holder, self.node.name, "command", body))
        text = task_start(task_id, str(self.fence), script, deadline_s=deadline_s)
        outcome = await self.transport.run(self.node, Command(("sh", "-s"), text.encode(), ASK_S, intent))
        if isinstance(outcome, Unreachable):
            return outcome
        answer = parse_answer(outcome.stdout)
        if answer.state not in tuple(TaskState) or answer.state in NOT_BEGUN:
            state = TaskState(answer.state) if answer.state in NOT_BEGUN else TaskState.UNKNOWN
            return TaskEnd(state, None, answer.why or _last(outcome), b"")
        state = TaskState(answer.state)
        # What went well says so last; what a tool grumbled on the other channel meanwhile is in the node's own record.
        err = b"" if answer.exit_status == 0 and answer.out.strip() else answer.err
        words = _CUT.get(state, "") + _words(answer.out, err, answer.why or answer.state)
        return TaskEnd(state, answer.exit_status, words, answer.out)


_CUT = {
    TaskState.INTERRUPTED: "interrupted by a restart of the node, after: ",
    TaskState.LOST: "its processes vanished, after: ",
}

_TELLING = ("E:", "differs:", "dpkg: error", "Error!", "modprobe: FATAL", "ERROR")


def _words(out: bytes, err: bytes, otherwise: str) -> str:
    """The last telling line: an error line of either output before the mere last one."""
    lines = [line.strip() for line in (out + b"\n" + err).decode(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(_TELLING) and "(dkms apport)" not in line]
    text = (telling or lines or [otherwise])[-1 if not telling else 0]
    return "".join(c if c.isprintable() else "?" for c in text)[:300]


def _last(outcome: Answered) -> str:
    return _words(outcome.stdout, outcome.stderr, f"no answer (exit {outcome.exit_status})")
