"""Act 1 of the demo: the main job on twelve pretended nodes, through the same commands that people type.

It shows the mixed fleet and the plan, a bad driver that stops itself at its first canary and goes back, then the good driver to the end, with
the control plane killed (SIGKILL) in the middle. What it reports is read from the nodes themselves and from the audit log, not from what it
hoped for.
"""

import asyncio
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.control.bootstrap import carrier_lock, open_site
from muster.loopback.fleet import LoopbackFleet
from muster.loopback.observe import Truth
from muster.model.audit import Entry
from muster.model.errors import MusterError
from muster.model.frozen import dataclass
from muster.model.phase import Phase
from muster.model.run import Run

BAD, GOOD = "580.119.02", "580.126.20"
"""The driver whose module does not build on the nodes' kernel, and the one that the policy wants."""

JOB_S = 6.0
"""How long the demo's training job runs on: long enough that a drain has to wait for it."""

LIMIT_S = 600.0
"""How long one step may take before the demo gives up and says where it stood."""

_PR_SET_CHILD_SUBREAPER = 36

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What happened, as the nodes and the audit log tell it."""

    nodes: int
    versions_before: Mapping[str, int]
    versions_after: Mapping[str, int]
    exposed: int
    harmed: int
    rolled_back: int
    jobs_killed: int
    unvalidated_in_service: int
    transactions_run_twice: int
    control_plane_killed: int
    audit_holds: bool
    seconds: float
    cpu_seconds: float
    seed: str

    @property
    def is_good(self) -> bool:
        """Whether everything went as Muster promises."""
        bad_driver = self.exposed == self.rolled_back == 1 and self.harmed == 0
        nothing = self.jobs_killed == self.unvalidated_in_service == self.transactions_run_twice == 0
        return bad_driver and nothing and self.audit_holds and self.versions_after == {GOOD: self.nodes}

    def body(self) -> Mapping[str, object]:
        """The report as JSON values."""
        return {
            "nodes": self.nodes,
            "versions_before": dict(self.versions_before),
            "versions_after": dict(self.versions_after),
            "bad_driver": {"exposed": self.exposed, "harmed": self.harmed, "rolled_back": self.rolled_back},
            "jobs_killed": self.jobs_killed,
            "unvalidated_in_service": self.unvalidated_in_service,
            "transactions_run_twice": self.transactions_run_twice,
            "control_plane_killed": self.control_plane_killed,
            "audit_holds": self.audit_holds,
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "seed": self.seed,
        }


def run_demo(folder: Path, *, seed: str, say: Say) -> Report:
    """Play act 1 in `folder` (absent or empty) and report. Raises MissingTool without apt or dpkg, MusterError when a step goes wrong."""
    began = time.monotonic()
    _adopt_orphans()
    say("Twelve pretended nodes on this machine: an SSH server, a package database and an apt of its own for each.")
    fleet = LoopbackFleet.create(folder)
    fleet.start()
    try:
        return _play(_Stage(fleet, seed, say), began)
    finally:
        fleet.stop()


class _Stage:
    """The fleet with the commands of a person in front of it."""

    def __init__(self, fleet: LoopbackFleet, seed: str, say: Say) -> None:
        self.fleet = fleet
        self.folder = fleet.layout.folder
        self.store = self.folder / "muster.db"
        self.seed = seed
        self.say = say

    def muster(self, *words: str, expect: int = 0) -> str:
        """Run a command as a person would and show it. Raises MusterError when it ends otherwise than `expect`."""
        self.say(f"\n$ muster {' '.join(words)}")
        shown: list[str] = []
        for line in self._lines(words, expect):
            shown.append(line)
            if _worth_showing(line):
                self.say(f"  {line}")
        return "\n".join(shown)

    def rollout(self, rollout_id: str) -> tuple[tuple[Run, ...], tuple[Entry, ...]]:
        """The runs of a rollout and its audit log, read from the store."""

        async def read() -> tuple[tuple[Run, ...], tuple[Entry, ...]]:
            async with open_site(str(self.folder / "fleet.yaml"), str(self.store)) as site:
                return await site.store.runs(rollout_id), await site.store.audit(rollout_id)

        return asyncio.run(read())

    def _lines(self, words: Sequence[str], expect: int) -> Iterator[str]:
        argv = [sys.executable, "-m", "muster", *words]
        environment = {**os.environ, "MUSTER_FLEET": str(self.folder / "fleet.yaml"), "MUSTER_STORE": str(self.store)}
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as process:
            said: list[str] = []
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line.rstrip("\n"))
                yield said[-1]
            code = process.wait(LIMIT_S)
        if code != expect:
            last = " / ".join(said[-3:])
            raise MusterError(
                f"`muster {' '.join(words)}` ended with exit code {code}, not {expect}: {last}",
                hint=f"the folder {self.folder} is kept: look into muster.db.log and server.log there",
            )

    def plan(self, *words: str) -> str:
        """Make a plan, approve it; its id."""
        plan_id = _named(self.muster("plan", "--seed", self.seed, *words))
        self.muster("plans", "approve", plan_id, "--note", "demo")
        return plan_id


def _play(stage: _Stage, began: float) -> Report:
    fleet, say = stage.fleet, stage.say
    before = _versions(fleet.truth())
    train = [member.name for member in fleet.members if member.role == "train"][:2]
    fleet.start_job("llm-pretrain", train, JOB_S)
    say(f"A training job runs on {' and '.join(train)}. No drain may cut it short.")
    stage.muster("collect")
    stage.muster("status")
    stage.muster("check", expect=1)

    say(f"\n--- Somebody wants {BAD}. Its kernel module does not build on these nodes; nobody knows that yet.")
    stage.muster("why", "train", "--not", BAD)
    bad = stage.plan("--driver", BAD)
    bad_rollout = _named(stage.muster("apply", bad, expect=6))
    after_bad = fleet.truth()

    say(f"\n--- Now {GOOD}, which the policy names. In the middle the control plane is killed.")
    stage.muster("collect")
    good = stage.plan()
    stage.muster("apply", good, "--detach")
    _kill_in_the_middle(stage)
    good_rollout = _named(stage.muster("apply", good))

    stage.muster("collect")
    stage.muster("status")
    holds = True
    for rollout in (bad_rollout, good_rollout):
        holds = "the chain holds" in stage.muster("audit", "verify", rollout) and holds
    after = fleet.truth()
    exposed = [truth for truth in after_bad if any(change.new.startswith(BAD) for change in truth.transitions)]
    bad_runs, bad_entries = stage.rollout(bad_rollout)
    _, good_entries = stage.rollout(good_rollout)
    fleet.stop()
    return Report(
        nodes=len(fleet.names),
        versions_before=before,
        versions_after=_versions(after),
        exposed=len(exposed),
        harmed=sum(not truth.is_whole or truth.lease or truth.loaded == BAD for truth in exposed),
        rolled_back=sum(run.phase is Phase.ROLLED_BACK for run in bad_runs),
        jobs_killed=sum(truth.jobs_killed for truth in after),
        unvalidated_in_service=unvalidated((*bad_entries, *good_entries), after),
        transactions_run_twice=sum(truth.run_twice for truth in after),
        control_plane_killed=1,
        audit_holds=holds,
        seconds=time.monotonic() - began,
        cpu_seconds=_cpu_seconds(),
        seed=stage.seed,
    )


def _kill_in_the_middle(stage: _Stage) -> None:
    """SIGKILL the process that carries the rollout when about half of the nodes are through and others are at work."""
    lock = carrier_lock(stage.store)
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        truths = stage.fleet.truth()
        done = sum(truth.loaded == GOOD and not truth.lease for truth in truths)
        at_work = sum(truth.lease for truth in truths)
        holder = lock.holder()
        if done >= len(truths) // 3 and at_work and holder is not None and holder.pid:
            with suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGKILL)
            # A process that dies holds its lock until it is gone; whoever applies again must not take it for one that carries on.
            while lock.holder() == holder and time.monotonic() < limit:
                time.sleep(0.01)
            stage.say(
                f"  {done} of {len(truths)} nodes are done, {at_work} are at work: kill -9 {holder.pid}, the control plane"
            )
            return
        if done == len(truths):
            break
        time.sleep(0.05)
    raise MusterError("the rollout was through before its control plane could be killed", hint="run the demo again")


def unvalidated(entries: Sequence[Entry], truths: Sequence[Truth]) -> int:
    """Nodes that went back into service, or stand in it now, on a driver that was not validated since it was loaded. From the audit log."""
    validated: dict[str, bool] = {}
    bad: set[str] = set()
    for record in (entry.record for entry in entries if entry.record.kind == "phase"):
        left, passed = record.body.get("from"), record.body.get("event") == "passed"
        if left in ("apply-required", "rollback-required"):
            validated[record.node] = False
        elif left in ("validate-required", "rollback-validate-required") and passed:
            validated[record.node] = True
        elif left == "return-required" and passed and not validated.get(record.node, False):
            bad.add(record.node)
    bad |= {
        truth.name for truth in truths if not truth.lease and not (validated.get(truth.name, False) and truth.is_whole)
    }
    return len(bad)


def _named(said: str) -> str:
    """The plan or rollout that a command's first line names: `plan-...: what of it`."""
    return said.partition(":")[0]


def _versions(truths: Sequence[Truth]) -> Mapping[str, int]:
    return dict(sorted(Counter(truth.loaded or "none" for truth in truths).items()))


def _worth_showing(line: str) -> bool:
    """Of a rollout's many lines, those of the canaries' way back and the ends."""
    return " -> " not in line or "rollback" in line or "-> done" in line or "-> rolled-back" in line


def _adopt_orphans() -> None:
    """Make detached descendants ours when their parents end, so that their CPU time can be counted. Linux only; elsewhere nothing happens."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _cpu_seconds() -> float:
    """User and system time of this process and of all its descendants that have ended, the servers and tasks included."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@contextmanager
def demo_folder(given: Path | None, temporary: Callable[[], Path], remove: Callable[[Path], None]) -> Iterator[Path]:
    """The folder to play in: `given`, which is kept, or a temporary one, which is removed unless something went wrong."""
    folder = given if given is not None else temporary()
    yield folder
    if given is None:
        remove(folder)
