"""The real clock, ids and chance of this machine. Tests and the simulator bring their own; nothing else may ask the machine for these."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.ports import Clock


_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RANDOM_BITS = 80
_ULID_CHARS = 26


class SystemClock:
    """`ports.Clock` of this machine and its running event loop."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        # Nobody sleeps without a loop, and whoever has none is spared the half of a start that loading one is.
        await importlib.import_module("asyncio").sleep(max(0.0, seconds))


class UlidIds:
    """`ports.Ids`: `kind-ULID` (https://github.com/ulid/spec). Rising within a process, also when the clock is set back.

    `entropy(n)` gives n random bytes.
    """

    def __init__(self, clock: Clock, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._entropy = entropy
        self._last = 0
        self._process = os.getpid()

    def new(self, kind: str) -> str:
        """A new id, greater than every one before it in this process."""
        if os.getpid() != self._process:  # a forked child must not count on from its parent's number: both would
            self._last, self._process = 0, os.getpid()
        milliseconds = (self._clock.now() - _EPOCH) // timedelta(milliseconds=1)
        if milliseconds > self._last >> _RANDOM_BITS:
            self._last = (milliseconds << _RANDOM_BITS) | int.from_bytes(self._entropy(_RANDOM_BITS // 8))
        else:
            self._last += 1
        return f"{kind}-{_base32(self._last)}"


def _base32(number: int) -> str:
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(5 * (_ULID_CHARS - 1), -1, -5))


class SeededRng:
    """`ports.Rng` from one seed: the same seed, key and items give the same order, in every process and on every machine.

    The order of `items` as given plays no part; each item's place comes from SHA-256 over seed, key and item.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def shuffled(self, key: str, items: Sequence[str]) -> tuple[str, ...]:
        """`items` in the order that chance gives them under `key`."""
        begin = hashlib.sha256(json.dumps([self._seed, key]).removesuffix("]").encode())

        def place(item: str) -> tuple[bytes, str]:
            drawn = begin.copy()
            drawn.update(f", {json.dumps(item)}]".encode())
            return drawn.digest(), item

        return tuple(sorted(items, key=place))
