"""Real nodes on one machine: each a network, mount, process and host name space of its own with a real sshd in it. Needs root and Linux.

A node sees this machine's programs through an overlay and writes nowhere but into its own memory; all nodes of a lab hang on one bridge that
leads nowhere else, with addresses of the range kept for benchmarks (198.18.0.0/15). The kernel takes everything away when the process that
made a lab ends, however it ends; a bridge that a killed one left is removed by the next lab.

It pretends nothing about muster: what is asked of the nodes goes over TCP, sshd, login shells and sudo as anywhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

PROGRAMS = ("sshd", "ip", "unshare", "setpriv")
"""What `@pytest.mark.lab` must name."""

SLOTS = 250
LIMIT_S = 300.0
"""For every wait: a busy machine is not a fault."""

FILES = Path(__file__).resolve().parent / "labfiles"
_SMI = FILES.parents[1] / "fixtures/facts"

# The first process of a node: it becomes sshd. It waits for its end of the wire before it goes on.
_FIRST = r"""
set -eu
place=$1 layer=$2 name=$3 address=$4
mount -t tmpfs -o mode=755 lab "$place"
mkdir "$place/up" "$place/work" "$place/root"
mount -t overlay -o "lowerdir=$layer:/,upperdir=$place/up,workdir=$place/work" lab "$place/root"
cd "$place/root"
mount --rbind /dev dev
mount --rbind /sys sys
mount -t tmpfs lab sys/module
mount -t proc lab proc
mount -t tmpfs lab proc/driver
mount -t tmpfs -o mode=755 lab run
mount -t tmpfs -o mode=1777 lab tmp
mkdir run/sshd proc/driver/nvidia sys/module/nvidia
hostname "$name"
echo ready
read -r wire
printf 'link set lo up\naddress add %s/24 dev eth0\nlink set eth0 up\n' "$address" | ip -batch -
exec </dev/null >&2
exec chroot . /bin/sh /lab/first
"""

_BOOT = """
set -eu
cat /lab/nvidia-version >/proc/driver/nvidia/version
echo 580.126.20 >/sys/module/nvidia/version
{boot}
exec {serve}
"""
_SERVE = "/usr/sbin/sshd -D -e -f /etc/ssh/sshd_lab -h /lab/host_key"
_LISTENING = "Server listening on 0.0.0.0"

_SSHD = """
Port 22
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile /lab/id.pub
PidFile none
PrintMotd no
MaxStartups 500
Subsystem sftp internal-sftp
LogLevel VERBOSE
"""

PASSWORD = "correct horse battery"
_HASH = "$6$muster$adDV.hcMMbOnX9NCa0CXOjbHAKqdKzUTmmlalKKcnOKlDiEdJQX3wr7Zki1HpwTwuInyhepq6zuWJo49ds0YW1"
"""`openssl passwd -6 -salt muster PASSWORD`"""

USERS: Mapping[str, tuple[str, str]] = {
    "ops": ("/bin/sh", "*"),
    "plain": ("/bin/sh", "*"),
    "asked": ("/bin/sh", _HASH),
    "noisy": ("/bin/bash", "*"),
    "csh": ("/bin/tcsh", "*"),
    "fixed": ("/bin/sh", "*"),
}
"""The users of every node, beside root: login shell, password.

`ops` and `csh` may sudo freely, `asked` with PASSWORD, `fixed` one program."""


@dataclass(frozen=True)
class Plan:
    """One node as wanted: more lines for its sshd, files of its own, and sh that root runs there before sshd starts.

    `serve` is a program in place of sshd; it says "Server listening on 0.0.0.0" on standard error when it does.
    """

    name: str
    sshd: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    boot: str = ""
    serve: str = ""


@dataclass
class Machine:
    """One node as it is."""

    name: str
    address: str
    log: Path
    process: subprocess.Popen[bytes]
    public_key: str

    def inside(self, text: str, stdin: str = "") -> str:
        """What root's `sh -c text` prints on the node. Raises CalledProcessError."""
        # The first child of `unshare` is the node's process 1.
        (child,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        argv = ["nsenter", "-t", child, "-m", "-u", "-p", "-n", "-r", "-w", "sh", "-c", text]
        done = subprocess.run(argv, check=True, input=stdin, capture_output=True, text=True, timeout=LIMIT_S)
        return done.stdout

    def connections(self) -> int:
        """How many TCP connections its sshd has had."""
        return self.log.read_text(errors="replace").count("Connection from ")


class Lab:
    """Nodes that run, by name; `folder` holds their key (`id`), `known_hosts` and an `ssh_config` that names both."""

    def __init__(self, folder: Path, subnet: str, machines: Sequence[Machine]) -> None:
        self.folder = folder
        self.gateway = f"{subnet}.1"
        self.machines = {machine.name: machine for machine in machines}
        self.known_hosts = folder / "known_hosts"
        self.ssh_config = folder / "ssh_config"
        self.key = folder / "id"

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def site(
        self, folder: Path, users: Mapping[str, str], *, ssh: str = "", config: str = "", connect_timeout: str = "4m"
    ) -> Path:
        """A folder with a fleet.yaml over these nodes with these users; `ssh`: more keys of its section, `config`: more of ssh_config."""
        folder.mkdir(parents=True, exist_ok=True)
        hosts = "".join(f"{each} ansible_host={self[each].address} ansible_user={users[each]}\n" for each in users)
        (folder / "hosts.ini").write_text(f"[all]\n{hosts}")
        (folder / "ssh_config").write_text(config + self.ssh_config.read_text())
        (folder / "fleet.yaml").write_text(
            "schema: 1\nfleet: lab\ninventory:\n  - ansible: hosts.ini\n"
            f"ssh: {{config: ssh_config, connect_timeout: {connect_timeout}{', ' if ssh else ''}{ssh}}}\n"
            "pools:\n  all: {match: {gpu: H100}}\n"
        )
        return folder


@contextlib.contextmanager
def lab(folder: Path, plans: Sequence[Plan]) -> Iterator[Lab]:
    """A running lab of `plans`, at most 240 of them; all of it is gone afterwards. `folder` is taken over. Raises LabRefused, TimeoutError."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        slot = stack.enter_context(_slot())
        # Layers of an overlay may not lie in one another, so those above this machine's root are on a file system of their own.
        layers = Path(f"/dev/shm/mulab{slot}")
        shutil.rmtree(layers, ignore_errors=True)
        stack.callback(shutil.rmtree, layers, ignore_errors=True)
        _layer(folder, layers / "all")
        bridge, subnet = f"mulab{slot}", f"198.18.{slot}"
        _ip([f"link add {bridge} type bridge", f"address add {subnet}.1/24 dev {bridge}", f"link set {bridge} up"])
        stack.callback(_sweep, slot)
        machines: list[Machine] = []
        stack.callback(_end, machines)
        for number, plan in enumerate(plans):
            machines.append(_start(folder, layers, plan, f"{subnet}.{10 + number}"))
        for machine in machines:
            _answer(machine)
        _ip(
            line
            for number, machine in enumerate(machines)
            for line in (
                f"link add mu{slot}n{number} type veth peer name eth0 netns {machine.process.pid}",
                f"link set mu{slot}n{number} master {bridge} up",
            )
        )
        for machine in machines:
            assert machine.process.stdin
            machine.process.stdin.write(b"wire\n")
            machine.process.stdin.flush()
        for machine in machines:
            _listening(machine)
        _client_files(folder, machines)
        yield Lab(folder, subnet, machines)


def obstacle() -> str | None:
    """Why no lab can be made here even by root, or None: in a container that may make no network, say."""
    try:
        with _slot() as slot:
            _ip([f"link add mulab{slot} type bridge", f"link delete mulab{slot}"])
    except (LabRefused, OSError) as refused:
        return f"lab: this machine lets root make no network of its own: {refused}"
    return None


class LabRefused(Exception):
    """This machine does not let root make a network of its own."""


def _client_files(folder: Path, machines: Sequence[Machine]) -> None:
    (folder / "known_hosts").write_text("".join(f"{each.address} {each.public_key}" for each in machines))
    (folder / "ssh_config").write_text(
        f"Host *\n  IdentityFile {folder}/id\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n"
        "  GlobalKnownHostsFile /dev/null\n"
    )


@contextlib.contextmanager
def _slot() -> Iterator[int]:
    """A number that no other lab on this machine has, as long as this process lives."""
    for slot in range(SLOTS):
        lock = open(f"/run/muster-lab-{slot}.lock", "w")  # noqa: PTH123, SIM115 - held open while the lab runs
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        with lock:
            _sweep(slot)
            yield slot
        return
    raise LabRefused("there are too many labs on this machine")


def _sweep(slot: int) -> None:
    """Take away every link of a lab. The kernel does it too, when the last process of a name space is gone, and takes its time."""
    net = Path("/sys/class/net")
    limit = time.monotonic() + LIMIT_S
    while left := [each.name for each in (*net.glob(f"mu{slot}n*"), *net.glob(f"mulab{slot}"))]:
        if time.monotonic() > limit:
            raise LabRefused(f"these links cannot be removed: {' '.join(left)}")
        lines = "".join(f"link delete {name}\n" for name in left)
        subprocess.run(["ip", "-force", "-batch", "-"], input=lines, capture_output=True, text=True, timeout=LIMIT_S)


def _ip(lines: Iterable[str]) -> None:
    done = subprocess.run(
        ["ip", "-batch", "-"],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode != 0:
        raise LabRefused(done.stderr.strip())


def _layer(folder: Path, layer: Path) -> None:
    """What all nodes have in place of this machine's files: users, sudo's rules, GPUs by an nvidia-smi that repeats a recorded answer."""
    shutil.copytree(FILES, layer, copy_function=_copied)
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(folder / "id")
    (folder / "id").chmod(0o600)
    key.write_public_key(layer / "lab/id.pub")
    shutil.copy(_SMI / "compute_apps/load_h200-mig_590.48.01.csv", layer / "lab/apps.csv")
    passwd, shadow = Path("/etc/passwd").read_text(), Path("/etc/shadow").read_text()
    for uid, (name, (shell, word)) in enumerate(USERS.items(), start=61000):
        passwd += f"{name}:x:{uid}:65534:{name}:/home/{name}:{shell}\n"
        shadow += f"{name}:{word}:19000:0:99999:7:::\n"
        (layer / "home" / name).mkdir(parents=True, exist_ok=True)
        for path in (layer / "home" / name, *(layer / "home" / name).rglob("*")):
            os.chown(path, uid, 65534)
    lines = [
        line if not line.startswith("root:") else line.rpartition(":")[0] + ":/bin/sh" for line in passwd.splitlines()
    ]
    _write(layer / "etc/passwd", "\n".join(lines) + "\n")
    _write(layer / "etc/shadow", shadow, 0o640)
    for name in ("sudoers", "sudoers.d/lab"):
        if (layer / "etc" / name).exists():
            (layer / "etc" / name).chmod(0o440)
    _write(layer / "etc/ssh/sshd_lab", _SSHD)
    status = Path("/var/lib/dpkg/status")
    _write(layer / "var/lib/dpkg/status", status.read_text() + (FILES / "lab/status").read_text())


def _copied(source: str, target: str) -> str:
    shutil.copyfile(source, target)
    Path(target).chmod(0o755 if "/bin/" in target else 0o644)
    return target


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _start(folder: Path, layers: Path, plan: Plan, address: str) -> Machine:
    place, own = folder / "nodes" / plan.name, layers / plan.name
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    (own / "lab").mkdir(parents=True)
    (place / "mount").mkdir(parents=True)
    host_key.write_private_key(own / "lab/host_key")
    (own / "lab/host_key").chmod(0o600)
    _write(own / "lab/first", _BOOT.format(boot=plan.boot, serve=plan.serve or _SERVE))
    # No two nodes have the same GPUs.
    digits = hashlib.sha256(plan.name.encode()).hexdigest()
    smi = (_SMI / "gpu/q-x_8x-h100-hbm3_570.86.15.xml").read_text()
    _write(own / "lab/smi.xml", re.sub(r"<(uuid>GPU-|serial>).{8}", rf"<\g<1>{digits[:8]}", smi))
    _write(own / "etc/machine-id", f"{digits[:32]}\n")
    for path, text in plan.files.items():
        _write(own / path.lstrip("/"), text, 0o755 if "bin/" in path else 0o644)
    if plan.sshd:
        _write(own / "etc/ssh/sshd_lab", plan.sshd + _SSHD)
    _write(own / "etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {plan.name}\n")
    log = place / "log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "-m", "-u", "-p", "-n", "-f", "--kill-child=KILL",
             "sh", "-c", _FIRST, "sh", str(place / "mount"), f"{own}:{layers / 'all'}", plan.name, address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
        )  # fmt: skip
    public = host_key.export_public_key().decode()
    return Machine(plan.name, address, log, process, public)


def _answer(machine: Machine) -> None:
    ready = machine.process.stdout
    assert ready
    with ready:
        if ready.readline() != b"ready\n":
            raise LabRefused(f"{machine.name} did not start: {machine.log.read_text(errors='replace')}")


def _listening(machine: Machine) -> None:
    limit = time.monotonic() + LIMIT_S
    while _LISTENING not in (said := machine.log.read_text(errors="replace")):
        if machine.process.poll() is not None or time.monotonic() > limit:
            raise LabRefused(f"{machine.name} did not start: {said}")
        time.sleep(0.01)


def _end(machines: Sequence[Machine]) -> None:
    for machine in machines:
        with contextlib.suppress(ProcessLookupError):
            machine.process.send_signal(signal.SIGKILL)
    for machine in machines:
        machine.process.wait(timeout=LIMIT_S)
        if machine.process.stdin:
            machine.process.stdin.close()
