"""A scheduler in memory that passes the contract of `ports.Scheduler`: for tests of what is done by its answers."""

from dataclasses import replace

from muster.model.command import Answered, EndJob, JobWork, Outcome, RequeueJob, Unreachable
from muster.model.job import Gang, Job
from muster.model.node import Node


class MemoryScheduler:
    """`reasons` holds the reason of each drained node, `running` and `waiting` the jobs, `told` what it was told of them.

    `away` makes it silent.
    """

    name = "memory"

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes
        self.reasons: dict[str, str] = {}
        self.running: list[Job] = []
        self.waiting: list[Job] = []
        self.told: list[JobWork] = []
        self.not_requeuable: set[str] = set()
        self.away = False

    def start(self, name: str, *nodes: str) -> Job:
        """A job that runs on these nodes, of which none may be drained."""
        assert not set(nodes) & set(self.reasons)
        job = Job(str(100 + len(self.running) + len(self.waiting)), name, nodes, size=len(nodes))
        self.running.append(job)
        return job

    async def jobs(self, node: Node) -> tuple[Job, ...] | Outcome:
        """See `ports.Scheduler`."""
        return self._silence(node) or tuple(job for job in self.running if node.name in job.nodes)

    async def cordon(self, node: Node, rollout_id: str, reason: str, *, over: str = "") -> Outcome:
        """See `ports.Scheduler`."""
        silence = self._silence(node)
        if silence is not None:
            return silence
        if over and self.reasons.get(node.name, "").startswith(f"muster {over}:"):
            del self.reasons[node.name]
        self.reasons.setdefault(node.name, f"muster {rollout_id}: {reason}")
        return self._stands(node, rollout_id, 3)

    async def cordoned(self, node: Node, rollout_id: str) -> Outcome:
        """See `ports.Scheduler`."""
        return self._silence(node) or self._stands(node, rollout_id, 3)

    async def uncordon(self, node: Node, rollout_id: str) -> Outcome:
        """See `ports.Scheduler`."""
        silence = self._silence(node)
        if silence is not None:
            return silence
        stands = self._stands(node, rollout_id, 3)
        if stands.exit_status == 0:
            del self.reasons[node.name]
        return replace(stands, exit_status=0)

    async def gang(self, node: Node, job: Job, rollout_id: str) -> Gang | Unreachable:
        """See `ports.Scheduler`."""
        ours = [each for each in job.nodes if self.reasons.get(each, "").startswith(f"muster {rollout_id}:")]
        cordoned = [each for each in job.nodes if each in self.reasons]
        return self._silence(node) or Gang(ours[:1] == [node.name], len(cordoned), len(job.nodes))

    async def tell(self, work: JobWork) -> Outcome:
        """See `ports.Scheduler`."""
        self.told.append(work)
        found = [job for job in self.running if job.job_id == work.job_id]
        if not found or (isinstance(work, RequeueJob) and work.job_id in self.not_requeuable):
            return Answered(1, b"", b"Requested operation is presently disabled\n")
        if isinstance(work, RequeueJob | EndJob):
            self.running.remove(found[0])
        if isinstance(work, RequeueJob):
            self.waiting.append(replace(found[0], nodes=()))
        return Answered(0, b"", b"")

    def _silence(self, node: Node) -> Unreachable | None:
        if self.away:
            return Unreachable("scheduler", "does not answer", "")
        return None if node.name in self.nodes else Unreachable("name", f"knows no node {node.name}", "")

    def _stands(self, node: Node, rollout_id: str, otherwise: int) -> Answered:
        reason = self.reasons.get(node.name)
        if reason is None:
            return Answered(4, b"is not drained", b"")
        return Answered(
            0 if reason.startswith(f"muster {rollout_id}:") else otherwise, f"drained: {reason}".encode(), b""
        )
