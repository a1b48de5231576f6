"""One node as a virtual machine: real kernel, real modules, initramfs, GRUB, restarts. QEMU's own emulation; no KVM is needed, and none is used.

Slow: a boot takes a minute or so of one core. So one machine at a time, little memory, and what can be made ahead of its start is made outside
of it and kept in the cache. What is not real is said in docs/howto/lab.md: there is no GPU, so `nvidia-smi` and the validation are stand-ins.
"""

import fcntl
import hashlib
import inspect
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from lab import repository, texts
from lab.fleet import POLICY
from lab.guest_base import GuestBase, guest_base, nspawn, write_disk
from lab.guest_packages import guest_packages
from lab.node import Ran, until
from lab.packages import OPEN, RELEASES, Package, names
from lab.tools import cache_folder, run
from muster.loopback.captures import write_captures
from muster.loopback.tools import spawn_detached

NAME = "gpu01"
MEMORY_MIB = 1536
BOOT_LIMIT_S = 600.0
SH_LIMIT_S = 900.0
"""Emulation on a busy machine is slow; nothing here is a measurement."""

_SHIMS = ("nvidia-smi", "python3")
"""What stands in for a GPU. Everything that has to do with the kernel is the real one."""


class Guest:
    """The virtual machine in `folder`, with the files by which Muster reaches it and the repository that it installs from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        about = json.loads((self.folder / "guest.json").read_text(encoding="utf-8"))
        self.name = NAME
        self.port, self.http_port = int(about["port"]), int(about["http_port"])
        self.kernel, self.next_kernel = str(about["kernel"]), str(about["next_kernel"])

    @classmethod
    def up(cls, folder: Path, driver: str, flavour: str = OPEN) -> "Guest":
        """Make a machine in `folder`, which must be absent or empty, with `driver` installed, held and loaded. Returns when it has booted."""
        base = guest_base()
        made = _with_driver(base, driver, flavour)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RuntimeError(f"{folder} is not empty")
        shutil.copytree(made / "apt", folder / "apt")
        shutil.copy(made / "id", folder / "id")
        guest = cls._begin(folder, base, made / "disk.img")
        guest.serve()
        guest.start()
        guest.ok(f"sed -i 's,http://[^ ]*,http://10.0.2.2:{guest.http_port}/,' /etc/apt/sources.list.d/nvidia.list")
        return guest

    @classmethod
    def _begin(cls, folder: Path, base: GuestBase, disk: Path) -> "Guest":
        about = {
            "port": _free_port(),
            "http_port": _free_port(),
            "kernel": base.kernel,
            "next_kernel": base.next_kernel,
        }
        (folder / "guest.json").write_text(json.dumps(about), encoding="utf-8")
        run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(disk), str(folder / "disk.qcow2")])
        guest = cls(folder)
        guest._write_files((disk.parent / "host_key.pub").read_text(encoding="ascii"))
        return guest

    def serve(self) -> None:
        """Serve the repository to the machine."""
        served, pid = self.folder / "apt", self.folder / "http.pid"
        script = 'echo $$ >"$1"; exec "$2" -m http.server --bind 127.0.0.1 --directory "$3" "$4"'
        argv = ["sh", "-c", script, "sh", str(pid), sys.executable, str(served), str(self.http_port)]
        spawn_detached(argv, dict(os.environ), self.folder / "http.log")
        until(lambda: _listens(self.http_port), "the repository's server", 60)

    def start(self) -> None:
        """Switch the machine on. Returns when it has booted."""
        self.launch()
        self.wait_up()

    def launch(self) -> None:
        """Switch the machine on and do not wait. What it says on its console is in `folder`/console."""
        network = f"user,id=net,hostfwd=tcp:127.0.0.1:{self.port}-:22"
        argv = [
            "qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-nodefaults", "-display", "none", "-cpu", "max", "-smp", "1",
            "-m", str(MEMORY_MIB),
            "-drive", f"file={self.folder / 'disk.qcow2'},if=virtio,cache=writeback", "-netdev", network,
            "-device", "virtio-net-pci,netdev=net", "-device", "virtio-rng-pci", "-serial", f"file:{self.folder / 'console.now'}",
            "-pidfile", str(self.folder / "qemu.pid"), "-boot", "c",
        ]  # fmt: skip
        with (self.folder / "console").open("ab") as kept, suppress(FileNotFoundError):
            kept.write((self.folder / "console.now").read_bytes())
        spawn_detached(argv, dict(os.environ), self.folder / "qemu.log")
        until(lambda: self._pid() is not None, "QEMU", 60)

    def wait_up(self, other_than: str = "") -> None:
        """Until the machine has booted (under another boot id than `other_than`) and its services run."""

        def booted() -> bool:
            ran = self.sh("cat /proc/sys/kernel/random/boot_id; systemctl is-system-running", limit_s=60)
            words = ran.stdout.split()
            if len(words) == 2 and words[0] != other_than and words[1] in ("running", "degraded"):
                return True
            # An emulated machine that is asked all the time boots more slowly.
            time.sleep(1)
            return False

        until(booted, f"{self.name}: the boot", BOOT_LIMIT_S)

    def power_cut(self) -> None:
        """The power goes: what the machine had not written is lost. It is not switched on again."""
        pid = self._pid()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            until(lambda: self._pid() is None, "the end of QEMU", 60)

    def power_off(self) -> None:
        """Switch the machine off in good order."""
        self.sh("systemctl poweroff")
        until(lambda: self._pid() is None, f"{self.name}: the end", BOOT_LIMIT_S)

    def down(self) -> None:
        """End everything and take the folder away."""
        self.power_cut()
        with suppress(OSError, ValueError):
            pid = int((self.folder / "http.pid").read_text())
            if b"http.server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def reboot(self) -> None:
        """Restart the machine in good order."""
        before = self.boot_id()
        self.sh("systemctl reboot")
        self.wait_up(before)

    def sh(self, command: str, *, stdin: str = "", limit_s: float = SH_LIMIT_S) -> Ran:
        """Run `command` by sh in the machine as root; status 255 while it is away."""
        argv = [
            "ssh",
            "-F",
            str(self.folder / "ssh_config"),
            "-o",
            "ConnectTimeout=20",
            "-o",
            "BatchMode=yes",
            self.name,
            command,
        ]
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return Ran(255, "", f"no end within {limit_s:.0f} s")
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, command: str, *, limit_s: float = SH_LIMIT_S) -> str:
        """What `command` printed. Raises RuntimeError when it fails."""
        ran = self.sh(command, limit_s=limit_s)
        if ran.exit_status != 0:
            raise RuntimeError(
                f"{self.name}: {command} ended with {ran.exit_status}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
            )
        return ran.stdout

    def put(self, path: str, text: str) -> None:
        """Write a file in the machine."""
        ran = self.sh(f"mkdir -p '{Path(path).parent}' && cat >'{path}'", stdin=text)
        if ran.exit_status != 0:
            raise RuntimeError(f"{self.name}: {path} could not be written: {ran.stderr}")

    def boot_id(self) -> str:
        """The boot id of the running machine; empty while it is away."""
        return self.sh("cat /proc/sys/kernel/random/boot_id", limit_s=60).stdout.strip()

    def truth(self) -> Mapping[str, str]:
        """What the machine is, past everything Muster wrote: loaded, library, module on disk, audit, holds, kernel, boot id."""
        lines = self.ok(texts.TRUTH + 'echo "kernel=$(uname -r)"\n').splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def console(self) -> str:
        """All that was said on the console so far."""
        parts = (self.folder / "console", self.folder / "console.now")
        return "".join(part.read_text(errors="replace") for part in parts if part.exists())

    def _pid(self) -> int | None:
        try:
            pid = int((self.folder / "qemu.pid").read_text())
            return pid if b"qemu-system" in Path(f"/proc/{pid}/cmdline").read_bytes() else None
        except (OSError, ValueError):
            return None

    def _write_files(self, host_key: str) -> None:
        kind, key = host_key.split()[:2]
        (self.folder / "known_hosts").write_text(f"{self.name} {kind} {key}\n", encoding="ascii")
        (self.folder / "ssh_config").write_text(
            f"Host {self.name}\n  HostName 127.0.0.1\n  Port {self.port}\n  HostKeyAlias {self.name}\n  User root\n"
            f'  IdentityFile "{self.folder / "id"}"\n  IdentitiesOnly yes\n  UserKnownHostsFile "{self.folder / "known_hosts"}"\n'
            "  StrictHostKeyChecking yes\n",
            encoding="utf-8",
        )
        (self.folder / "hosts").write_text(f"{self.name}\n", encoding="ascii")
        (self.folder / "fleet.yaml").write_text(POLICY, encoding="utf-8")


def _with_driver(base: GuestBase, driver: str, flavour: str) -> Path:
    """A folder in the cache with a disk on which `driver` is installed and held, its repository, and the keys; made if it is not there."""
    made_of = guest_packages()
    code = "".join(inspect.getsource(part) for part in (_install, _put_files, write_disk))
    how = f"{base.folder.name}\n{driver}\n{flavour}\n{made_of}\n{_FINISH}\n{code}"
    place = cache_folder() / f"guest-{driver}-{flavour}-{hashlib.sha256(how.encode()).hexdigest()[:16]}"
    with (cache_folder() / "guest.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            made = place.with_name(f"{place.name}.{os.getpid()}")
            shutil.rmtree(made, ignore_errors=True)
            _install(base, made, driver, flavour, made_of)
            made.rename(place)
    return place


def _install(base: GuestBase, made: Path, driver: str, flavour: str, offered: tuple[Package, ...]) -> None:
    root = made / "root"
    made.mkdir(parents=True)
    repository.build(made / "apt", "", (), offered)
    for deb in base.debs:
        shutil.copy(deb, made / "apt/pool")
    repository.index(made / "apt")
    run(["cp", "-a", str(base.root), str(root)])
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made / "id")])
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / "etc/ssh/ssh_host_ed25519_key")])
    shutil.copy(root / "etc/ssh/ssh_host_ed25519_key.pub", made / "host_key.pub")
    _put_files(root, (made / "id.pub").read_text(encoding="ascii"))
    shutil.copy(made / "apt/lab.gpg", root / "usr/share/keyrings/lab.gpg")
    (root / "usr/share/keyrings/lab.gpg").chmod(0o644)
    release = next(each for each in RELEASES if each.version == driver)
    wanted = names(release, flavour).all
    shutil.copytree(made / "apt", root / "srv/apt")
    pins = " ".join(f"{name}={release.package_version}" for name in wanted)
    nspawn(root, _FINISH.replace("@PINS@", pins).replace("@NAMES@", " ".join(wanted)))
    write_disk(root, made / "disk.img")
    shutil.rmtree(root)


# The repository is reached by a folder here, and over the network in the machine.
_FINISH = """\
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
echo 'deb [signed-by=/usr/share/keyrings/lab.gpg] file:/srv/apt ./' >/etc/apt/sources.list.d/nvidia.list
apt-get -q update
apt-get -q -y install --no-install-recommends @PINS@
apt-mark hold @NAMES@
apt-get clean
rm -rf /srv/apt /var/lib/apt/lists/*
echo 'deb [signed-by=/usr/share/keyrings/lab.gpg] http://10.0.2.2:8080/ ./' >/etc/apt/sources.list.d/nvidia.list
mkdir -p /loopback/knobs /loopback/held /loopback/units /etc/modules-load.d
echo nvidia >/etc/modules-load.d/nvidia.conf
"""


def _put_files(root: Path, public_key: str) -> None:
    keep = ("etc/os-release", "etc/ssh/sshd_config", "etc/hostname", "etc/hosts", "root/.ssh/authorized_keys")
    given = texts.files_of(NAME, "", "", public_key)
    for name in keep:
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_text(given[name], encoding="utf-8")
    (root / "root/.ssh").chmod(0o700)
    source = files("muster.loopback")
    for shim in _SHIMS:
        for where, text in (
            (f"usr/local/lib/lab/loopback/{shim}", source.joinpath("shims", shim).read_text(encoding="utf-8")),
            (f"usr/local/lib/lab/{shim}", texts.CALL.replace("@NAME@", shim)),
            *((("usr/local/sbin/python3", texts.CALL.replace("@NAME@", shim)),) if shim == "python3" else ()),
        ):
            target = root / where
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            target.chmod(0o755)
    write_captures(root / "loopback/smi", NAME)
    replay = source.joinpath("nodefiles/replay.awk").read_text(encoding="utf-8")
    (root / "loopback/smi/replay.awk").write_text(replay, encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
