"""A site of which Slurm has some nodes, and others are plain machines: each node goes to the one that has it.

On a node of Slurm's a person may compute without a job (over SSH, on a login node, under another scheduler). A node that Slurm calls empty is
therefore also asked itself who holds its GPUs.
"""

from muster.model.command import JobWork, Outcome, Unreachable
from muster.model.job import Gang, Job
from muster.model.node import Node
from muster.ports import Scheduler


class MixedScheduler:
    """`ports.Scheduler`: `slurm` for nodes that Slurm lists, `plain` for the rest."""

    name = "slurm"

    def __init__(self, slurm: Scheduler, plain: Scheduler) -> None:
        self._slurm = slurm
        self._plain = plain

    async def jobs(self, node: Node) -> tuple[Job, ...] | Outcome:
        """Slurm's jobs; where it has none there, the processes that hold a GPU."""
        found = await self._slurm.jobs(node) if node.in_slurm else ()
        return await self._plain.jobs(node) if found == () else found

    async def cordon(self, node: Node, rollout_id: str, reason: str, *, over: str = "") -> Outcome:
        """See `ports.Scheduler`."""
        return await self._of(node).cordon(node, rollout_id, reason, over=over)

    async def cordoned(self, node: Node, rollout_id: str) -> Outcome:
        """See `ports.Scheduler`."""
        return await self._of(node).cordoned(node, rollout_id)

    async def uncordon(self, node: Node, rollout_id: str) -> Outcome:
        """See `ports.Scheduler`."""
        return await self._of(node).uncordon(node, rollout_id)

    async def gang(self, node: Node, job: Job, rollout_id: str) -> Gang | Unreachable:
        """See `ports.Scheduler`. A process that Slurm knows nothing of is on its node alone."""
        return await (self._plain if job.is_process else self._slurm).gang(node, job, rollout_id)

    async def tell(self, work: JobWork) -> Outcome:
        """See `ports.Scheduler`; only Slurm's jobs can be told anything."""
        return await self._slurm.tell(work)

    def _of(self, node: Node) -> Scheduler:
        return self._slurm if node.in_slurm else self._plain
