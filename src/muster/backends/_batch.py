"""Questions that are asked at the same time, put to a scheduler as one: a thousand nodes that look again cost it one answer, not a thousand.

Nobody gets an answer that is older than their question: what is asked while a command runs goes into the next one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

MOST = 500
"""How many names one command carries: a line of arguments has its limits."""


class Batch(Generic[T]):
    """Answers by name from `ask`, which is given some names and answers each; it runs at most once at a time."""

    def __init__(self, ask: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]]) -> None:
        self._ask = ask
        self._waiting: dict[str, asyncio.Future[T]] = {}
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, name: str) -> T:
        """The answer for `name`. What `ask` raises is raised for everybody who was asked for with it; KeyError for a name it leaves out."""
        if name not in self._waiting:
            self._waiting[name] = asyncio.get_running_loop().create_future()
        answer = self._waiting[name]
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await asyncio.shield(answer)

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # whoever asks in the same turn of the loop comes along
            while self._waiting:
                names = tuple(self._waiting)[:MOST]
                asked = {name: self._waiting.pop(name) for name in names}
                await self._answer(asked)
        finally:
            self._running = None

    async def _answer(self, asked: Mapping[str, asyncio.Future[T]]) -> None:
        try:
            found = await self._ask(tuple(asked))
        except Exception as error:  # noqa: BLE001 - it belongs to those who asked, and they get it
            for future in asked.values():
                future.set_exception(error)
                future.exception()  # it may be that nobody waits any more
            return
        for name, future in asked.items():
            if name in found:
                future.set_result(found[name])
            else:
                future.set_exception(KeyError(name))
                future.exception()
