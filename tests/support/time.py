"""A clock whose time stands still until everybody waits for it, for tests of what waits."""

import asyncio
import heapq
from datetime import datetime, timedelta

from tests.support.values import T0


class StillClock:
    """`ports.Clock` in virtual time: it jumps to the next sleeper's hour once the event loop has nothing else to do."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0
        self._ticking = False

    def now(self) -> datetime:
        return T0 + timedelta(seconds=self._now_s)

    def monotonic(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now_s + max(0.0, seconds), self._count, woken))
        if not self._ticking:
            self._ticking = True
            loop.call_soon(self._tick, loop, 0)
        await woken

    def _tick(self, loop: asyncio.AbstractEventLoop, idle: int) -> None:
        # The loop is idle when this callback is the only one ready, some rounds in a row.
        idle = idle + 1 if not loop._ready else 0  # type: ignore[attr-defined]
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        if idle > 2 and self._sleepers:
            at, _, woken = heapq.heappop(self._sleepers)
            self._now_s, idle = max(self._now_s, at), 0
            woken.set_result(None)
        self._ticking = bool(self._sleepers)
        if self._ticking:
            loop.call_soon(self._tick, loop, idle)
