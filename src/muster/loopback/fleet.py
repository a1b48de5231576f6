"""A fleet of pretended nodes on one machine, without root: made, started, stopped and meddled with from here.

Everything a node does is done by the real sh, apt and dpkg in its own folder. The rest of Muster reaches it through SSH alone.
"""

import fcntl
import os
import shutil
import signal
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import asyncssh

from muster.loopback.jobs import JobRecord, finish_job, refuse_if_leased, start_job
from muster.loopback.layout import Layout, Member, policy_text, read_members, write_members
from muster.loopback.nodes import MANNERS, Ran, boot, install_shims, make_node, make_template, manner_of, run_on
from muster.loopback.observe import Truth, observe
from muster.loopback.packages import DEFAULT_RELEASES, DriverRelease, build_repository
from muster.loopback.tools import require_tools, spawn_detached
from muster.model.errors import MusterError, UnknownName

KNOBS = (
    *MANNERS,
    "disk-full",
    "slow-package",
    "slow-validation",
    "smi-hangs",
    "gpu-lost",
    "gpu-wrong",
    "gpu-slow",
)

_RACK_SIZE = 4
_LOCK_SIGN = "loopback/lock-held"

# A busy machine is no fault: these bounds are for what hangs.
_START_LIMIT_S = 120.0
_STOP_LIMIT_S = 60.0

# Takes dpkg's own two locks as another package manager would, leaves a sign when it has them, and gives them back when that is taken away.
_LOCK_HOLDER = """
import fcntl, os, sys, time
limit = time.monotonic() + float(sys.argv[1])
held = [open(path, "a") for path in sys.argv[3:]]
for lock in held: fcntl.lockf(lock, fcntl.LOCK_EX)
open(sys.argv[2], "w").close()
while os.path.exists(sys.argv[2]) and time.monotonic() < limit: time.sleep(0.05)
"""


class LoopbackFleet:
    """The fleet in one folder. Objects of this class hold no state of their own; any process may open the folder."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder.resolve())
        self.members: tuple[Member, ...] = read_members(self.layout)

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        nodes: int = 12,
        releases: Sequence[DriverRelease] = DEFAULT_RELEASES,
        initial: Mapping[str, str] | None = None,
    ) -> "LoopbackFleet":
        """Make a fleet of `nodes` nodes in `folder`, which must be absent or empty.

        Two thirds are of role train, the rest inference. `initial` gives the driver of a node by name; by default every fourth has the second
        release that builds and the others the first. Raises MissingTool where this machine lacks apt, dpkg or what they need.
        """
        require_tools()
        layout = Layout(folder.resolve())
        if layout.folder.exists() and any(layout.folder.iterdir()):
            raise MusterError(f"{layout.folder} is not empty", hint="name another folder, or remove this one")
        members = _members(nodes, releases, initial or {})
        layout.nodes.mkdir(parents=True)
        layout.folder.chmod(0o700)
        repository = build_repository(layout.repository, releases)
        install_shims(layout.shims)
        _make_keys(layout, members)
        templates = layout.folder / "templates"
        by_version = {release.version: release for release in releases}
        for version in dict.fromkeys(member.driver for member in members):
            make_template(templates / version, layout.shims, repository, by_version[version])
        for member in members:
            make_node(templates / member.driver, layout.node(member.name), layout.shims, repository)
        shutil.rmtree(templates)
        wanted = [release.version for release in releases if release.builds][-1]
        layout.policy.write_text(policy_text(wanted), encoding="utf-8")
        write_members(layout, members)
        return cls(folder)

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names, in order."""
        return tuple(member.name for member in self.members)

    def node_root(self, name: str) -> Path:
        """The folder that the node takes for its root. Raises UnknownName."""
        if name not in self.names:
            raise UnknownName(f"no loopback node is called {name}", hint=f"the nodes are {', '.join(self.names)}")
        return self.layout.node(name)

    def start(self) -> None:
        """Start the server as a process of its own and wait until every node answers; does nothing where one runs already."""
        if self.server_pid() is not None:
            return
        # What a finished server left is kept for its ports, but must not be taken for this one's sign.
        began = self._ready_at()
        argv = [sys.executable, "-m", "muster.loopback.server", str(self.layout.folder)]
        spawn_detached(argv, os.environ, self.layout.log)
        limit = time.monotonic() + _START_LIMIT_S
        was_seen = False
        while self._ready_at() in (0, began):
            is_there = self.server_pid() is not None
            if (was_seen and not is_there) or time.monotonic() > limit:
                raise MusterError(f"the loopback server did not start; its last words: {self._last_words()}")
            was_seen = is_there
            time.sleep(0.02)

    def _ready_at(self) -> int:
        """When the server's sign was written, 0 while there is none: a server that starts takes the last one's away."""
        try:
            return self.layout.ready.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def stop(self) -> None:
        """End the server and everything that runs on the nodes. Does nothing where no server runs."""
        pid = self.server_pid()
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        limit = time.monotonic() + _STOP_LIMIT_S
        while self.server_pid() is not None:
            if time.monotonic() > limit:
                raise MusterError(f"the loopback server (process {pid}) did not stop within {_STOP_LIMIT_S:.0f} s")
            time.sleep(0.02)

    def server_pid(self) -> int | None:
        """The server's process id, None when none serves this folder. The lock it holds is asked, since process ids are used again."""
        if not self.layout.lock.exists():
            return None
        # struct flock of 64-bit Linux: type, whence, start, length, pid. Asking takes nothing, so it cannot get in a server's way.
        form = "hhqqi4x"
        with self.layout.lock.open("rb") as handle:
            asked = struct.pack(form, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(form, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else int(pid)

    def run(self, name: str, command: str, *, stdin: str = "") -> Ran:
        """Run `command` on the node as SSH would, without SSH."""
        return run_on(self.node_root(name), self.layout.shims, command, stdin=stdin)

    def boot(self, name: str) -> None:
        """Boot the node where no server runs to do it; kills nothing."""
        boot(self.node_root(name), self.layout.shims)

    def power_cut(self, name: str) -> None:
        """Ask the running server to end everything on the node at once and boot it; returns before that happened."""
        self._put(name, "reboot", "power-cut\n")

    def set_knob(self, name: str, knob: str, value: str | None = "") -> None:
        """Set one of KNOBS on the node; None takes it away. Returns when the running server, if it is one of the server's, has taken it up."""
        if knob not in KNOBS:
            raise UnknownName(f"no knob is called {knob}", hint=f"the knobs are {', '.join(KNOBS)}")
        place = self.node_root(name) / "loopback/knobs" / knob
        if value is None:
            place.unlink(missing_ok=True)
        else:
            self._put(name, f"knobs/{knob}", value)
        if knob in MANNERS:
            self._await_manner(name)

    def _put(self, name: str, place: str, text: str) -> None:
        """Write a file that the node or the server reads in one step: neither ever reads half of it."""
        fresh = self.node_root(name) / "loopback" / f"{place.replace('/', '-')}.new"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.node_root(name) / "loopback" / place)

    def _await_manner(self, name: str) -> None:
        root = self.node_root(name)
        limit = time.monotonic() + _START_LIMIT_S
        while self.server_pid() is not None and _text(root / "loopback/manner") != manner_of(root):
            if time.monotonic() > limit:
                raise MusterError(
                    f"{name} is not {manner_of(root)} after {_START_LIMIT_S:.0f} s", hint=self._last_words()
                )
            time.sleep(0.01)

    def hold_dpkg_lock(self, name: str, seconds: float) -> None:
        """Hold the node's dpkg locks, as a stray upgrade would, for `seconds` or until `release_dpkg_lock`; returns once they are held."""
        root = self.node_root(name)
        locks = [str(root / "var/lib/dpkg" / lock) for lock in ("lock-frontend", "lock")]
        sign = root / _LOCK_SIGN
        sign.unlink(missing_ok=True)
        argv = [sys.executable, "-S", "-c", _LOCK_HOLDER, str(seconds), str(sign), *locks]
        spawn_detached(argv, {"MUSTER_ROOT": str(root)})
        limit = time.monotonic() + _START_LIMIT_S
        while not sign.exists():
            if time.monotonic() > limit:
                raise MusterError(f"the dpkg locks of {name} could not be taken within {_START_LIMIT_S:.0f} s")
            time.sleep(0.01)

    def release_dpkg_lock(self, name: str) -> None:
        """Let the one who holds the node's dpkg locks give them back, within a tenth of a second."""
        (self.node_root(name) / _LOCK_SIGN).unlink(missing_ok=True)

    def start_job(self, job: str, names: Sequence[str], seconds: float) -> tuple[JobRecord, ...]:
        """Start one job over all `names`. Raises LeaseHeld, before anything started, where one of them is claimed."""
        for name in names:
            refuse_if_leased(self.node_root(name))
        return tuple(start_job(self.node_root(name), job, seconds) for name in names)

    def finish_job(self, job: str, names: Sequence[str]) -> None:
        """Let the job come to its own end now on all `names`; returns when that is recorded."""
        for name in names:
            finish_job(self.node_root(name), job)

    def truth(self) -> tuple[Truth, ...]:
        """Every node as it is now."""
        return tuple(observe(self.node_root(name)) for name in self.names)

    def _last_words(self) -> str:
        lines = self.layout.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "none"


def _text(place: Path) -> str:
    try:
        return place.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def _members(nodes: int, releases: Sequence[DriverRelease], initial: Mapping[str, str]) -> tuple[Member, ...]:
    good = [release.version for release in releases if release.builds]
    width = max(2, len(str(nodes)))
    members = []
    for index in range(nodes):
        name = f"gpu{index + 1:0{width}d}"
        default = good[1] if len(good) > 1 and index % 4 == 3 else good[0]
        role = "train" if index < max(1, nodes * 2 // 3) else "inference"
        members.append(Member(name, role, f"rack{index // _RACK_SIZE + 1}", initial.get(name, default)))
    known = {release.version for release in releases}
    for member in members:
        if member.driver not in known:
            raise UnknownName(
                f"no release {member.driver} for {member.name}", hint=f"known are {', '.join(sorted(known))}"
            )
    return tuple(members)


def _make_keys(layout: Layout, members: Sequence[Member]) -> None:
    layout.host_key("x").parent.mkdir(parents=True)
    for place in (layout.client_key, layout.wrong_host_key, *(layout.host_key(member.name) for member in members)):
        key = asyncssh.generate_private_key("ssh-ed25519", comment=place.name)
        key.write_private_key(str(place))
        place.chmod(0o600)
        key.write_public_key(str(place.with_suffix(".pub")))
