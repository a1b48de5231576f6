"""A process of its own that takes the carrier lock and keeps it: `python -m tests.support.lock_worker PATH`."""

import sys

from muster.backends.system import SystemClock
from muster.control.lock import CarrierLock

if __name__ == "__main__":
    lock = CarrierLock(sys.argv[1], SystemClock())
    sys.stdout.write(f"{lock.acquire()}\n")
    sys.stdout.flush()
    sys.stdin.read()
