"""The contract of `ports.Scheduler`: whose cordon a node bears, who lifts it, what becomes of jobs. Real Slurm, and the one in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

import pytest

from muster.backends.schedulers.slurm import SlurmScheduler
from muster.backends.transport.local import LocalTransport
from muster.model.command import Answered, Command, EndJob, Outcome, RequeueJob, SignalJob, Unreachable
from muster.model.job import Gang, Job
from muster.model.node import Node
from muster.ports import Scheduler
from tests.support.memory_scheduler import MemoryScheduler
from tests.support.slurm import NODES, PROGRAMS, Cluster, cluster

T = TypeVar("T")
OURS, OTHER = "rollout-01A", "rollout-01B"
WHY = "580.95.05 to 595.45.04"


def done(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def node(name: str) -> Node:
    return Node(name, name, None, None, {"slurm.partition": "train"}, "test")


def said(outcome: Outcome) -> str:
    assert isinstance(outcome, Answered), outcome
    return outcome.stdout.decode()


def status(outcome: Outcome) -> int:
    assert isinstance(outcome, Answered), outcome
    return outcome.exit_status


class Bench(Protocol):
    """A scheduler with four idle nodes gpu01 to gpu04, and the hands of an admin and of a user."""

    scheduler: Scheduler

    def drain_by_hand(self, name: str, reason: str) -> None: ...
    def resume_by_hand(self, name: str) -> None: ...
    def reason(self, name: str) -> str: ...
    def run_job(self, *names: str) -> str: ...
    def is_waiting(self, job_id: str) -> bool: ...
    def silenced(self) -> Scheduler: ...


class Memory:
    def __init__(self) -> None:
        self.scheduler = MemoryScheduler(*NODES)

    def drain_by_hand(self, name: str, reason: str) -> None:
        self.scheduler.reasons[name] = reason

    def resume_by_hand(self, name: str) -> None:
        del self.scheduler.reasons[name]

    def reason(self, name: str) -> str:
        return self.scheduler.reasons.get(name, "")

    def run_job(self, *names: str) -> str:
        return self.scheduler.start("train", *names).job_id

    def is_waiting(self, job_id: str) -> bool:
        return job_id in [job.job_id for job in self.scheduler.waiting]

    def silenced(self) -> Scheduler:
        silent = MemoryScheduler(*NODES)
        silent.away = True
        return silent


class Slurm:
    def __init__(self, lab: Cluster) -> None:
        self.lab = lab
        self.scheduler = SlurmScheduler(LocalTransport(environment=lab.environment))

    def drain_by_hand(self, name: str, reason: str) -> None:
        self.lab.run("scontrol", "update", f"nodename={name}", "state=drain", f"reason={reason}")

    def resume_by_hand(self, name: str) -> None:
        self.lab.run("scontrol", "update", f"nodename={name}", "state=resume")

    def reason(self, name: str) -> str:
        told = self.lab.run("sinfo", "-h", "-N", "-n", name, "-t", "drain,drng", "-o", "%200E").splitlines()
        return told[0].strip() if told else ""

    def run_job(self, *names: str) -> str:
        wanted = (f"-N{len(names)}", "-w", ",".join(names), "--requeue", "-p", "train", "-t", "30", "-J", "train")
        trap = "trap 'echo caught > /dev/null' USR1; while :; do sleep 1; done"
        job_id = self.lab.run("sbatch", "--parsable", *wanted, "-o", "/dev/null", "--wrap", trap).strip()
        self.lab.until(f'[ "$(squeue -h -j {job_id} -o %T)" = RUNNING ]')
        return job_id

    def is_waiting(self, job_id: str) -> bool:
        return self.lab.run("squeue", "-h", "-j", job_id, "-o", "%T").strip() == "PENDING"

    def silenced(self) -> Scheduler:
        nobody = {**self.lab.environment, "SLURM_CONF": str(self.lab.nobody())}
        return SlurmScheduler(LocalTransport(environment=nobody))

    def cleared(self) -> None:
        self.lab.run("scancel", "--user=root")
        self.lab.until('[ -z "$(squeue -h)" ]')
        for name in NODES:
            if self.reason(name):
                self.resume_by_hand(name)
        self.lab.until(f'[ "$(sinfo -h -N -o "%N %T" | grep " idle$" | sort -u | wc -l)" -ge {len(NODES)} ]')


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(params=["memory", pytest.param("slurm", marks=pytest.mark.lab(*PROGRAMS))])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "memory":
        yield Memory()
        return
    made = Slurm(request.getfixturevalue("lab"))
    yield made
    made.cleared()


def test_a_cordon_is_put_once_and_lifted_by_its_rollout(bench: Bench) -> None:
    async def told() -> list[Outcome]:
        it, gpu01 = bench.scheduler, node("gpu01")
        first = await it.cordon(gpu01, OURS, WHY)
        again = await it.cordon(gpu01, OURS, WHY)
        return [first, again, await it.cordoned(gpu01, OURS)]

    assert [status(each) for each in done(told())] == [0, 0, 0]
    assert bench.reason("gpu01") == f"muster {OURS}: {WHY}"
    assert status(done(bench.scheduler.uncordon(node("gpu01"), OURS))) == 0
    assert bench.reason("gpu01") == ""
    assert status(done(bench.scheduler.cordoned(node("gpu01"), OURS))) != 0


def test_a_node_that_a_person_drained_is_refused_and_left_as_it_is(bench: Bench) -> None:
    bench.drain_by_hand("gpu02", "fan 3 is loud")
    refused = done(bench.scheduler.cordon(node("gpu02"), OURS, WHY))
    assert status(refused) != 0
    assert "fan 3 is loud" in said(refused)
    assert status(done(bench.scheduler.uncordon(node("gpu02"), OURS))) == 0
    assert bench.reason("gpu02") == "fan 3 is loud"


def test_a_person_who_drains_over_our_cordon_has_the_node(bench: Bench) -> None:
    assert status(done(bench.scheduler.cordon(node("gpu01"), OURS, WHY))) == 0
    bench.drain_by_hand("gpu01", "mine now")
    taken = done(bench.scheduler.cordoned(node("gpu01"), OURS))
    assert status(taken) != 0
    assert "mine now" in said(taken)
    lifted = done(bench.scheduler.uncordon(node("gpu01"), OURS))
    assert status(lifted) == 0
    assert "mine now" in said(lifted)
    assert bench.reason("gpu01") == "mine now"


def test_a_cordon_that_a_person_lifted_stands_no_more(bench: Bench) -> None:
    assert status(done(bench.scheduler.cordon(node("gpu03"), OURS, WHY))) == 0
    bench.resume_by_hand("gpu03")
    assert status(done(bench.scheduler.cordoned(node("gpu03"), OURS))) != 0
    assert status(done(bench.scheduler.uncordon(node("gpu03"), OURS))) == 0


def test_the_cordon_of_another_rollout_is_not_ours(bench: Bench) -> None:
    assert status(done(bench.scheduler.cordon(node("gpu01"), OTHER, WHY))) == 0
    assert status(done(bench.scheduler.cordon(node("gpu01"), OURS, WHY))) != 0
    assert status(done(bench.scheduler.uncordon(node("gpu01"), OURS))) == 0
    assert bench.reason("gpu01") == f"muster {OTHER}: {WHY}"
    assert status(done(bench.scheduler.cordon(node("gpu01"), OURS, WHY, over=OTHER))) == 0
    assert bench.reason("gpu01") == f"muster {OURS}: {WHY}"
    bench.drain_by_hand("gpu02", "fan 3 is loud")
    assert status(done(bench.scheduler.cordon(node("gpu02"), OURS, WHY, over=OTHER))) != 0


def test_a_job_holds_each_of_its_nodes_and_one_node_speaks_for_it(bench: Bench) -> None:
    job_id = bench.run_job("gpu01", "gpu02")

    async def told() -> tuple[list[tuple[Job, ...] | Outcome], list[Gang | Unreachable]]:
        it = bench.scheduler
        on = [await it.jobs(node(name)) for name in NODES]
        (job,) = on[0] if isinstance(on[0], tuple) else ()
        gangs = [await it.gang(node("gpu01"), job, OURS)]
        await it.cordon(node("gpu02"), OURS, WHY)
        gangs += [await it.gang(node(name), job, OURS) for name in ("gpu01", "gpu02")]
        await it.cordon(node("gpu01"), OURS, WHY)
        gangs += [await it.gang(node(name), job, OURS) for name in ("gpu01", "gpu02")]
        return on, gangs

    on, gangs = done(told())
    assert [[job.job_id for job in jobs] if isinstance(jobs, tuple) else jobs for jobs in on] == [
        [job_id],
        [job_id],
        [],
        [],
    ]
    assert gangs == [
        Gang(first=False, cordoned=0, size=2), Gang(first=False, cordoned=1, size=2), Gang(first=True, cordoned=1, size=2),
        Gang(first=True, cordoned=2, size=2), Gang(first=False, cordoned=2, size=2),
    ]  # fmt: skip


def gone(bench: Bench, name: str) -> None:
    async def wait() -> None:
        while await bench.scheduler.jobs(node(name)) != ():  # noqa: ASYNC110 - the scheduler tells nobody
            await asyncio.sleep(0.2)

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await wait()

    done(bounded())


def test_a_requeued_job_leaves_its_nodes_and_waits(bench: Bench) -> None:
    job_id = bench.run_job("gpu01", "gpu03")
    assert status(done(bench.scheduler.tell(SignalJob(job_id, "B:USR1")))) == 0
    assert status(done(bench.scheduler.tell(RequeueJob(job_id)))) == 0
    gone(bench, "gpu01")
    gone(bench, "gpu03")
    assert bench.is_waiting(job_id)


def test_an_ended_job_leaves_its_nodes_for_good(bench: Bench) -> None:
    job_id = bench.run_job("gpu02")
    assert status(done(bench.scheduler.tell(EndJob(job_id)))) == 0
    gone(bench, "gpu02")
    assert not bench.is_waiting(job_id)
    assert status(done(bench.scheduler.tell(RequeueJob("999999")))) != 0


ASKED: tuple[Callable[[Scheduler, Node], Awaitable[object]], ...] = (
    lambda it, on: it.jobs(on),
    lambda it, on: it.cordon(on, OURS, WHY),
    lambda it, on: it.cordoned(on, OURS),
    lambda it, on: it.uncordon(on, OURS),
    lambda it, on: it.gang(on, Job("1", "train", ("gpu01",)), OURS),
)


async def each(it: Scheduler, on: Node) -> list[object]:
    return [await ask(it, on) for ask in ASKED]


def test_a_node_that_the_scheduler_does_not_know_is_neither_idle_nor_ours(bench: Bench) -> None:
    found = done(each(bench.scheduler, node("login1")))
    assert [isinstance(answer, Unreachable) and answer.kind == "name" for answer in found] == [True] * len(ASKED)


def test_a_scheduler_that_does_not_answer_is_a_wait(bench: Bench) -> None:
    found = done(each(bench.silenced(), node("gpu01")))
    assert [isinstance(answer, Unreachable) and answer.kind == "scheduler" for answer in found] == [True] * len(ASKED)


class Counting:
    """A transport that counts the commands by their first words."""

    def __init__(self, inner: LocalTransport) -> None:
        self._inner = inner
        self.commands: list[str] = []

    async def run(self, node: Node, command: Command) -> Outcome:
        self.commands.append(" ".join(command.argv[4:6]))
        return await self._inner.run(node, command)

    async def close(self) -> None:
        return None


@pytest.mark.lab(*PROGRAMS)
def test_what_many_nodes_ask_at_one_time_slurm_is_asked_once(lab: Cluster) -> None:
    counting = Counting(LocalTransport(environment=lab.environment))
    it = SlurmScheduler(counting)

    async def told() -> tuple[list[Outcome], list[tuple[Job, ...] | Outcome], list[Outcome]]:
        on = [node(name) for name in NODES]
        await asyncio.gather(*(it.jobs(each) for each in on))  # the names are learnt
        return (
            await asyncio.gather(*(it.cordon(each, OURS, WHY) for each in on)),
            await asyncio.gather(*(it.jobs(each) for each in on)),
            await asyncio.gather(*(it.uncordon(each, OURS) for each in on)),
        )

    drained, jobs, resumed = done(told())
    assert [status(each) for each in (*drained, *resumed)] == [0] * 2 * len(NODES)
    assert jobs == [()] * len(NODES)
    assert counting.commands.count("scontrol update") == 2
    assert counting.commands.count("squeue -a") == 2


@pytest.mark.lab(*PROGRAMS)
@pytest.mark.parametrize("returns", [0, 1, 2])
def test_a_restart_under_our_drain_keeps_it_ours_and_its_end_puts_the_node_back(lab: Cluster, returns: int) -> None:
    lab.set("ReturnToService", str(returns))
    bench = Slurm(lab)
    assert status(done(bench.scheduler.cordon(node("gpu04"), OURS, WHY))) == 0
    lab.restart_node("gpu04")
    assert status(done(bench.scheduler.cordoned(node("gpu04"), OURS))) == 0
    assert status(done(bench.scheduler.cordon(node("gpu04"), OURS, WHY))) == 0
    assert status(done(bench.scheduler.uncordon(node("gpu04"), OURS))) == 0
    lab.until("sinfo -h -n gpu04 -o %T | grep -qx idle")
