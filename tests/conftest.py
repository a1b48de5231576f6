"""Which tests may run on this machine.

A test marked `lab` needs root and real programs: `@pytest.mark.lab("sshd", "rpm")`. Without them it is skipped under
its own name. After `scripts/test` has installed the lab (`MUSTER_LAB=yes`) a missing program is a failure: a suite that
skips what it came to prove must not be green.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, settings

# No time limits: a busy machine is not a fault. No example database: the checkout may be read-only.
# The same examples at every run, so that what passed before a change and fails after it fails because of it; `scripts/test --all` looks
# further, with others each time.
settings.register_profile(
    "muster", database=None, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", settings.get_profile("muster"), derandomize=False, max_examples=500)
settings.load_profile("muster")

# A suite that a script started in the background has Ctrl-C switched off, and so would every command that its tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def lab_obstacle(programs: Sequence[str], lab: str, uid: int) -> str | None:
    """Why a lab test cannot run here, or None. `lab` is MUSTER_LAB: `no`, `yes`, or empty where nobody has said."""
    if lab == "no":
        return "lab: left out (--no-lab, or not root)"
    if uid != 0:
        return "lab: needs root"
    missing = [program for program in programs if shutil.which(program) is None]
    if missing and lab != "yes":
        return f"lab: needs {', '.join(missing)}"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("lab"):
        obstacle = lab_obstacle(mark.args, os.environ.get("MUSTER_LAB", ""), os.getuid())
        if obstacle is not None:
            pytest.skip(obstacle)
        missing = [program for program in mark.args if shutil.which(program) is None]
        if missing:
            pytest.fail(f"the lab was installed, and still lacks {', '.join(missing)}", pytrace=False)
