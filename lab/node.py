"""One node as a container: made from the base, booted, restarted as real machines restart, cut off from power, broken on purpose."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from lab import texts
from lab.tools import run
from muster.loopback.captures import write_captures
from muster.loopback.tools import spawn_detached

BOOT_LIMIT_S = 120.0
"""Booting takes a second; a machine busy with other work may take a minute."""

SHIMS = ("dkms", "lsmod", "mokutil", "modprobe", "nvidia-smi", "python3", "rmmod")
"""Programs that stand in for those that need a kernel or hardware of the node's own; shared with the loopback fleet."""

KNOBS = (
    "asks-question",
    "gpu-lost",
    "gpu-wrong",
    "postinst-fails",
    "refuses-downgrade",
    "slow-package",
    "slow-unpack",
    "smi-hangs",
)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command in the node answered."""

    exit_status: int
    stdout: str
    stderr: str


def until(holds: Callable[[], bool], what: str, limit_s: float = BOOT_LIMIT_S) -> None:
    """Wait, with a bound, for what other processes do. Raises RuntimeError naming `what` when it does not come."""
    limit = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > limit:
            raise RuntimeError(f"{what} did not come within {limit_s:.0f} s")
        time.sleep(0.02)


class LabNode:
    """A node in its own folder; objects hold no state, any process may open the folder."""

    def __init__(self, folder: Path, address: str, namespace: str) -> None:
        self.folder = folder
        self.name = folder.name
        self.address = address
        self.namespace = namespace

    @property
    def root(self) -> Path:
        """The node's root file system as it lies on the disk, whether the node runs or not."""
        return self.folder / "root"

    @property
    def disk(self) -> Path:
        """The node's disk: in memory, where a machine busy with other work cannot make it wait."""
        return Path("/dev/shm") / f"muster-{self.namespace}.img"

    def make(self, image: Path, repository: str, keyring: Path, public_key: str) -> None:
        """Copy the base and give it a name, keys, a repository and the stand-ins."""
        self.root.mkdir(parents=True)
        # A disk of its own, not an overlay: that is what an image-booted node has, and Muster rightly refuses to change one.
        run(["cp", "--sparse=always", str(image), str(self.disk)])
        run(["mount", "-o", "loop", str(self.disk), str(self.root)])
        kernel = os.uname().release
        for place in (
            "loopback/knobs",
            "loopback/held",
            "loopback/units",
            f"lib/modules/{kernel}/build",
            "srv",
            "usr/local/lib/lab",
        ):
            (self.root / place).mkdir(parents=True, exist_ok=True)
        for name, text in texts.files_of(self.name, kernel, repository, public_key).items():
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.write_text(text, encoding="utf-8")
            target.chmod(0o755 if text.startswith("#!") else 0o644)
        (self.root / "root/.ssh").chmod(0o700)
        shutil.copy(keyring, self.root / "usr/share/keyrings/lab.gpg")
        (self.root / "usr/share/keyrings/lab.gpg").chmod(0o644)
        self._put_shims()
        self._put_gpus()
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.root / "etc/ssh/ssh_host_ed25519_key")])
        run(["chroot", str(self.root), "depmod", "-a", kernel])
        wants = self.root / "etc/systemd/system/multi-user.target.wants"
        for unit in ("lab-boot.service", "lab-uptime.service"):
            (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")

    def _put_gpus(self) -> None:
        """The GPUs that the replayed reports show, as they stand on a PCI bus: a node without a driver has them too."""
        for bus in ("04", "05", "0b", "0c"):
            device = self.folder / f"pci/0000:{bus}:00.0"
            device.mkdir(parents=True)
            (device / "vendor").write_text("0x10de\n", encoding="ascii")
            (device / "class").write_text("0x030200\n", encoding="ascii")

    def _put_shims(self) -> None:
        source = files("muster.loopback")
        for name in SHIMS:
            for where, text in (
                (f"usr/local/lib/lab/loopback/{name}", source.joinpath("shims", name).read_text(encoding="utf-8")),
                (f"usr/local/lib/lab/{name}", texts.CALL.replace("@NAME@", name)),
                *(() if name == "nvidia-smi" else ((f"usr/local/sbin/{name}", texts.CALL.replace("@NAME@", name)),)),
            ):
                target = self.root / where
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
                target.chmod(0o755)
        write_captures(self.root / "loopback/smi", self.name)
        replay = source.joinpath("nodefiles/replay.awk").read_text(encoding="utf-8")
        (self.root / "loopback/smi/replay.awk").write_text(replay, encoding="utf-8")
        modules = source.joinpath("nodefiles/modules.sh").read_text(encoding="utf-8")
        (self.root / "loopback/modules.sh").write_text(texts.reading_modinfo(modules), encoding="utf-8")

    def start(self) -> None:
        """Boot the node and keep it: it is booted again after a restart and after a power cut. Returns when its sshd listens."""
        (self.folder / "stop").unlink(missing_ok=True)
        keeper = self.folder / "keeper"
        keeper.write_text(texts.keeper(self.folder, self.name, self.namespace), encoding="utf-8")
        spawn_detached(["sh", str(keeper)], dict(os.environ), self.folder / "console")
        # The keeper writes its id when it has begun; until then there is nobody to ask.
        until(lambda: self._keeper() is not None, f"{self.name}: its keeper")
        self.wait_up()

    def wait_up(self, other_than: str = "") -> None:
        """Until the node has booted (under another boot id than `other_than`) and its services run."""

        def booted() -> bool:
            boot = self.boot_id()
            if not boot or boot == other_than:
                return False
            return self.sh("systemctl is-system-running", limit_s=30).stdout.strip() in ("running", "degraded")

        until(booted, f"{self.name}: the boot")

    def stop(self) -> None:
        """Power off for good and take the mounts away. Does nothing where nothing runs."""
        (self.folder / "stop").touch()
        self.power_cut(wait=False)
        until(lambda: self._keeper() is None, f"{self.name}: the end")
        with suppress(RuntimeError):
            run(["umount", "-l", str(self.root)])
        self.disk.unlink(missing_ok=True)

    def power_cut(self, *, wait: bool = True) -> None:
        """Every process of the node ends at once, as when the power goes; it boots again by itself."""
        leader, before = self.leader(), self.boot_id()
        if leader is not None:
            with suppress(ProcessLookupError):
                os.kill(leader, signal.SIGKILL)
        if wait:
            self.wait_up(before)

    def reboot(self) -> None:
        """Restart the node in good order."""
        before = self.boot_id()
        self.sh("systemctl reboot")
        self.wait_up(before)

    def sh(self, command: str, *, stdin: str = "", limit_s: float = 300) -> Ran:
        """Run `command` by sh in the node as root, past SSH; status 255 while the node is down."""
        leader = self.leader()
        if leader is None:
            return Ran(255, "", "the node is down")
        argv = [
            "nsenter",
            "-t",
            str(leader),
            "-a",
            "env",
            "-i",
            f"PATH={texts.PATH}",
            "HOME=/root",
            "sh",
            "-c",
            command,
        ]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=limit_s, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, command: str, *, limit_s: float = 300) -> str:
        """What `command` printed. Raises RuntimeError when it fails."""
        ran = self.sh(command, limit_s=limit_s)
        if ran.exit_status != 0:
            raise RuntimeError(
                f"{self.name}: {command} ended with {ran.exit_status}: {ran.stdout[-1000:]}{ran.stderr[-1000:]}"
            )
        return ran.stdout

    def set_knob(self, knob: str, value: str | None = "") -> None:
        """Set one of KNOBS; None takes it away."""
        if knob not in KNOBS:
            raise ValueError(f"no knob is called {knob}")
        place = self.root / "loopback/knobs" / knob
        if value is None:
            place.unlink(missing_ok=True)
        else:
            place.write_text(value, encoding="utf-8")

    def boot_id(self) -> str:
        """The boot id of the running node; empty while it is down."""
        leader = self.leader()
        if leader is None:
            return ""
        # The file is the container's own mount: it is read through the container's first process.
        argv = ["nsenter", "-t", str(leader), "-m", "cat", "/proc/sys/kernel/random/boot_id"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stdout.strip()

    def leader(self) -> int | None:
        """The host's process id of the node's own process 1; None while it is down."""
        keeper = self._keeper()
        if keeper is None:
            return None
        for nspawn in _children(keeper):
            if _comm(nspawn) == "systemd-nspawn":
                for child in _children(nspawn):
                    if _comm(child) == "systemd":
                        return child
        return None

    def _keeper(self) -> int | None:
        try:
            pid = int((self.folder / "keeper.pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if str(self.folder / "keeper").encode() in command else None

    def truth(self) -> Mapping[str, str]:
        """What the node is, past everything Muster wrote: loaded, library, module on disk, audit, holds, boot id."""
        lines = self.ok(texts.TRUTH).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
