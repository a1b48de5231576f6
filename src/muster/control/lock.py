"""Who carries the rollouts of a store on this machine: one process at a time, said by a lock file beside the store.

The lock is the kernel's (flock), so it ends with its holder however that dies; the words in the file only say who it is and mean nothing
without the lock. It does not guard the store (SQLite does) nor the nodes (their leases do): it keeps two loops from taking each other's runs.
"""

import fcntl
import json
import os
import socket
from pathlib import Path

from muster.model.errors import StoreBroken
from muster.model.frozen import dataclass
from muster.ports import Clock

_TRIES = 100
"""A reader holds the lock shared for some microseconds while it looks; so often it may come between."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """The process that holds the lock: `since` is RFC 3339 UTC. Empty words and pid 0 when it has not written them yet."""

    pid: int
    host: str
    since: str


class CarrierLock:
    """The lock file at `path`, conventionally the store's path + `.lock`. Hold on to the object: the lock lives as long as it does."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = Path(path)
        self._clock = clock
        self._file: int | None = None

    def acquire(self) -> bool:
        """Take the lock; False when another process holds it. Never waits. True when we hold it already.

        Raises StoreBroken when the file cannot be made or written.
        """
        if self._file is not None:
            return True
        file = self._opened()
        if not _taken(file):
            os.close(file)
            return False
        self._file = file
        self._say(file)
        return True

    def holder(self) -> Carrier | None:
        """Who holds the lock now, in this or another process; None when nobody does."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return None if _free(file) else _read(file)
        finally:
            os.close(file)

    def release(self) -> None:
        """Give the lock back; nothing when we do not hold it. The file stays: removing it would let two processes lock two files."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreBroken(
                f"{self._path}: {error.strerror}", hint="the folder of the store must be there and be writable for you"
            ) from error

    def _say(self, file: int) -> None:
        since = self._clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        words = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
        os.ftruncate(file, 0)
        os.pwrite(file, words.encode(), 0)


def _taken(file: int) -> bool:
    for _ in range(_TRIES):
        if _flock(file, fcntl.LOCK_EX):
            return True
        if not _flock(file, fcntl.LOCK_SH):
            return False
        # Readers alone stand in the way, for microseconds.
        fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _free(file: int) -> bool:
    return _flock(file, fcntl.LOCK_SH)


def _flock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(file: int) -> Carrier:
    try:
        words = json.loads(os.pread(file, 4096, 0))
        return Carrier(int(words["pid"]), str(words["host"]), str(words["since"]))
    except (ValueError, KeyError, TypeError):
        return Carrier(0, "", "")  # it holds the lock and is about to write
