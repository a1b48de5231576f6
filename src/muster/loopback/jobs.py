"""Stand-in jobs on loopback nodes: real processes that hold GPUs for a while and whose end is recorded. Not a scheduler."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from muster.loopback.tools import SYSTEM_PATH, spawn_detached
from muster.model.errors import LeaseHeld
from muster.model.frozen import dataclass

LEASE = "var/lib/muster/node/lease"

# A busy machine is no fault: for a job that cannot start at all.
_START_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is known of a job on one node. `state` is running, finished, or `killed by SIG...`; `ended_at` is seconds since 1970."""

    job: str
    node: str
    pid: int
    state: str
    ended_at: float | None


def lease_present(root: Path) -> bool:
    """Whether somebody holds a maintenance claim on the node."""
    return (root / LEASE).exists()


def refuse_if_leased(root: Path) -> None:
    """Raise LeaseHeld while the node is claimed for maintenance, as a scheduler that honours the claim would not start a job."""
    if lease_present(root):
        raise LeaseHeld(f"{root.name} is claimed for maintenance", hint="start the job after the lease is released")


def start_job(root: Path, job: str, seconds: float, gpus: tuple[int, ...] = (0, 1, 2, 3)) -> JobRecord:
    """Start job `job` on the node for `seconds`, holding `gpus`. Raises LeaseHeld while the node is claimed for maintenance.

    The job's process belongs to the node and dies with it; what records its end does not.
    """
    refuse_if_leased(root)
    record = root / f"loopback/jobs/{job}.json"
    record.unlink(missing_ok=True)
    script = str(root / "loopback/job.sh")
    held = ",".join(str(gpu) for gpu in gpus)
    spawn_detached(["/bin/sh", script, str(root), job, str(seconds), held], {"PATH": SYSTEM_PATH})
    limit = time.monotonic() + _START_LIMIT_S
    while not record.exists():
        if time.monotonic() > limit:
            raise RuntimeError(f"job {job} did not start on {root.name} within {_START_LIMIT_S:.0f} s")
        time.sleep(0.005)
    return _read(root, record)


def finish_job(root: Path, job: str) -> None:
    """Let a job that runs come to its own end now; returns when that is recorded. Does nothing for one that has ended."""
    record = root / f"loopback/jobs/{job}.json"
    with suppress(ProcessLookupError):
        os.kill(json.loads(record.read_text(encoding="utf-8"))["watched_by"], signal.SIGUSR1)
    limit = time.monotonic() + _START_LIMIT_S
    while _read(root, record).state == "running":
        if time.monotonic() > limit:
            raise RuntimeError(f"job {job} did not end on {root.name} within {_START_LIMIT_S:.0f} s")
        time.sleep(0.01)


def jobs_of(root: Path) -> tuple[JobRecord, ...]:
    """Every job that ever ran on the node, by id."""
    return tuple(_read(root, record) for record in sorted((root / "loopback/jobs").glob("*.json")))


def _read(root: Path, record: Path) -> JobRecord:
    entry = json.loads(record.read_text(encoding="utf-8"))
    return JobRecord(entry["job"], root.name, entry["pid"], entry["state"], entry["ended_at"])
