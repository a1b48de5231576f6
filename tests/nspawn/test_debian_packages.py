"""Debian's real NVIDIA packages, from one release to the next and back, with a real DKMS build at each step: 535.261.03, 535.309.01, 535.261.03.

In a chroot: nothing is loaded and no GPU is asked, but the packages, their scripts, dkms, gcc and the modules are the real ones. It downloads
some 400 MB from the Debian mirror of this machine and takes a quarter of an hour of CPU.
"""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.base import base, mirror
from lab.tools import run
from muster.backends.packages.apt import BACKEND
from muster.model.stack import PackagePin

OLD, NEW = "535.261.03", "535.309.01"
KEEP = "/var/lib/muster/node/restore/run-1"
BUILD = "linux-headers-amd64 dkms gcc make"
DRIVER = "nvidia-kernel-dkms nvidia-smi libcuda1 libnvidia-ml1 nvidia-persistenced nvidia-modprobe"
CONF = "/etc/nvidia/current/nvidia-options.conf"
APT_GET = "DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends"
LIMIT_S = 3600

pytestmark = [pytest.mark.slow, pytest.mark.lab("debootstrap", "chroot", "mount"), pytest.mark.xdist_group("nspawn")]


@dataclass(frozen=True)
class Root:
    """A Debian in a folder, with the old driver installed."""

    place: Path

    def sh(self, text: str) -> "subprocess.CompletedProcess[str]":
        """Run `text` by the folder's own sh, as a node would."""
        argv = [
            "chroot",
            str(self.place),
            "env",
            "-i",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/root",
            "MUSTER_ROOT=",
            "sh",
            "-s",
        ]
        return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def ok(self, text: str) -> str:
        done = self.sh(text)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def driver(self) -> dict[str, str]:
        """The packages that carry a driver, whole ones alone."""
        rows = self.ok(r"dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n'").splitlines()
        return {
            row.split()[0]: row.split()[1]
            for row in rows
            if row.split()[1].startswith("535.") and row.endswith(" installed")
        }

    def modules(self) -> set[str]:
        """The version that each built module says of itself."""
        return set(
            self.ok("for m in /lib/modules/*/updates/dkms/nvidia-current*.ko*; do modinfo -F version $m; done").split()
        )

    def dkms(self) -> set[str]:
        """What dkms has built and installed."""
        return {line.split(",")[0] for line in self.ok("dkms status").splitlines() if line.endswith(": installed")}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    suite, address = mirror()
    place = tmp_path / "root"
    run(["cp", "-a", str(base()), str(place)])
    plain = address.rstrip("/")
    security = f"{plain}-security" if plain.endswith("/debian") else ""
    parts = "main contrib non-free non-free-firmware"
    lines = [f"deb {plain} {suite} {parts}", *([f"deb {security} {suite}-security {parts}"] if security else [])]
    (place / "etc/apt/sources.list").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (place / "etc/apt/apt.conf.d/90keep").write_text('APT::Keep-Downloaded-Packages "true";\n', encoding="ascii")
    shutil.copy("/etc/resolv.conf", place / "etc/resolv.conf")
    for folder in ("proc", "dev"):
        run(["mount", "--bind", f"/{folder}", str(place / folder)])
    try:
        yield Root(place)
    finally:
        for folder in ("proc", "dev"):
            run(["umount", "-l", str(place / folder)])


def test_debians_own_packages_go_up_and_come_back_with_a_module_built_each_time(root: Root) -> None:
    root.ok("apt-get -q update")
    offered = root.ok("apt-cache madison nvidia-kernel-dkms")
    versions = {line.split("|")[1].strip() for line in offered.splitlines()}
    (old,) = (version for version in versions if version.startswith(f"{OLD}-"))
    (new,) = (version for version in versions if version.startswith(f"{NEW}-"))
    pin = f"Package: src:nvidia-graphics-drivers\nPin: version {old}\nPin-Priority: 1001\n"
    (root.place / "etc/apt/preferences.d/driver").write_text(pin, encoding="ascii")
    root.ok(f"{APT_GET} install {BUILD}")
    root.ok(f"{APT_GET} install {DRIVER}")
    (root.place / "etc/apt/preferences.d/driver").unlink()
    before = {name: version for name, version in root.driver().items() if version == old}
    assert len(before) >= 8, before
    assert (root.modules(), root.dkms()) == ({OLD}, {f"nvidia-current/{OLD}"})
    root.ok(f"echo 'options nvidia-current NVreg_EnableMSI=1 # by hand' >>{CONF}; apt-mark hold {' '.join(before)}")
    edited = (root.place / CONF.lstrip("/")).read_text(encoding="utf-8")

    back = tuple(PackagePin(name, version) for name, version in sorted(before.items()))
    pins = tuple(PackagePin(name, new) for name in sorted(before))
    for text in (BACKEND.preflight(pins, back), BACKEND.fetch(pins, back, KEEP), BACKEND.save(back, KEEP)):
        root.ok(text)
    root.ok(BACKEND.install(pins, back))
    assert root.driver() | dict.fromkeys(before, new) == root.driver()
    assert (root.modules(), root.dkms()) == ({NEW}, {f"nvidia-current/{NEW}"})

    root.ok(BACKEND.restore(back, KEEP, pins))
    assert root.driver() | before == root.driver()
    assert (root.modules(), root.dkms()) == ({OLD}, {f"nvidia-current/{OLD}"})
    assert root.ok("dpkg --audit") == ""
    assert set(before) <= set(root.ok("apt-mark showhold").split())
    assert (root.place / CONF.lstrip("/")).read_text(encoding="utf-8") == edited
    log = (root.place / "var/log/dpkg.log").read_text(encoding="utf-8").splitlines()
    rows = [
        line.split()[2:]
        for line in log
        if line.split()[2:3] == ["upgrade"] and line.split()[3].partition(":")[0] in before
    ]
    assert len(rows) == 2 * len(before), rows
