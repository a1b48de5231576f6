"""What a command costs with all that it starts, also what it leaves running behind: `python -m bench.tree ARGV...`, one JSON line.

ansible's ssh processes put themselves into the background to serve the next call, where no parent's account has them. This process takes in
whatever loses its parent, ends what is left when the command has ended, and counts it. Linux only.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def main(argv: Sequence[str]) -> int:
    """Run `argv`, its output thrown away; print {status, wall_s, cpu_s}. The wall clock stops when the command itself ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.perf_counter()
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        status = child.wait()
    wall_s = time.perf_counter() - began
    while left := _children():
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with suppress(ChildProcessError):
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"status": status, "wall_s": wall_s, "cpu_s": used.ru_utime + used.ru_stime}))
    return 0


def _children() -> list[int]:
    """The processes below this one that are its own, running or ended and not yet counted."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
