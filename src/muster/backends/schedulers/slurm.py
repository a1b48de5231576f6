"""Slurm's jobs, nodes and settings for whoever plans around them. Reading only: it drains and resumes nothing."""

from muster.backends import _slurm_ask
from muster.model.command import Outcome, Unreachable
from muster.model.job import Answer, Job, Partition, Reservation, SchedulerConfig, SchedulerNode
from muster.model.node import Node
from muster.ports import Transport


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

    async def jobs(self, node: Node) -> tuple[Job, ...] | Outcome:
        """The jobs that hold `node`, under whatever name Slurm knows it. A node that Slurm does not know is not idle: it is Unreachable."""
        known = [each.name for each in (await self.nodes()).nodes if _same(each, node)]
        if len(known) != 1:
            words = (
                f"knows {' and '.join(known[:4])} as {node.name}"
                if known
                else f"knows no node {node.name} ({node.address})"
            )
            return Unreachable(
                "name", f"Slurm {words}", "name it in the inventory as Slurm does: see `scontrol show nodes`"
            )
        return tuple(job for job in await self.all_jobs() if known[0] in job.nodes)

    async def config(self) -> SchedulerConfig:
        """Its release, cluster and settings."""
        return await _slurm_ask.config(self._transport)

    async def partitions(self) -> tuple[Partition, ...]:
        """Its queues."""
        return await _slurm_ask.partitions(self._transport)

    async def reservations(self) -> tuple[Reservation, ...]:
        """What is kept for whom."""
        return await _slurm_ask.reservations(self._transport)


def _same(theirs: SchedulerNode, ours: Node) -> bool:
    """Whether Slurm's node is ours: by name, by the short form of it, or by address."""
    name, named = theirs.name.lower(), ours.name.lower()
    short = "." not in name or "." not in named
    if name == named or (short and name.partition(".")[0] == named.partition(".")[0]):
        return True
    return theirs.address != "" and theirs.address.lower() in (ours.address.lower(), named) and ours.port is None


BACKEND = SlurmReader
