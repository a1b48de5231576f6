"""The root that every node is copied from: a Debian of debootstrap, made once and kept in the cache under the hash of how it is made."""

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from lab.tools import cache_folder, run

INCLUDE = (
    "systemd", "systemd-sysv", "dbus", "udev", "openssh-server", "kmod", "iproute2", "ca-certificates", "dpkg-repack", "python3-minimal",
)  # fmt: skip
LIMIT_S = 1800

# Steps after debootstrap; what stands here is part of the hash. getty and resolved have nothing to do in a node without a console or network.
_STEPS = """\
rm -f etc/resolv.conf etc/machine-id etc/ssh/ssh_host_*
: >etc/machine-id
for unit in getty.target console-getty.service getty@.service systemd-networkd.service systemd-resolved.service fstrim.timer e2scrub_all.timer \
  systemd-udevd.service systemd-udev-trigger.service systemd-timesyncd.service; do
  ln -sf /dev/null "etc/systemd/system/$unit"
done
rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/* usr/share/doc usr/share/man usr/share/locale usr/share/info usr/lib/udev/hwdb*
: >etc/apt/sources.list
mkdir -p etc/apt/sources.list.d
"""


def base() -> Path:
    """The base root, made if it is not there (a minute and a half). Raises RuntimeError with debootstrap's words."""
    suite, address = mirror()
    mark = hashlib.sha256(f"{suite}\n{INCLUDE}\n{_STEPS}".encode()).hexdigest()[:16]
    place = cache_folder() / f"base-{suite}-{mark}"
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _make(place, suite, address)
    return place


def _make(place: Path, suite: str, address: str) -> None:
    made = place.with_name(f"{place.name}.{os.getpid()}")
    shutil.rmtree(made, ignore_errors=True)
    include = f"--include={','.join(INCLUDE)}"
    proxy = run(["apt-config", "shell", "http_proxy", "Acquire::http::Proxy"]).strip()
    command = f'{proxy}\n[ -z "${{http_proxy-}}" ] || export http_proxy; exec debootstrap --variant=minbase {include} {suite} "$1" "{address}"'
    run(["sh", "-c", command, "sh", str(made)], timeout_s=LIMIT_S)
    run(["sh", "-euc", f"cd '{made}'\n{_STEPS}"])
    made.rename(place)


def image(mib: int) -> Path:
    """The base as an ext4 file system of `mib` MiB in a file, to be copied."""
    root = base()
    place = root.with_name(f"{root.name}-{mib}.img")
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            made = place.with_name(f"{place.name}.{os.getpid()}")
            run(["mke2fs", "-q", "-t", "ext4", "-m", "0", "-O", "^has_journal", "-d", str(root), str(made), f"{mib}M"])
            made.rename(place)
    return place


def mirror() -> tuple[str, str]:
    """(suite, address) of this machine's own package source, as apt has it. Raises RuntimeError where it has none."""
    targets = run(
        ["apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    )
    for line in targets.splitlines():
        suite, component, address = line.split(" ", 2)
        if component == "main" and "-" not in suite and "security" not in address:
            return suite, address
    raise RuntimeError("apt on this machine has no package source of its own release, and the base is made from one")
