"""Starts the process that carries rollouts, detached from the terminal that asked for it."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path


def spawn_detached(argv: Sequence[str], log: Path) -> Callable[[], bool]:
    """Start `argv` in a session of its own, its words appended to `log` (mode 0600). Waits for nothing; returns what says whether it runs."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        started = subprocess.Popen(  # noqa: S603 - our own argv, no shell
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(file)
    return lambda: started.poll() is None
