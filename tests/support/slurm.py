"""A Slurm cluster of its own on this machine: one slurmctld, four slurmd with eight pretended GPUs each, and a munge of its own.

Nothing outside its folder is touched: keys, sockets, ports and state are its own. Needs root.
"""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_ports

PROGRAMS = ("slurmctld", "slurmd", "sinfo", "scontrol", "squeue", "munged")
NODES = ("gpu01", "gpu02", "gpu03", "gpu04")

_CONF = """\
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
{nodes}
PartitionName=train Nodes=gpu[01-03] Default=YES MaxTime=INFINITE State=UP
PartitionName=batch Nodes=gpu[03-04] MaxTime=1-00:00:00 State=UP
"""
_NODE = (
    "NodeName={name} NodeAddr=127.0.0.{last} NodeHostname={host} Port={port} CPUs=16 Boards=1 SocketsPerBoard=2 CoresPerSocket=8 "
    "ThreadsPerCore=1 RealMemory=4096 Gres=gpu:h100:8 Features=h100,rack{rack} State=UNKNOWN"
)
_GRES = "AutoDetect=off\nNodeName=gpu[01-04] Name=gpu Type=h100 File={root}/dev/nvidia[0-7]\n"


class Cluster:
    """A running cluster; `environment` makes Slurm's commands ask it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {**os.environ, "SLURM_CONF": str(root / "slurm.conf"), "TZ": "Asia/Tokyo"}

    def run(self, *argv: str, seconds: int = 300) -> str:
        """What a command prints; it must succeed."""
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=seconds, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def until(self, condition: str, seconds: int = 300) -> None:
        """Wait until a condition in shell holds."""
        self.run(
            "sh",
            "-c",
            f"n=0; until {condition}; do n=$((n+1)); [ $n -lt {seconds * 5} ] || exit 1; sleep 0.2; done",
            seconds=seconds + 30,
        )

    def set(self, key: str, value: str) -> None:
        """Change a setting of slurm.conf, and have the controller read it."""
        conf = self.root / "slurm.conf"
        lines = [f"{key}={value}" if line.startswith(f"{key}=") else line for line in conf.read_text().splitlines()]
        conf.write_text("\n".join(lines) + "\n")
        self.run("scontrol", "reconfigure")

    def restart_node(self, name: str) -> None:
        """End a node's slurmd and start one that says that the machine has just booted; returns when the controller has heard of it."""
        file = self.root / "run" / f"slurmd-{name}.pid"
        pid = int(file.read_text())
        before = self.run("scontrol", "-o", "show", "node", name)
        _end(file)
        self.until(f"! kill -0 {pid} 2>/dev/null")
        self.run("slurmd", "-b", "-N", name, "-f", f"{self.root}/slurm.conf")
        started = re.search(r"SlurmdStartTime=(\S+)", before)
        assert started is not None
        self.until(f"! scontrol -o show node {name} | grep -q SlurmdStartTime={started[1]}")
        # A registration that was under way comes in late, and would make a machine of no age look as if it had booted once more.
        booted = f"$(date -d \"$(scontrol -o show node {name} | sed -n 's/.*BootTime=\\([^ ]*\\).*/\\1/p')\" +%s)"
        self.until(f"[ $(($(date +%s) - {booted})) -ge 5 ]")

    def nobody(self) -> Path:
        """A slurm.conf of a controller that does not run."""
        text = (self.root / "slurm.conf").read_text()
        port = next(line for line in text.splitlines() if line.startswith("SlurmctldPort="))
        made = self.root / "nobody.conf"
        made.write_text(text.replace(port, f"SlurmctldPort={free_ports(1)[0]}\nMessageTimeout=2"))
        return made


@contextmanager
def cluster(root: Path) -> Iterator[Cluster]:
    """A cluster under `root`, ended at the end."""
    for name in ("state", "run", "log", "dev", "munge", *(f"spool/{node}" for node in NODES)):
        (root / name).mkdir(parents=True)
    ports = free_ports(len(NODES) + 1)
    host = socket.gethostname().partition(".")[0]
    nodes = [
        _NODE.format(name=name, last=11 + n, host=host, port=ports[n + 1], rack=n // 2 + 1)
        for n, name in enumerate(NODES)
    ]
    (root / "slurm.conf").write_text(_CONF.format(root=root, ctld=ports[0], nodes="\n".join(nodes)))
    (root / "gres.conf").write_text(_GRES.format(root=root))
    (root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    for number in range(8):
        os.mknod(root / "dev" / f"nvidia{number}", 0o020600, os.makedev(1, 3))  # /dev/null's numbers
    made = Cluster(root)
    pids = root / "run"
    try:
        _start(made)
        yield made
        made.run("scancel", "--user=root")
        made.until('[ -z "$(squeue -h)" ]')
    finally:
        for file in sorted(pids.glob("*.pid"), reverse=True):
            _end(file)


def _start(made: Cluster) -> None:
    root = made.root
    key = root / "munge" / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    (root / "munge").chmod(0o711)
    made.run(
        "munged", "--force", f"--socket={root}/munge/socket", f"--key-file={key}", f"--pid-file={root}/run/a-munged.pid",
        f"--log-file={root}/log/munged.log", f"--seed-file={root}/munge/seed",
    )  # fmt: skip
    made.run("slurmctld", "-c", "-f", f"{root}/slurm.conf")
    for name in NODES:
        made.run("slurmd", "-N", name, "-f", f"{root}/slurm.conf")
    made.until(f'[ "$(sinfo -h -N -o "%N %T" | grep " idle$" | sort -u | wc -l)" -ge {len(NODES)} ]')


def _end(pid_file: Path) -> None:
    try:
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
    except (OSError, ValueError):
        return
