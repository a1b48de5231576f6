"""A job that outlasts the pool's limit on a drained node: on the way there it is nobody's fault, on the way back it hides nobody's."""

from dataclasses import replace

import pytest

from muster.backends.packages.apt import BACKEND as APT
from muster.backends.schedulers.none import NoScheduler
from muster.backends.system import SystemClock, UlidIds
from muster.backends.validators.builtin import BACKEND as BUILTIN
from muster.executor.draining import late_jobs
from muster.executor.runner import advanced
from muster.executor.scene import Result, Scene
from muster.executor.session import Session
from muster.model.audit import Record
from muster.model.command import Answered, Command, Outcome
from muster.model.lease import Fence
from muster.model.node import Node
from muster.model.phase import Event, Phase
from muster.model.run import Run
from muster.planner.gates import failed_by_driver
from tests.support import values

PLAN = values.plan()
FAILED = {"direction": "back", "cause": "the module did not load", "failed_in": "reload-required"}


class Busy:
    """A transport to a node on which a process holds a GPU."""

    async def run(self, node: Node, command: Command) -> Outcome:
        return Answered(0, b"123, python3\n", b"")

    async def close(self) -> None:
        return


async def _unasked(key: str, record: Record) -> None:
    raise AssertionError(key)


def outlasted(run: Run) -> Result:
    clock, transport = SystemClock(), Busy()
    node = Node(run.node, run.node, None, None, {}, "test")
    session = Session(
        transport=transport, clock=clock, ids=UlidIds(clock), specs=(), node=node, run=run, plan=PLAN, fence=Fence(1, 1),
        holder="test", note=_unasked, keep=lambda facts: None, at="2026-11-30T12:00:00.000Z",
    )  # fmt: skip
    step = PLAN.node(run.node).step
    scene = Scene(run, PLAN, step, session, APT, NoScheduler(transport), BUILTIN, waited_s=1e6)
    result = values.inline(late_jobs(scene))
    assert isinstance(result, Result)
    return result


def test_a_change_given_up_for_a_late_job_does_not_count_against_the_driver() -> None:
    run = replace(values.run("n1"), phase=Phase.REBOOT_REQUIRED)
    result = outlasted(run)
    assert result.event is Event.FAILED
    assert not failed_by_driver(advanced(run, result, values.later(1)))


@pytest.mark.parametrize("phase", [Phase.ROLLBACK_RELOAD_REQUIRED, Phase.ROLLBACK_REBOOT_REQUIRED])
def test_a_late_job_on_the_way_back_hides_no_failure_of_the_driver(phase: Phase) -> None:
    run = replace(values.run("n1"), phase=phase, notes=FAILED)
    after = advanced(run, outlasted(run), values.later(1))
    assert failed_by_driver(after)
    assert after.notes["cause"] == FAILED["cause"]
