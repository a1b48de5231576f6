"""Makes the folders that play nodes: each with a package database of its own that the real apt and dpkg have filled. Starts nothing.

Nothing here is known to the rest of Muster: a node looks real through its PATH and through $MUSTER_ROOT.
"""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from muster.loopback.captures import write_captures
from muster.loopback.packages import MEMBERS, DriverRelease, Repository
from muster.loopback.tools import SYSTEM_PATH
from muster.model.frozen import dataclass

KERNEL = "6.1.0-57-amd64"

# A killed process is gone within milliseconds, on a busy disk within seconds; one that hangs in the kernel is left behind.
_KILL_ROUNDS = 1000

# How often nothing must be found where some process could not be asked: it becomes another program within less.
_SURE_ROUNDS = 5

# How long a command on a node may take: far beyond any that does not hang, however busy the machine is.
_RUN_LIMIT_S = 600.0

MANNERS = ("unreachable", "silent", "wrong-host-key")
"""The knobs that say how a node meets who connects; the first that is set counts, and without one it is `open`."""

_GPU_BUSES = ("04", "05", "0b", "0c")
"""The places of the four GPUs that the replayed reports show."""

_UNITS = ("apt-daily.timer", "apt-daily-upgrade.timer")

_OS_RELEASE = """\
PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
NAME="Debian GNU/Linux"
VERSION_ID="12"
VERSION="12 (bookworm)"
VERSION_CODENAME=bookworm
ID=debian
"""

# The file lies outside etc/apt, else apt would read it twice. The machine's own /etc/apt is never read, since Dir points away from it;
# dpkg's PATH is left alone so that maintainer scripts meet the same stand-ins as everybody on the node.
_APT_CONF = """\
Dir "{root}";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
DPkg::Path "";
DPkg::Options {{
  "--root={root}";
  "--force-not-root";
  "--force-script-chrootless";
  "--force-unsafe-io";
  "--log={root}/var/log/dpkg.log";
}};
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command on a node answered."""

    exit_status: int
    stdout: str
    stderr: str


def environment(root: Path, shims: Path) -> Mapping[str, str]:
    """Everything a command on the node sees of its environment; of the caller's own only LANG and TZ pass."""
    own = {
        "PATH": f"{shims}:{SYSTEM_PATH}",
        "MUSTER_ROOT": str(root),
        "HOME": str(root / "root"),
        "USER": "muster",
        "LOGNAME": "muster",
        "SHELL": "/bin/sh",
        "TMPDIR": str(root / "tmp"),
        "APT_CONFIG": str(root / "loopback/apt.conf"),
        "DPKG_ROOT": str(root),
        "DPKG_ADMINDIR": str(root / "var/lib/dpkg"),
    }
    return own | {name: os.environ[name] for name in ("LANG", "TZ") if name in os.environ}


def refresh_uptime(root: Path) -> None:
    """Bring the node's /proc/uptime up to now; commands on the node see it as of their start."""
    booted = float((root / "loopback/booted_at").read_text())
    uptime = max(time.time() - booted, 0.01)
    # The server and who works on the node beside it may do this at the same moment, each with a file of its own.
    fresh = root / f"proc/uptime.{os.getpid()}-{threading.get_ident()}"
    fresh.write_text(f"{uptime:.2f} {uptime:.2f}\n", encoding="ascii")
    fresh.replace(root / "proc/uptime")


def manner_of(root: Path) -> str:
    """How the node's knobs want it to meet who connects: one of MANNERS, or `open`."""
    return next((manner for manner in MANNERS if (root / "loopback/knobs" / manner).exists()), "open")


def argv_of(root: Path, command: str | None) -> list[str]:
    """How the node's sh is started for `command`, or for a session that reads commands from stdin when it is None.

    The knob `disk-full` holds a size in blocks of 512 bytes: no file on the node can grow beyond it (EFBIG, "File too large"). It is the
    nearest an ordinary user comes to a full disk; small files still go through where a size above 0 is given.
    """
    inner = ["/bin/sh"] if command is None else ["/bin/sh", "-c", command]
    try:
        blocks = int((root / "loopback/knobs/disk-full").read_text() or "0")
    except FileNotFoundError:
        return inner
    return ["/bin/sh", "-c", f"trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"", "sh", *inner]


def run_on(root: Path, shims: Path, command: str, *, stdin: str = "", timeout_s: float = _RUN_LIMIT_S) -> Ran:
    """Run `command` by sh on the node, as the fleet's server would, and wait for it."""
    refresh_uptime(root)
    done = subprocess.run(
        argv_of(root, command),
        cwd=root,
        env=environment(root, shims),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        start_new_session=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def install_shims(folder: Path) -> None:
    """Copy the stand-in programs into `folder`, executable whatever the package's own file modes became."""
    folder.mkdir(parents=True, exist_ok=True)
    for item in files("muster.loopback").joinpath("shims").iterdir():
        if item.is_file():
            target = folder / item.name
            target.write_bytes(item.read_bytes())
            target.chmod(0o755)


def make_template(root: Path, shims: Path, repository: Repository, release: DriverRelease) -> None:
    """Make a node folder with `release` installed into it by apt. Raises RuntimeError with apt's words if that fails."""
    _make_folders(root)
    _name(root, "template", repository)
    (root / "etc/os-release").write_text(_OS_RELEASE, encoding="utf-8")
    (root / "etc/apt/sources.list").write_text(repository.source_line, encoding="utf-8")
    (root / "var/lib/dpkg/arch").write_text(f"{repository.architecture}\n", encoding="ascii")
    wanted = " ".join(f"{member}={release.package_version}" for member in MEMBERS)
    # Cleaned like most machines' caches: a way back that leans on what the first installation left would not be one.
    for command in ("apt-get update -q", f"apt-get install -q -y {wanted}", "apt-get clean"):
        ran = run_on(root, shims, command)
        if ran.exit_status != 0:
            raise RuntimeError(f"{command} failed with {ran.exit_status}:\n{ran.stdout}{ran.stderr}")


def make_node(template: Path, root: Path, shims: Path, repository: Repository) -> None:
    """Make the node `root.name` out of a template, with serials of its own, and boot it."""
    shutil.copytree(template, root, symlinks=True)
    _name(root, root.name, repository)
    write_captures(root / "loopback/smi", root.name)
    _copy_nodefiles(root)
    boot(root, shims)


def boot(root: Path, shims: Path) -> None:
    """What a restart does: a new boot id, an empty /run, the module on disk loaded. Kills nothing."""
    ran = run_on(root, shims, 'sh "$MUSTER_ROOT/loopback/boot.sh"')
    if ran.exit_status != 0:
        raise RuntimeError(f"{root.name} did not boot: {ran.stderr}")


def processes_under(folder: Path) -> Sequence[int]:
    """Ids of this user's processes on the node whose root is `folder`, or on any node below it: their $MUSTER_ROOT says so."""
    return _processes_under(folder)[0]


def _processes_under(folder: Path) -> tuple[Sequence[int], bool]:
    """Those processes, and whether there was one that had no environment to read: for a moment, one that becomes another program has none."""
    exact, below = f"MUSTER_ROOT={folder}".encode(), f"MUSTER_ROOT={folder}/".encode()
    found, is_unsure = [], False
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        try:
            words = (place / "environ").read_bytes().split(b"\0")
            is_unsure = is_unsure or (words == [b""] and _is_program(place))
        except OSError:
            continue
        if any(word == exact or word.startswith(below) for word in words):
            found.append(int(place.name))
    return sorted(found), is_unsure


def _is_program(place: Path) -> bool:
    """Whether it is neither a thread of the kernel nor a process that has ended, and ours to look at."""
    fields = (place / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return fields[0] not in "ZX" and place.stat().st_uid == os.getuid() and (place / "exe").readlink() != Path()


def kill_under(folder: Path) -> None:
    """End every process that `processes_under` finds, as a power switch does, and wait until they are gone: a dying one may be forking."""
    sure = 0
    for _ in range(_KILL_ROUNDS):
        found, is_unsure = _processes_under(folder)
        if not found and (not is_unsure or sure >= _SURE_ROUNDS):
            return
        sure = sure + 1 if not found else 0
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _make_folders(root: Path) -> None:
    for place in (
        "etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/sources.list.d", "etc/apt/trusted.gpg.d",
        "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/lib/dpkg/alternatives",
        "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log/apt", "var/lib/muster", "var/tmp", "tmp", "root", "run/lock",
        "usr/bin", "usr/sbin", "boot", "dev", "proc/sys/kernel/random", "proc/driver", "sys/module",
        f"lib/modules/{KERNEL}/build", "loopback/knobs", "loopback/held", "loopback/jobs", "loopback/units",
    ):  # fmt: skip
        (root / place).mkdir(parents=True, exist_ok=True)
    for empty in ("var/lib/dpkg/status", "var/lib/dpkg/available", "loopback/dmesg"):
        (root / empty).touch()
    for unit in _UNITS:
        (root / "loopback/units" / unit).write_text("active\n", encoding="ascii")
    (root / "loopback/kernel").write_text(f"{KERNEL}\n", encoding="ascii")
    (root / "loopback/booted_at").write_text(f"{time.time():.0f}\n", encoding="ascii")
    (root / f"boot/vmlinuz-{KERNEL}").touch()
    for bus in _GPU_BUSES:
        device = root / f"sys/bus/pci/devices/0000:{bus}:00.0"
        device.mkdir(parents=True, exist_ok=True)
        (device / "vendor").write_text("0x10de\n", encoding="ascii")
        (device / "class").write_text("0x030200\n", encoding="ascii")
    (root / "proc/mounts").write_text("/dev/vda1 / ext4 rw,relatime 0 0\n", encoding="ascii")


def _name(root: Path, name: str, repository: Repository) -> None:
    (root / "etc/hostname").write_text(f"{name}\n", encoding="ascii")
    conf = _APT_CONF.format(root=root, architecture=repository.architecture)
    (root / "loopback/apt.conf").write_text(conf, encoding="utf-8")


def _copy_nodefiles(root: Path) -> None:
    for item in files("muster.loopback").joinpath("nodefiles").iterdir():
        if item.is_file():
            # replay.awk is read beside the captures it fills.
            place = root / "loopback" / ("smi" if item.name.endswith(".awk") else "") / item.name
            place.write_bytes(item.read_bytes())
