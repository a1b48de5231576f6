"""Fifty real nodes for benchmarks, and three ways to ask them: `muster collect`, ansible with the same script, plain ssh.

Nodes and control side share this machine's cores, so a wall clock here is mostly that of fifty logins and fifty scripts, the same for all
three. The nodes' CPU is not in any figure of the control side. Needs root, sshd and ip; ansible where it is to be compared.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.harness import CommandFailedError, Sample
from muster.control.bootstrap import fact_specs
from muster.node.collect import render
from tests.support.lab import PROGRAMS, Lab, Plan, lab, obstacle

NODES = 50
_KEPT = ExitStack()
"""Lab and folders; they go with this process."""
atexit.register(_KEPT.close)

_ANSIBLE = """
[defaults]
inventory = hosts.ini
forks = 50
gathering = explicit
interpreter_python = /usr/bin/python3
[ssh_connection]
pipelining = True
ssh_args = -F {config} -o ControlMaster=auto -o ControlPersist=60s -o ControlPath={folder}/%h
"""


@dataclass(frozen=True)
class Desk:
    """Where the three are started, and the lab."""

    folder: Path
    lab: Lab


@cache
def desk() -> Desk:
    """The fifty nodes, started at the first use. Raises CommandFailedError where they cannot be."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    why = "it needs root" if os.getuid() else f"it needs {', '.join(missing)}" if missing else obstacle()
    if why:
        raise CommandFailedError(why)
    folder = Path(_KEPT.enter_context(TemporaryDirectory(prefix="muster-bench-")))
    running = _KEPT.enter_context(lab(folder / "lab", [Plan(f"gpu{number:02d}") for number in range(NODES)]))
    site = running.site(folder / "site", dict.fromkeys(running.machines, "root"))
    rows = [(spec.name, spec.command, spec.deadline_s, spec.cap_bytes) for spec in fact_specs()]
    # Not packed: ansible reads text.
    (site / "look.sh").write_text("#!/bin/sh\n" + render(rows, "0123456789abcdef", pack=False), encoding="utf-8")
    (site / "look-packed.sh").write_text(render(rows, "0123456789abcdef"), encoding="utf-8")
    (folder / "cp").mkdir()
    ansible = _ANSIBLE.format(config=running.ssh_config, folder=folder / "cp")
    (site / "ansible.cfg").write_text(ansible, encoding="utf-8")
    return Desk(site, running)


def _muster() -> tuple[str, ...]:
    return (sys.executable, "-m", "muster", "collect")


def _ansible() -> tuple[str, ...]:
    return ("ansible", "all", "-m", "script", "-a", "look.sh")


def _ssh() -> tuple[str, ...]:
    there = desk().lab
    hosts = " ".join(machine.address for machine in there.machines.values())
    return ("sh", "-c", f"for host in {hosts}; do ssh -F {there.ssh_config} root@$host true & done; wait")


WAYS = {"muster": _muster, "ansible": _ansible, "ssh true": _ssh}


@cache
def round_of(way: str, number: int) -> Sample:
    """The `number`-th run of a way; the wall and the CPU figure of a benchmark's round come out of the same run."""
    return run(way)


class Sampler:
    """A benchmark's way through the rounds: the CPU seconds or the wall clock of each."""

    def __init__(self, way: str, *, cpu: bool) -> None:
        self._way = way
        self._cpu = cpu
        self._numbers = count()

    def __call__(self) -> Sample:
        taken = round_of(self._way, next(self._numbers))
        return Sample(taken.cpu_s if self._cpu else taken.wall_s, taken.wall_s, taken.cpu_s)


def run(way: str, *more: str) -> Sample:
    """One run of a way, with `more` arguments; the value is the wall clock. Raises CommandFailedError."""
    there, argv = desk(), (*WAYS[way](), *more)
    root = Path(__file__).resolve().parents[1]
    # As installed: with the compiled form of every module in place, from the first run on, which is thrown away.
    env = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": str(there.folder / "compiled"),
        "MUSTER_STORE": str(there.folder / "muster.db"),
        "PYTHONPATH": f"{root / 'src'}:{root}",
        "ANSIBLE_CONFIG": str(there.folder / "ansible.cfg"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.tree", *argv],
        cwd=there.folder,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    if told["status"] != 0:
        raise CommandFailedError(f"exit {told['status']}: {' '.join(argv)[:80]}")
    return Sample(told["wall_s"], told["wall_s"], told["cpu_s"])


def have_ansible() -> bool:
    """Whether ansible can be compared with here."""
    return shutil.which("ansible") is not None
