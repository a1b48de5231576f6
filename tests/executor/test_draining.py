"""Emptying a node: what the pool's policy lets be done to jobs is done once, by one node, and nothing else is done."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from muster.backends.packages.apt import BACKEND as APT
from muster.backends.system import SystemClock, UlidIds
from muster.backends.validators.builtin import BACKEND as BUILTIN
from muster.executor.draining import GATHER_S, cordon, drain, late_jobs, taken_over, uncordon
from muster.executor.scene import Result, Scene
from muster.executor.session import Session
from muster.model.audit import Record
from muster.model.command import Answered, Command, EndJob, Outcome, RequeueJob, SignalJob
from muster.model.job import Job
from muster.model.lease import Fence
from muster.model.node import Node
from muster.model.phase import Event, Phase
from muster.model.run import Run
from tests.support import values
from tests.support.memory_scheduler import MemoryScheduler

LIMIT_S = values.plan().pools[0].drain_limit_s
FIRST, SECOND = (part.node for part in values.plan().nodes[:2])


class NoNode:
    """A transport that nobody uses: all that is asked here is asked of the scheduler."""

    async def run(self, node: Node, command: Command) -> Outcome:
        raise AssertionError(command.argv)

    async def close(self) -> None:
        return


class Night:
    """Two nodes of a plan in their drain, with a scheduler in memory."""

    def __init__(self, policy: str, *, signal: str = "USR1", checkpoint_wait_s: int = 900) -> None:
        plan = values.plan()
        pools = tuple(replace(pool, drain_signal=signal, checkpoint_wait_s=checkpoint_wait_s) for pool in plan.pools)
        self.plan = replace(plan, pools=pools, nodes=tuple(replace(part, drain=policy) for part in plan.nodes))
        self.scheduler = MemoryScheduler(FIRST, SECOND)
        self.records: list[Record] = []
        self.runs = {name: replace(values.run(name), phase=Phase.DRAIN_REQUIRED) for name in (FIRST, SECOND)}

    def scene(self, name: str, waited_s: float) -> Scene:
        clock, run = SystemClock(), self.runs[name]
        node = Node(name, name, None, None, {"slurm.partition": "train"}, "test")

        async def note(key: str, record: Record) -> None:
            self.records.append(record)

        session = Session(
            transport=NoNode(), clock=clock, ids=UlidIds(clock), specs=(), node=node, run=run, plan=self.plan, fence=Fence(1, 1),
            holder="test", note=note, keep=lambda facts: None, at="2026-11-30T12:00:00.000Z",
        )  # fmt: skip
        return Scene(
            run, self.plan, self.plan.node(name).step, session, APT, self.scheduler, BUILTIN, waited_s=waited_s
        )

    def cordoned(self, *names: str) -> None:
        for name in names:
            assert values.inline(cordon(self.scene(name, 0))).event is Event.PASSED

    def drained(self, name: str, waited_s: float) -> Result:
        """One look at the drain of a node; its notes are kept, as the runner keeps them."""
        result = values.inline(drain(self.scene(name, waited_s)))
        self.runs[name] = replace(self.runs[name], notes={**self.runs[name].notes, **result.notes})
        return result

    def until_drained(self, *names: str, times: tuple[int, ...]) -> Iterator[tuple[int, str, Result]]:
        for waited_s in times:
            for name in names:
                yield waited_s, name, self.drained(name, waited_s)


@pytest.fixture
def gang() -> Night:
    night = Night("requeue")
    night.scheduler.start("llm", FIRST, SECOND)
    night.cordoned(FIRST, SECOND)
    return night


def test_a_gang_is_signalled_once_has_its_time_and_is_requeued_once(gang: Night) -> None:
    times = (1, 2, 300, 899, 902, 903)
    seen = {(at, name): result.event for at, name, result in gang.until_drained(FIRST, SECOND, times=times)}
    assert gang.scheduler.told == [SignalJob("100", "USR1"), RequeueJob("100")]
    assert seen[899, FIRST] is seen[899, SECOND] is Event.WAITING
    assert seen[903, FIRST] is seen[903, SECOND] is Event.PASSED
    kinds = [record.body["kind"] for record in gang.records if record.body["kind"] != "cordon-nodes"]
    assert kinds == ["signal-job", "requeue-job"]


def test_what_is_asked_of_a_job_is_written_down_before(gang: Night) -> None:
    gang.drained(FIRST, 1)
    (record,) = [each for each in gang.records if each.body["kind"] == "signal-job"]
    assert (record.node, record.body["job_id"], record.body["signal"]) == (FIRST, "100", "USR1")


def test_a_gang_waits_until_its_other_nodes_are_cordoned_but_not_for_ever() -> None:
    night = Night("requeue", signal="")
    night.scheduler.start("llm", FIRST, SECOND)
    night.cordoned(SECOND)
    assert "waits for the others" in night.drained(SECOND, 1).why
    assert night.scheduler.told == []
    night.drained(SECOND, GATHER_S + 900)
    assert night.scheduler.told == [RequeueJob("100")]


def test_a_job_that_cannot_be_requeued_is_waited_for(gang: Night) -> None:
    gang.scheduler.not_requeuable.add("100")
    results = [result for _, _, result in gang.until_drained(FIRST, times=(1, 902, 903, LIMIT_S - 1))]
    assert "is waited for" in results[1].why
    assert results[-1].event is Event.WAITING
    assert "no job was ended" in gang.drained(FIRST, LIMIT_S + 1).why
    assert gang.scheduler.told == [SignalJob("100", "USR1"), RequeueJob("100")]


def test_evict_ends_a_job_after_its_time() -> None:
    night = Night("evict", signal="", checkpoint_wait_s=0)
    night.scheduler.start("train", FIRST)
    night.cordoned(FIRST)
    night.drained(FIRST, 1)
    assert night.scheduler.told == [EndJob("100")]
    assert night.drained(FIRST, 2).event is Event.PASSED


def test_wait_touches_no_job_and_gives_up_at_the_limit() -> None:
    night = Night("wait")
    night.scheduler.start("train", FIRST)
    night.cordoned(FIRST)
    events = [result.event for _, _, result in night.until_drained(FIRST, times=(1, LIMIT_S - 1, LIMIT_S + 1))]
    assert events == [Event.WAITING, Event.WAITING, Event.REFUSED]
    assert night.scheduler.told == []


def test_a_process_is_told_nothing_whatever_the_policy() -> None:
    night = Night("evict", signal="", checkpoint_wait_s=0)
    night.scheduler.running.append(Job("4711", "python3", (FIRST,), is_process=True))
    night.cordoned(FIRST)
    assert "1 process on the GPUs: python3" in night.drained(FIRST, 10).why
    assert night.scheduler.told == []


def test_a_node_that_a_person_takes_over_before_the_change_is_left_out() -> None:
    night = Night("wait")
    night.cordoned(FIRST)
    night.scheduler.reasons[FIRST] = "mine now"
    assert night.drained(FIRST, 1).event is Event.REFUSED
    taken = values.inline(taken_over(night.scene(FIRST, 1)))
    assert taken is not None
    assert "mine now" in taken.why
    outcome = values.inline(uncordon(night.scene(FIRST, 1)))
    assert isinstance(outcome, Answered)
    assert (outcome.exit_status, night.scheduler.reasons[FIRST]) == (0, "mine now")


def test_a_node_that_somebody_put_back_before_the_change_is_left_out() -> None:
    night = Night("wait")
    night.cordoned(FIRST)
    del night.scheduler.reasons[FIRST]
    assert night.drained(FIRST, 1).event is Event.REFUSED


def test_in_the_middle_of_a_change_a_lost_cordon_is_put_back_and_a_persons_stays() -> None:
    night = Night("wait")
    night.cordoned(FIRST)
    del night.scheduler.reasons[FIRST]
    assert values.inline(late_jobs(night.scene(FIRST, 1))) is None
    assert night.scheduler.reasons[FIRST].startswith("muster ")
    night.scheduler.reasons[FIRST] = "mine now"
    assert values.inline(late_jobs(night.scene(FIRST, 1))) is None
    assert night.scheduler.reasons[FIRST] == "mine now"


def test_a_scheduler_that_is_away_is_waited_for_and_nothing_is_taken_for_idle() -> None:
    night = Night("requeue")
    night.cordoned(FIRST)
    night.scheduler.away = True
    result = night.drained(FIRST, 1)
    assert (result.event, result.notes) == (Event.WAITING, {"unreachable": "scheduler"})


def test_a_run_knows_its_rollout() -> None:
    night = Night("wait")
    night.cordoned(FIRST)
    run: Run = night.runs[FIRST]
    assert night.scheduler.reasons[FIRST].startswith(f"muster {run.rollout_id}: ")
