"""Asks Slurm and tells it, by running its own commands where Muster runs. What changes a node or a job stands at the end.

JSON is asked for first, since no user's text can pass there for Slurm's; the text comes where a release or a build has no JSON. Times are
asked for in UTC. Only the transport that is handed in runs a command.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from muster.backends import _slurm_json, _slurm_text
from muster.model.command import Answered, AskScheduler, Command, CordonNodes, Intent, Outcome, UncordonNodes
from muster.model.errors import BadInput, MissingTool, Partial
from muster.model.job import ENDED, Answer, Job, Partition, Reservation, SchedulerConfig, SchedulerNode
from muster.model.node import LOCAL_ADDRESS, Node
from muster.ports import Transport

ASK_S: Final = 60
"""slurmctld answers 10,000 nodes in a second; one that is busy with a reconfiguration takes tens of them."""

MOST_BYTES: Final = 512 * 1024 * 1024
HERE: Final = Node("this machine", LOCAL_ADDRESS, None, None, {}, "slurm")

_SETTING: Final = ("env", "TZ=UTC", "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
_NOT_FOUND: Final = 127


async def nodes(transport: Transport) -> Answer:
    """All nodes. Raises MissingTool without Slurm's commands, Partial when Slurm does not answer, BadInput for an answer that is none."""
    asked = await _run(transport, "sinfo", "-a", "--json")
    found = _json(asked, "sinfo --json")
    if found is not None and all(node.address for node in found.nodes):
        return found
    # sinfo lists groups of nodes since 23.02; the same releases let scontrol list the nodes themselves.
    asked = await _run(transport, "scontrol", "-a", "show", "nodes", "--json")
    listed = _json(asked, "scontrol show nodes --json")
    if listed is not None and listed.nodes:
        return replace(listed, release=listed.release or (found.release if found is not None else ""))
    if found is not None and found.nodes:
        return found
    text = _answered(await _run(transport, "scontrol", "-a", "show", "node", "-o"), "scontrol show node")
    return Answer(nodes=_slurm_text.nodes(text, "scontrol show node"))


async def jobs(transport: Transport) -> tuple[Job, ...]:
    """All jobs that have not ended. Raises as `nodes` does."""
    found = _json(await _run(transport, "squeue", "-a", "--json"), "squeue --json")
    if found is not None:
        return _current(found.jobs)
    text = _answered(await _run(transport, "scontrol", "-a", "-d", "show", "job"), "scontrol show job")
    return _current(_slurm_text.jobs(text, "scontrol show job"))


async def listed_jobs(transport: Transport) -> tuple[Job, ...]:
    """All jobs that have not ended, out of squeue's text alone. Raises as `nodes` does."""
    outcome = await _run(transport, "squeue", "-a", "-h", "-o", _slurm_text.SQUEUE_FORMAT)
    return _current(_slurm_text.squeue(_answered(outcome, "squeue"), "squeue"))


async def running(transport: Transport) -> tuple[Job, ...]:
    """The jobs that hold nodes, with when they end and no more than a planner needs. Raises as `nodes` does."""
    outcome = await _run(transport, "squeue", "-a", "-h", "-t", "R,S,CG,CF", "-o", _slurm_text.RUNNING_FORMAT)
    return _slurm_text.squeue(_answered(outcome, "squeue"), "squeue", _slurm_text.RUNNING_FIELDS)


def _current(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Slurm goes on telling of a job for minutes after its end. One that is still completing holds its nodes."""
    return tuple(job for job in jobs if job.state not in ENDED or "COMPLETING" in job.flags)


async def config(transport: Transport) -> SchedulerConfig:
    """Slurm's settings and release. Raises as `nodes` does."""
    return _slurm_text.config(
        _answered(await _run(transport, "scontrol", "show", "config"), "scontrol show config"), "scontrol show config"
    )


async def partitions(transport: Transport) -> tuple[Partition, ...]:
    """All partitions. Raises as `nodes` does."""
    outcome = await _run(transport, "scontrol", "-a", "show", "partition", "-o")
    return _slurm_text.partitions(_answered(outcome, "scontrol show partition"), "scontrol show partition")


async def reservations(transport: Transport) -> tuple[Reservation, ...]:
    """All reservations. Raises as `nodes` does."""
    outcome = await _run(transport, "scontrol", "-a", "show", "reservation")
    return _slurm_text.reservations(_answered(outcome, "scontrol show reservation"), "scontrol show reservation")


async def node_states(transport: Transport, names: Sequence[str]) -> tuple[SchedulerNode, ...]:
    """These nodes as Slurm has them now, without those that it does not know. Raises as `nodes` does.

    In text: every release has it for some nodes alone, and nobody but Slurm and its admins writes in it.
    """
    asked = await _run(transport, "scontrol", "-a", "-o", "show", "node", ",".join(names))
    lines = [line for line in asked.stdout.splitlines() if not _NO_NODE.match(line)]
    if asked.exit_status != 0 and len(lines) == len(asked.stdout.splitlines()):
        _answered(asked, "scontrol show node")
    return _slurm_text.nodes(b"\n".join(lines) + b"\n", "scontrol show node")


_NO_NODE: Final = re.compile(rb"Node \S+ not found\s*$")


async def drain(transport: Transport, names: Sequence[str], reason: str) -> Outcome:
    """Have Slurm begin no new job on these nodes; what its command said. Overwrites a reason that is there."""
    argv = ("scontrol", "update", f"nodename={','.join(names)}", "state=drain", f"reason={reason}")
    return await tell(transport, argv, CordonNodes(tuple(names), reason))


async def resume(transport: Transport, names: Sequence[str]) -> Outcome:
    """Have Slurm take these nodes for jobs again; what its command said."""
    argv = ("scontrol", "update", f"nodename={','.join(names)}", "state=resume")
    return await tell(transport, argv, UncordonNodes(tuple(names)))


async def tell(transport: Transport, argv: Sequence[str], intent: Intent) -> Outcome:
    """What one of Slurm's commands came to. Raises MissingTool when it is not on this machine."""
    outcome = await transport.run(HERE, Command((*_SETTING, *argv), b"", ASK_S, intent))
    if isinstance(outcome, Answered) and outcome.exit_status == _NOT_FOUND:
        raise _missing(argv[0])
    return outcome


async def _run(transport: Transport, *argv: str) -> Answered:
    outcome = await tell(transport, argv, AskScheduler(" ".join(argv)))
    if not isinstance(outcome, Answered):
        raise Partial(f"Slurm's nodes are unknown: `{' '.join(argv)}`: {outcome.why}", hint=outcome.hint)
    return outcome


def _missing(program: str) -> MissingTool:
    return MissingTool(
        f"Slurm's command {program} is not on this machine's PATH",
        hint="run Muster where sinfo works (package slurm-client, and the cluster's slurm.conf and key)",
    )


def _answered(outcome: Answered, name: str) -> bytes:
    if outcome.exit_status == 0:
        return outcome.stdout
    said = (outcome.stderr or outcome.stdout).decode(errors="replace").strip().splitlines()
    words = said[-1][:200] if said else "nothing"
    raise Partial(
        f"Slurm's nodes are unknown: `{name}` ended with {outcome.exit_status} and said: {words}",
        hint="try `sinfo` by hand; is slurmctld up, and this machine allowed to ask it?",
    )


def _json(outcome: Answered, name: str) -> Answer | None:
    """The answer, or None where there is none: this release or build has no JSON, or Slurm did not answer; the text then says which."""
    if outcome.exit_status != 0:
        return None
    try:
        return _slurm_json.answer(outcome.stdout, name)
    except BadInput:
        return None
