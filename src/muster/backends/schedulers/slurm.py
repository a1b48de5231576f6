"""Slurm: its jobs, nodes and settings for whoever plans around them; and our drains, which carry our rollout in their reason.

Slurm has no compare-and-set for a drain, so its state is read right before each change and again after it. Between the two lies a moment in
which a person's drain can be lost or lifted; it is as short as two commands, and the docs name it. What we drained is told from what a person
drained by the reason alone: an admin who drains over our drain replaces it, and has the node from then on. `scontrol reboot` is never used: with
`nextstate=RESUME` Slurm itself would return a node that nobody validated.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, assert_never

from muster.backends import _slurm_ask
from muster.backends._batch import Batch
from muster.model.command import Answered, EndJob, JobWork, Outcome, RequeueJob, SignalJob, Unreachable
from muster.model.errors import BadInput, MissingTool, Partial
from muster.model.job import Answer, Gang, Job, Partition, Reservation, SchedulerConfig, SchedulerNode
from muster.model.node import Node
from muster.ports import Transport

T = TypeVar("T")

DRAINED = ("DRAIN", "DRAINED", "DRAINING")
"""Slurm's words, over its releases, for a node that takes no new job because somebody said so."""

_ALL = "all nodes"

NOT_OURS = 3
"""Exit status of what was refused because the node is somebody else's."""

GONE = 4
"""Exit status of the look after a cordon that nobody has put there any more."""


class SlurmReader:
    """The reading half of `ports.Scheduler`. `transport` runs Slurm's commands on the machine where Muster runs.

    Each method raises MissingTool without Slurm's commands, Partial when Slurm does not answer, BadInput for an answer that is none.
    """

    name = "slurm"

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def nodes(self) -> Answer:
        """All nodes, with what Slurm says of their state."""
        return await _slurm_ask.nodes(self._transport)

    async def all_jobs(self) -> tuple[Job, ...]:
        """All jobs that have not ended, on whatever nodes."""
        return await _slurm_ask.jobs(self._transport)

    async def running(self) -> tuple[Job, ...]:
        """The jobs that hold nodes, with when they end and no more than a planner needs."""
        return await _slurm_ask.running(self._transport)

    async def config(self) -> SchedulerConfig:
        """Its release, cluster and settings."""
        return await _slurm_ask.config(self._transport)

    async def partitions(self) -> tuple[Partition, ...]:
        """Its queues."""
        return await _slurm_ask.partitions(self._transport)

    async def reservations(self) -> tuple[Reservation, ...]:
        """What is kept for whom."""
        return await _slurm_ask.reservations(self._transport)


class SlurmScheduler:
    """`ports.Scheduler` by Slurm's own commands. What many runs ask at one time is asked of Slurm once."""

    name = "slurm"

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._names: Mapping[str, str] = {}
        self._listed: Batch[Answer] = Batch(self._list)
        self._state: Batch[SchedulerNode] = Batch(self._states)
        self._jobs: Batch[tuple[Job, ...]] = Batch(self._jobs_on)
        self._drains: dict[str, Batch[Outcome]] = {}
        self._resume: Batch[Outcome] = Batch(self._resumed)

    async def jobs(self, node: Node) -> tuple[Job, ...] | Outcome:
        """See `ports.Scheduler`. A node that Slurm does not know is not idle: it is Unreachable."""
        return await _answered(self._jobs_of(node))

    async def cordon(self, node: Node, rollout_id: str, reason: str, *, over: str = "") -> Outcome:
        """See `ports.Scheduler`. `reason` is what admins read in `sinfo -R`, after the rollout's id."""
        return await _answered(self._cordon(node, rollout_id, reason, over))

    async def cordoned(self, node: Node, rollout_id: str) -> Outcome:
        """See `ports.Scheduler`."""
        return await _answered(self._cordoned(node, rollout_id))

    async def uncordon(self, node: Node, rollout_id: str) -> Outcome:
        """See `ports.Scheduler`."""
        return await _answered(self._uncordon(node, rollout_id))

    async def gang(self, node: Node, job: Job, rollout_id: str) -> Gang | Unreachable:
        """See `ports.Scheduler`. The first in Slurm's order of the nodes that we have cordoned speaks for the job."""
        return await _answered(self._gang(node, job, rollout_id))

    async def tell(self, work: JobWork) -> Outcome:
        """See `ports.Scheduler`. A signal goes to the job's steps, or to its batch script where it is written `B:USR1` as for sbatch."""
        match work:
            case SignalJob(job_id=job_id, signal=signal):
                whom = ("--batch",) if signal.startswith("B:") else ()
                argv = ("scancel", *whom, f"--signal={signal.removeprefix('B:')}", job_id)
            case RequeueJob(job_id=job_id):
                argv = ("scontrol", "requeue", job_id)
            case EndJob(job_id=job_id):
                argv = ("scancel", job_id)
            case _:
                assert_never(work)
        return await _answered(_slurm_ask.tell(self._transport, argv, work))

    async def _jobs_of(self, node: Node) -> tuple[Job, ...] | Unreachable:
        name = await self._name(node)
        return name if isinstance(name, Unreachable) else await self._jobs(name)

    async def _cordon(self, node: Node, rollout_id: str, reason: str, over: str) -> Outcome:
        name = await self._name(node)
        if isinstance(name, Unreachable):
            return name
        seen = await self._state(name)
        takes_over = bool(over) and _is_drained(seen) and _is_ours(seen, over)
        if takes_over or not _is_drained(seen):
            if not takes_over and not seen.takes_jobs:
                return Answered(NOT_OURS, f"{_stands(seen)}; it is left as it is".encode(), b"")
            drain = self._drains.setdefault(
                f"{_mark(rollout_id)} {reason}", Batch(self._drained_for(rollout_id, reason))
            )
            told = await drain(name)
            seen = await self._state(name)
            if not _is_drained(seen):
                return (
                    told if _refused(told) else Answered(1, f"Slurm took the drain, and {_stands(seen)}".encode(), b"")
                )
        if not _is_ours(seen, rollout_id):
            return Answered(NOT_OURS, f"{_stands(seen)}; it is left as it is".encode(), b"")
        return Answered(0, b"drained in Slurm: no new job starts here", b"")

    async def _cordoned(self, node: Node, rollout_id: str) -> Outcome:
        name = await self._name(node)
        if isinstance(name, Unreachable):
            return name
        seen = await self._state(name)
        if not _is_drained(seen):
            return Answered(GONE, f"somebody lifted the drain: {_stands(seen)}".encode(), b"")
        return Answered(0 if _is_ours(seen, rollout_id) else NOT_OURS, _stands(seen).encode(), b"")

    async def _uncordon(self, node: Node, rollout_id: str) -> Outcome:
        name = await self._name(node)
        if isinstance(name, Unreachable):
            return name
        seen = await self._state(name)
        if not _is_drained(seen):
            return Answered(0, b"was not drained any more", b"")
        if not _is_ours(seen, rollout_id):
            return Answered(0, f"stays away, which is not ours to end: {_stands(seen)}".encode(), b"")
        told = await self._resume(name)
        seen = await self._state(name)
        if _is_drained(seen) and _is_ours(seen, rollout_id):
            return told if _refused(told) else Answered(1, f"Slurm took the resume, and {_stands(seen)}".encode(), b"")
        return Answered(0, b"resumed in Slurm" if not _is_drained(seen) else _stands(seen).encode(), b"")

    async def _gang(self, node: Node, job: Job, rollout_id: str) -> Gang | Unreachable:
        name = await self._name(node)
        if isinstance(name, Unreachable):
            return name
        states = [await self._state(each) for each in job.nodes]
        drained = [each for each in states if _is_drained(each)]
        ours = [each.name for each in drained if _is_ours(each, rollout_id)]
        return Gang(first=ours[:1] == [name], cordoned=len(drained), size=len(job.nodes))

    async def _name(self, node: Node) -> str | Unreachable:
        """Slurm's name for `node`."""
        if node.name not in self._names:
            answer = await self._listed(_ALL)
            known = [each.name for each in answer.nodes if _same(each, node)]
            if len(known) != 1:
                said = f"knows {' and '.join(known[:4])} as" if known else "knows no node"
                hint = "name it in the inventory as Slurm does: see `scontrol show nodes`"
                return Unreachable("name", f"Slurm {said} {node.name} ({node.address})", hint)
            self._names = {**self._names, node.name: known[0]}
        return self._names[node.name]

    async def _list(self, _: Sequence[str]) -> Mapping[str, Answer]:
        return {_ALL: await _slurm_ask.nodes(self._transport)}

    async def _states(self, names: Sequence[str]) -> Mapping[str, SchedulerNode]:
        return {each.name: each for each in await _slurm_ask.node_states(self._transport, names)}

    async def _jobs_on(self, names: Sequence[str]) -> Mapping[str, tuple[Job, ...]]:
        on: dict[str, list[Job]] = {name: [] for name in names}
        for job in await _slurm_ask.running(self._transport):
            for node in job.nodes:
                if node in on:
                    on[node].append(replace(job, name=job.name or f"job {job.job_id}"))
        return {name: tuple(jobs) for name, jobs in on.items()}

    def _drained_for(self, rollout_id: str, reason: str) -> Callable[[Sequence[str]], Awaitable[Mapping[str, Outcome]]]:
        async def drained(names: Sequence[str]) -> Mapping[str, Outcome]:
            told = await _slurm_ask.drain(self._transport, names, f"{_mark(rollout_id)} {reason}")
            return dict.fromkeys(names, told)

        return drained

    async def _resumed(self, names: Sequence[str]) -> Mapping[str, Outcome]:
        return dict.fromkeys(names, await _slurm_ask.resume(self._transport, names))


async def _answered(asked: Awaitable[T]) -> T | Unreachable:
    """The answer; a scheduler that cannot be asked is a wait, and never the fault of the node."""
    try:
        return await asked
    except (BadInput, MissingTool, Partial) as error:
        return Unreachable("scheduler", error.message, error.hint or "")
    except KeyError as error:
        return Unreachable("name", f"Slurm knows no node {error.args[0]}", "see `scontrol show nodes`")


def _mark(rollout_id: str) -> str:
    """How the reason of our drain begins."""
    return f"muster {rollout_id}:"


def _is_drained(node: SchedulerNode) -> bool:
    return any(word in node.flags for word in DRAINED)


def _is_ours(node: SchedulerNode, rollout_id: str) -> bool:
    return node.reason.startswith(_mark(rollout_id))


def _refused(outcome: Outcome) -> bool:
    return isinstance(outcome, Unreachable) or outcome.exit_status != 0


def _stands(node: SchedulerNode) -> str:
    """How Slurm has the node, in words."""
    flags = "+".join((node.state.value, *node.flags)).upper()
    by = f" by {node.reason_by}" if node.reason_by else ""
    at = f" at {node.reason_at:%Y-%m-%d %H:%M} UTC" if node.reason_at is not None else ""
    why = f"{by}{at}: {node.reason}" if node.reason else ""
    return f"Slurm has {node.name} as {flags}{why}"


def _same(theirs: SchedulerNode, ours: Node) -> bool:
    """Whether Slurm's node is ours: by name, by the short form of it, or by address."""
    name, named = theirs.name.lower(), ours.name.lower()
    short = "." not in name or "." not in named
    if name == named or (short and name.partition(".")[0] == named.partition(".")[0]):
        return True
    return theirs.address != "" and theirs.address.lower() in (ours.address.lower(), named) and ours.port is None


BACKEND = SlurmScheduler
