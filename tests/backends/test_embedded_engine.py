"""The embedded engine on the embedded store, in real time."""

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from muster.backends.engine.embedded import EmbeddedEngine
from muster.backends.store.sqlite import open_store
from muster.backends.system import SystemClock
from muster.model import audit
from muster.model.errors import StoreBroken
from muster.model.phase import Phase
from muster.ports import Store
from tests.support.values import inline, plan, record, rollout, run

WAY = (Phase.LEASE_REQUIRED, Phase.FETCH_REQUIRED, Phase.DONE)


class Carried:
    """Twenty runs of three phases over a store file."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.faults: list[Exception] = []
        self.clock = SystemClock()
        self.engine = EmbeddedEngine(store, self.clock, lambda _, error: self.faults.append(error), grace_s=2)
        names = tuple(f"n{number:02d}" for number in range(20))
        proposal = plan(nodes=names)
        inline(store.save_plan(proposal))
        inline(store.begin(rollout(proposal.id), [run(name) for name in names], record("began")))

    async def advance(self, run_id: str, claim: int) -> None:
        now = await self.store.run(run_id)
        await self.clock.sleep(0.01)
        phase = WAY[now.attempt]
        after = replace(now, phase=phase, attempt=now.attempt + 1, wake_at=self.clock.now())
        await self.store.record(after, [record("phase", to=phase.value, text="x" * 500)])

    async def left(self) -> bool:
        return not all(each.ended for each in await self.store.runs("rollout-1"))

    def whole(self) -> None:
        entries = inline(self.store.audit("rollout-1"))
        assert len(entries) == 61
        assert audit.faults(entries, head=entries[-1].hash) == ()


@pytest.fixture
def carried(tmp_path: Path) -> Carried:
    return Carried(open_store(str(tmp_path / "muster.db")))


def test_every_run_goes_its_whole_way_once(carried: Carried) -> None:
    asyncio.run(carried.engine.serve(carried.advance, carried.left))
    assert carried.faults == []
    carried.whole()
    inline(carried.store.close())


def test_a_full_disk_is_a_fault_of_each_run_and_they_go_on_when_there_is_room(carried: Carried) -> None:
    def room(pages: int) -> None:
        carried.store._connection.execute(f"PRAGMA max_page_count={pages}")  # type: ignore[attr-defined]

    async def left() -> bool:
        if carried.faults:
            room(100_000)
        return await carried.left()

    room(25)
    asyncio.run(carried.engine.serve(carried.advance, left))
    assert carried.faults
    assert all(isinstance(error, StoreBroken) and "disk is full" in error.message for error in carried.faults)
    carried.whole()
    inline(carried.store.close())


def test_a_terminated_process_ends_cleanly_and_another_goes_on(carried: Carried) -> None:
    async def carrier() -> None:
        task = asyncio.create_task(carried.engine.serve(carried.advance, carried.left))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        while len(await carried.store.audit("rollout-1")) < 10:
            await carried.clock.sleep(0.005)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(carrier())
    assert carried.faults == []
    assert inline(carried.left())
    asyncio.run(carried.engine.serve(carried.advance, carried.left))
    carried.whole()
    inline(carried.store.close())
