"""The contract of `ports.Engine`: every implementation below passes every test, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from muster.discovery import discover
from muster.model.phase import Phase
from muster.model.run import RolloutState
from muster.ports import Clock, Engine, Store
from tests.support.memory_store import MemoryStore
from tests.support.time import StillClock
from tests.support.values import T0, inline, plan, record, rollout, run

OnFault = Callable[[str, Exception], None]

_BACKENDS = discover("muster.backends.engine", "BACKEND")

IMPLEMENTATIONS: Mapping[str, Callable[[Store, Clock, OnFault], Engine]] = dict(_BACKENDS)  # type: ignore[arg-type]


class Bench:
    """A rollout of `nodes` runs, an engine over it, and what was seen of it."""

    def __init__(self, make: Callable[[Store, Clock, OnFault], Engine], store: Store) -> None:
        self.store = store
        self.clock = StillClock()
        self.faults: list[tuple[str, float]] = []
        self.advanced: list[tuple[str, float]] = []
        self.flying: list[str] = []
        self.most = 0
        self.betweens: list[float] = []
        self.engine = make(store, self.clock, lambda run_id, _: self.faults.append((run_id, self.clock.monotonic())))

    def begin(self, nodes: int, *, released: bool = True) -> list[str]:
        names = tuple(f"n{number:03d}" for number in range(nodes))
        proposal = plan(nodes=names)
        inline(self.store.save_plan(proposal))
        runs = [run(name, released=released) for name in names]
        inline(self.store.begin(rollout(proposal.id), runs, record()))
        return [each.run_id for each in runs]

    async def next_phase(self, run_id: str, claim: int, *, phase: Phase = Phase.DONE, wake_s: float = 0) -> None:
        now = await self.store.run(run_id)
        wake = self.clock.now() + timedelta(seconds=wake_s)
        await self.store.record(replace(now, claim=claim, phase=phase, wake_at=wake), [record("advanced")])

    def seen(self, work: Callable[[str, int], Awaitable[None]]) -> Callable[[str, int], Awaitable[None]]:
        async def advance(run_id: str, claim: int) -> None:
            assert run_id not in self.flying, "a run was advanced twice at a time"
            self.flying.append(run_id)
            self.advanced.append((run_id, self.clock.monotonic()))
            self.most = max(self.most, len(self.flying))
            try:
                await work(run_id, claim)
            finally:
                self.flying.remove(run_id)

        return advance

    async def until_ended(self) -> bool:
        self.betweens.append(self.clock.monotonic())
        return not all(each.ended for each in await self.store.runs("rollout-1"))


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def bench(request: pytest.FixtureRequest, covers: Callable[[str, str], None]) -> Iterator[Bench]:
    covers("Engine", request.param)
    yield Bench(IMPLEMENTATIONS[request.param], MemoryStore())


def test_every_due_run_is_advanced_under_its_claim_until_nothing_is_left(bench: Bench) -> None:
    runs = bench.begin(100)
    claims: list[int] = []

    async def work(run_id: str, claim: int) -> None:
        claims.append(claim)
        await bench.next_phase(run_id, claim)

    asyncio.run(bench.engine.serve(bench.seen(work), bench.until_ended))
    assert sorted(run_id for run_id, _ in bench.advanced) == runs
    assert claims == [1] * 100


def test_the_number_of_advances_at_once_is_bounded(bench: Bench) -> None:
    bench.begin(100)

    async def work(run_id: str, claim: int) -> None:
        await bench.clock.sleep(3)
        await bench.next_phase(run_id, claim)

    asyncio.run(bench.engine.serve(bench.seen(work), bench.until_ended))
    assert bench.most == 32
    assert 12 <= bench.clock.monotonic() < 13


def test_a_run_is_advanced_again_when_it_wakes_and_not_before(bench: Bench) -> None:
    (only,) = bench.begin(1)
    steps = [(Phase.LEASE_REQUIRED, 0.25), (Phase.FETCH_REQUIRED, 90.0), (Phase.DONE, 0.0)]

    async def work(run_id: str, claim: int) -> None:
        phase, wake_s = steps[claim - 1]
        await bench.next_phase(run_id, claim, phase=phase, wake_s=wake_s)

    asyncio.run(bench.engine.serve(bench.seen(work), bench.until_ended))
    times = [at for _, at in bench.advanced]
    assert [run_id for run_id, _ in bench.advanced] == [only] * 3
    assert times == pytest.approx([0, 0.25, 90.25], abs=0.05)
    assert times[1] >= 0.25
    assert times[2] >= 90.25


def test_between_is_asked_at_least_every_second_however_long_an_advance_takes(bench: Bench) -> None:
    bench.begin(2)

    async def work(run_id: str, claim: int) -> None:
        await bench.clock.sleep(20)
        await bench.next_phase(run_id, claim)

    asyncio.run(bench.engine.serve(bench.seen(work), bench.until_ended))
    gaps = [after - before for before, after in zip(bench.betweens, bench.betweens[1:], strict=False)]
    assert max(gaps) <= 1.001
    assert len(bench.betweens) < 40


def test_what_between_releases_begins_at_once(bench: Bench) -> None:
    runs = bench.begin(2, released=False)

    async def between() -> bool:
        if bench.clock.monotonic() >= 3:
            await bench.store.release(runs, bench.clock.now(), record("released"))
        return await bench.until_ended()

    asyncio.run(bench.engine.serve(bench.seen(bench.next_phase), between))
    assert [at for _, at in bench.advanced] == pytest.approx([3, 3], abs=0.05)


def test_one_long_advance_holds_up_no_other_run(bench: Bench) -> None:
    runs = bench.begin(3)

    async def work(run_id: str, claim: int) -> None:
        if run_id == runs[0]:
            await bench.clock.sleep(50)
        more = claim < 10 and run_id != runs[0]
        await bench.next_phase(run_id, claim, phase=Phase.DRAIN_REQUIRED if more else Phase.DONE, wake_s=0.5)

    asyncio.run(bench.engine.serve(bench.seen(work), bench.until_ended))
    assert max(at for run_id, at in bench.advanced if run_id != runs[0]) < 6
    assert len(bench.advanced) == 21


def test_a_fault_of_one_run_is_told_and_stops_no_other(bench: Bench) -> None:
    runs = bench.begin(40)

    async def work(run_id: str, claim: int) -> None:
        if run_id == runs[0] and claim < 5:
            raise KeyError("a fault of ours")
        await bench.next_phase(run_id, claim)

    asyncio.run(bench.engine.serve(bench.seen(work), bench.until_ended))
    assert [run_id for run_id, _ in bench.faults] == [runs[0]] * 4
    pauses = [after - before for (_, before), (_, after) in zip(bench.faults, bench.faults[1:], strict=False)]
    assert pauses == pytest.approx([1, 2, 4], abs=1.05)
    assert pauses == sorted(pauses)
    assert all(at < 0.5 for run_id, at in bench.advanced if run_id != runs[0])


def test_many_faulty_runs_do_not_crowd_out_the_good_ones(bench: Bench) -> None:
    runs = bench.begin(400)

    async def work(run_id: str, claim: int) -> None:
        if run_id < runs[390] and claim < 3:
            raise KeyError("a fault of ours")
        await bench.next_phase(run_id, claim)

    asyncio.run(bench.engine.serve(bench.seen(work), bench.until_ended))
    assert all(at < 1 for run_id, at in bench.advanced if run_id >= runs[390])
    assert len(bench.faults) == 780


def test_runs_of_a_paused_rollout_stand_until_it_goes_on(bench: Bench) -> None:
    bench.begin(2)
    inline(bench.store.set_rollout("rollout-1", RolloutState.PAUSED, "", T0, None))

    async def between() -> bool:
        if bench.clock.monotonic() >= 5:
            await bench.store.set_rollout("rollout-1", RolloutState.RUNNING, "", bench.clock.now(), None)
        return await bench.until_ended()

    asyncio.run(bench.engine.serve(bench.seen(bench.next_phase), between))
    assert [at for _, at in bench.advanced] == pytest.approx([5, 5], abs=0.05)


def test_an_exception_of_between_ends_serving_after_what_is_in_flight(bench: Bench) -> None:
    bench.begin(1)

    async def work(run_id: str, claim: int) -> None:
        await bench.clock.sleep(4)
        await bench.next_phase(run_id, claim)

    async def between() -> bool:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        asyncio.run(bench.engine.serve(bench.seen(work), between))
    assert [each.ended for each in inline(bench.store.runs("rollout-1"))] == [True]


def test_a_stop_lets_short_advances_end_cuts_long_ones_and_begins_nothing(bench: Bench) -> None:
    runs = bench.begin(40)

    async def work(run_id: str, claim: int) -> None:
        await bench.clock.sleep(5 if run_id < runs[10] else 1000)
        await bench.next_phase(run_id, claim)

    async def stopped() -> None:
        serving = asyncio.create_task(bench.engine.serve(bench.seen(work), bench.until_ended))
        await bench.clock.sleep(2)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(stopped())
    assert [each.run_id for each in inline(bench.store.runs("rollout-1")) if each.ended] == runs[:10]
    assert bench.clock.monotonic() <= 14
    assert len(bench.advanced) == 32
    assert bench.faults == []


def test_an_advance_that_ignores_its_cancellation_does_not_hold_up_a_stop(bench: Bench) -> None:
    bench.begin(1)

    async def work(run_id: str, claim: int) -> None:
        for _ in range(3):
            try:
                await bench.clock.sleep(1000)
            except asyncio.CancelledError:
                continue

    async def stopped() -> float:
        serving = asyncio.create_task(bench.engine.serve(bench.seen(work), bench.until_ended))
        await bench.clock.sleep(2)
        serving.cancel()
        await asyncio.wait({serving})
        return bench.clock.monotonic()

    assert asyncio.run(stopped()) <= 14


def test_when_between_says_that_nothing_is_left_nothing_new_begins(bench: Bench) -> None:
    bench.begin(50)

    async def work(run_id: str, claim: int) -> None:
        await bench.clock.sleep(5)
        await bench.next_phase(run_id, claim)

    async def between() -> bool:
        return False

    asyncio.run(bench.engine.serve(bench.seen(work), between))
    assert len(bench.advanced) == 32
    assert sum(each.ended for each in inline(bench.store.runs("rollout-1"))) == 32
