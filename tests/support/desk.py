"""A user's terminal in the folder of a loopback fleet: runs the command `muster` as a process, and looks into what it left behind."""

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import chdir, closing, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from muster.cli.main import main
from muster.loopback.fleet import LoopbackFleet

LIMIT_S = 300.0
"""How long a command may take: a busy machine is no fault."""


@dataclass(frozen=True)
class Said:
    """What a command printed and how it ended."""

    exit_code: int
    out: str
    err: str

    @property
    def data(self) -> object:
        """`data` of the last JSON object on standard output."""
        return json.loads(self.out.splitlines()[-1])["data"]

    @property
    def body(self) -> Mapping[str, object]:
        """`data`, when it is an object."""
        found = self.data
        assert isinstance(found, dict)
        return found


class Desk:
    """Commands run in `folder` with the store `store` and a state folder beside it."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder
        self.store = store
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")},
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "MUSTER_STORE": str(store),
            "XDG_STATE_HOME": str(store.parent / "state"),
        }

    def muster(self, *words: str, limit_s: float = LIMIT_S, **environment: str) -> Said:
        """Run `muster WORDS` to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "muster", *words],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    def here(self, *words: str) -> Said:
        """Like `muster`, but in this process: for the many refusals, whose cost would be the start of Python."""
        out, err = io.StringIO(), io.StringIO()
        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            with chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
                code = main(words)
        finally:
            os.environ.clear()
            os.environ.update(before)
        return Said(code, out.getvalue(), err.getvalue())

    def ok(self, *words: str) -> Said:
        """Run a command that must end with 0."""
        said = self.muster(*words)
        assert said.exit_code == 0, said.err + said.out[-2000:]
        return said

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start `muster WORDS` and go on."""
        return subprocess.Popen(
            [sys.executable, "-m", "muster", *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def planned(self, *words: str) -> str:
        """Plan and approve; the plan's id."""
        plan = str(self.ok("plan", *words, "--json").body["id"])
        self.ok("plans", "approve", plan)
        return plan

    def runs(self) -> dict[str, dict[str, object]]:
        """The rows of the last rollout's runs by node, read from the store itself."""
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as on:
            on.row_factory = sqlite3.Row
            last = "SELECT rollout_id FROM rollouts ORDER BY serial DESC LIMIT 1"
            return {row["node"]: dict(row) for row in on.execute(f"SELECT * FROM runs WHERE rollout_id = ({last})")}
        return {}

    def waiting(self, node: str) -> str:
        """What the node waits for in the last rollout; empty when it does not."""
        return str(self.runs().get(node, {}).get("waiting", ""))

    def copy_store(self, place: Path) -> None:
        """A copy of the store as it is now, whole, whoever has it open."""
        with closing(sqlite3.connect(self.store)) as here, closing(sqlite3.connect(place)) as there:
            here.backup(there)

    def phases(self) -> dict[str, str]:
        """The phase of each node in the last rollout."""
        return {node: str(row["phase"]) for node, row in self.runs().items()}

    def carrier(self) -> int | None:
        """The process that carries this store's rollouts, by the kernel's list of locks; None when nobody does."""
        lock = Path(f"{self.store}.lock")
        if not lock.exists():
            return None
        inode = lock.stat().st_ino
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1:2] == ["FLOCK"] and "WRITE" in words and words[-3].endswith(f":{inode}"):
                return int(words[-4])
        return None

    def kill_carrier(self) -> int | None:
        """SIGKILL to the carrier, waited for; its process id, None when there was none."""
        pid = self.carrier()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            until(lambda: self.carrier() is None)
        return pid


def until(holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait, with a bound, for what other processes do."""
    limit = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.01)


def make_fleet(folder: Path, drivers: Mapping[str, str], words: Mapping[str, str] | None = None) -> LoopbackFleet:
    """A started fleet with these nodes and drivers; `words` are put in place of words of its policy."""
    fleet = LoopbackFleet.create(folder, nodes=len(drivers), initial=drivers)
    text = fleet.layout.policy.read_text(encoding="utf-8").replace("canary: 1s", "canary: 0s")
    text = text.replace("concurrency: 12\n", "concurrency: 12\n  connect_timeout: 2m\n")
    fleet.layout.policy.write_text(text, encoding="utf-8")
    change_policy(fleet, words or {})
    fleet.start()
    return fleet


def change_policy(fleet: LoopbackFleet, words: Mapping[str, str]) -> None:
    """Put words of the policy in place of others, all of which must be there."""
    text = fleet.layout.policy.read_text(encoding="utf-8")
    for old, new in words.items():
        assert old in text
        text = text.replace(old, new)
    fleet.layout.policy.write_text(text, encoding="utf-8")
