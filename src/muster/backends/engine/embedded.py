"""The engine in this process: it sweeps the store for due runs and advances a bounded number of them side by side on one event loop.

It decides nothing about nodes and keeps nothing that a restart would miss: what is due stands in the store. After a fault of an advance the
run waits a while (in memory only: a restart tries it at once).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import field

from muster.model.frozen import dataclass
from muster.ports import Clock, Engine, Store

AT_ONCE = 32
"""Advances side by side. Each may hold one SSH channel; a laptop and a bastion bear this many without tuning."""

SWEEP_S = 1.0
"""The longest time between two sweeps: what another process wrote (a pause, a release, an approval) is seen within it."""

PACE_S = 0.02
_WORK_SHARE = 4.0
"""The shortest pause between two sweeps, and how many times as long as the sweep itself it is: however large the fleet and however much
`between` has to look at, four fifths of the time are left for advancing."""

GRACE_S = 10.0
"""How long a stop waits for advances in flight; cut off later than that they are repeated, which every advance must bear anyway."""

_CUT_S = 1.0
"""How long a cut-off advance gets to clean up."""

_BACK_OFF_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""The wait after the first, second, ... fault of a run in a row; the last one is for all that follow."""

_AHEAD = 32
"""A sweep takes this many times AT_ONCE, so that not every advance costs a sweep."""

OnFault = Callable[[str, Exception], None]
Advance = Callable[[str, int], Awaitable[None]]
Between = Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class _Faulty:
    faults: int = 0
    until: float = 0.0


@dataclass(slots=True)
class _Serving:
    """What one `serve` has in its hands."""

    advance: Advance
    flying: dict[asyncio.Task[None], str] = field(default_factory=dict)
    waiting: deque[str] = field(default_factory=deque)
    faulty: dict[str, _Faulty] = field(default_factory=dict)


class EmbeddedEngine:
    """`ports.Engine` in process.

    An exception of one run's advance (or claim) is handed to `on_fault(run_id, error)`, which must not raise, and stops no other run; that
    run is tried again after a growing pause of at most 60 s. An exception of `between`, or of the store while looking, ends `serve`. A
    cancelled `serve` begins nothing more, gives what is in flight `grace_s` seconds, then cancels it.
    """

    def __init__(
        self, store: Store, clock: Clock, on_fault: OnFault, *, at_once: int = AT_ONCE, grace_s: float = GRACE_S
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_fault = on_fault
        self._at_once = at_once
        self._grace_s = grace_s

    async def serve(self, advance: Advance, between: Between) -> None:
        """See `ports.Engine.serve`."""
        serving = _Serving(advance)
        try:
            await self._loop(serving, between)
        finally:
            await self._wind_down(serving)

    async def _loop(self, serving: _Serving, between: Between) -> None:
        more = True
        while True:
            began = self._clock.monotonic()
            if more:
                await self._sweep(serving)
            more = await between()
            if not more:
                serving.waiting.clear()  # nothing new; what is in flight ends, and `between` is asked again after it
                if not serving.flying:
                    return
            now = self._clock.monotonic()
            pace = min(SWEEP_S, max(PACE_S, _WORK_SHARE * (now - began)))
            await self._carry(serving, now + pace, now + (await self._pause(serving) if more else SWEEP_S))

    async def _sweep(self, serving: _Serving) -> None:
        busy = set(serving.flying.values())
        held = self._held(serving)
        # Those in flight or held back are due as well, and longest: they must not crowd out the others.
        limit = self._at_once * _AHEAD + len(busy) + len(held)
        due = await self._store.due(self._clock.now(), limit)
        serving.waiting = deque(run_id for run_id in due if run_id not in busy and run_id not in held)
        self._start(serving)

    def _start(self, serving: _Serving) -> None:
        while serving.waiting and len(serving.flying) < self._at_once:
            run_id = serving.waiting.popleft()
            serving.flying[asyncio.create_task(self._one(serving, run_id), name=run_id)] = run_id

    async def _one(self, serving: _Serving, run_id: str) -> None:
        await serving.advance(run_id, await self._store.claim(run_id))

    async def _carry(self, serving: _Serving, soonest: float, until: float) -> None:
        """Carry what was swept until the next sweep: at `until`, or from `soonest` on as soon as something ended and nothing waits to begin."""
        while (left := max(until, soonest) - self._clock.monotonic()) > 0:
            if self._land(serving, await self._wait(set(serving.flying), left)):
                self._start(serving)
                if not serving.waiting:
                    until = soonest

    async def _pause(self, serving: _Serving) -> float:
        """How long nothing new can be due, at most SWEEP_S; `between` may just have released some."""
        busy = set(serving.flying.values()) | self._held(serving)
        now = self._clock.now()
        if serving.waiting:
            return SWEEP_S  # it ends earlier, when they are all begun
        if busy.issuperset(await self._store.due(now, len(busy) + 1)):
            wake = await self._store.next_wake(now)
            return SWEEP_S if wake is None else min(SWEEP_S, (wake - now).total_seconds())
        return 0.0

    async def _wait(self, flying: set[asyncio.Task[None]], seconds: float) -> set[asyncio.Task[None]]:
        """Those of `flying` that ended, as soon as one did, or none after `seconds`."""
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            ended, _ = await asyncio.wait({timer, *flying}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        return {task for task in ended if task is not timer}

    def _land(self, serving: _Serving, ended: set[asyncio.Task[None]]) -> int:
        for task in sorted(ended, key=lambda task: serving.flying[task]):
            run_id = serving.flying.pop(task)
            error = RuntimeError("the advance was cancelled from within") if task.cancelled() else task.exception()
            if error is None:
                serving.faulty.pop(run_id, None)
            elif isinstance(error, Exception):
                self._hold(serving, run_id)
                self._on_fault(run_id, error)
            else:
                raise error
        return len(ended)

    def _held(self, serving: _Serving) -> set[str]:
        now = self._clock.monotonic()
        return {run_id for run_id, fault in serving.faulty.items() if fault.until > now}

    def _hold(self, serving: _Serving, run_id: str) -> None:
        fault = serving.faulty.setdefault(run_id, _Faulty())
        fault.until = self._clock.monotonic() + _BACK_OFF_S[min(fault.faults, len(_BACK_OFF_S) - 1)]
        fault.faults += 1

    async def _wind_down(self, serving: _Serving) -> None:
        try:
            await self._settle(serving, self._grace_s)
        finally:
            for task in serving.flying:
                task.cancel()
            await self._settle(serving, _CUT_S)

    async def _settle(self, serving: _Serving, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while serving.flying and (left := until - self._clock.monotonic()) > 0:
            ended = await self._wait(set(serving.flying), left)
            for task in [task for task in ended if task.cancelled()]:
                del serving.flying[task]  # by us: no fault of the run
                ended.remove(task)
            self._land(serving, ended)


BACKEND: Callable[[Store, Clock, OnFault], Engine] = EmbeddedEngine
