"""Plain SSH machines without a scheduler: the processes that hold a GPU are the jobs, and our lease on the node is the cordon.

No job is ever ended here. A launcher that wants to honour a cordon looks for the lease file on the node; nothing else can hold back new
processes on a machine without a scheduler, and the docs say so.
"""

from collections.abc import Callable

from muster.model.command import Answered, Command, ListJobs, Outcome
from muster.model.job import Job
from muster.model.node import Node
from muster.ports import Scheduler, Transport

ASK_S = 60

_HOLDERS = """\
PATH=$PATH:/usr/sbin:/sbin
nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader 2>&1
"""


class NoScheduler:
    """`ports.Scheduler` for machines that have none."""

    name = "none"

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def jobs(self, node: Node) -> tuple[Job, ...] | Outcome:
        """The processes that hold a GPU. An answer that is not a list of them is handed on as it came: unknown is not idle."""
        outcome = await self._transport.run(node, Command(("sh", "-s"), _HOLDERS.encode(), ASK_S, ListJobs()))
        if not isinstance(outcome, Answered) or outcome.exit_status != 0:
            return outcome
        jobs: list[Job] = []
        for line in outcome.stdout.decode(errors="replace").splitlines():
            if not line.strip():
                continue
            pid, comma, name = line.partition(",")
            if not comma or not pid.strip().isdecimal():
                return outcome
            jobs.append(Job(pid.strip(), name.strip(), (node.name,)))
        return tuple(jobs)

    async def cordon(self, node: Node, reason: str) -> Outcome:
        """The lease is already there; nothing more can be done on such a machine."""
        return Answered(0, reason.encode(), b"")

    async def uncordon(self, node: Node, reason: str) -> Outcome:
        """Releasing the lease lifts it."""
        return Answered(0, reason.encode(), b"")


BACKEND: Callable[[Transport], Scheduler] = NoScheduler
