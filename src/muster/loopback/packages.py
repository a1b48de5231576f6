"""Builds a small package repository with NVIDIA's package names, so that loopback nodes change drivers with the real apt and dpkg.

The names and the way they depend on one another follow NVIDIA's own Debian repository; the contents are ours and drive no hardware. Not a
mirror of anything. The same arguments give the same bytes.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

from muster.loopback.tools import require_tools, search_path
from muster.model.frozen import dataclass

# One instant for every file, archive and index: 2026-01-01T00:00:00Z.
_EPOCH = 1767225600
_RELEASE_DATE = "Thu, 01 Jan 2026 00:00:00 UTC"

# dpkg's architecture -> (the multiarch folder of its libraries, what uname -m says)
_MACHINES = {"amd64": ("x86_64-linux-gnu", "x86_64"), "arm64": ("aarch64-linux-gnu", "aarch64")}


@dataclass(frozen=True, slots=True)
class DriverRelease:
    """One driver version of the repository. With `builds` false its kernel module fails to build, as DKMS does against a kernel it cannot."""

    version: str
    builds: bool = True

    @property
    def package_version(self) -> str:
        """The version text that its packages carry."""
        return f"{self.version}-1"


DEFAULT_RELEASES = (
    DriverRelease("570.195.03"),
    DriverRelease("580.95.05"),
    DriverRelease("580.119.02", builds=False),
    DriverRelease("580.126.20"),
)

MEMBERS = (
    "nvidia-kernel-open-dkms",
    "nvidia-kernel-support",
    "libcuda1",
    "libnvidia-ml1",
    "nvidia-driver-cuda",
    "nvidia-persistenced",
    "nvidia-modprobe",
)

# Members that each member needs at exactly its own version: apt can only move all of them as one.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "nvidia-kernel-open-dkms": ("nvidia-kernel-support",),
    "nvidia-kernel-support": ("nvidia-modprobe",),
    "libcuda1": ("libnvidia-ml1",),
    "libnvidia-ml1": (),
    "nvidia-driver-cuda": ("libcuda1", "libnvidia-ml1", "nvidia-persistenced", "nvidia-kernel-open-dkms"),
    "nvidia-persistenced": ("libnvidia-ml1",),
    "nvidia-modprobe": (),
}

_SUMMARY: Mapping[str, str] = {
    "nvidia-kernel-open-dkms": "NVIDIA open kernel module DKMS source",
    "nvidia-kernel-support": "NVIDIA kernel module support files",
    "libcuda1": "NVIDIA CUDA driver library",
    "libnvidia-ml1": "NVIDIA management library (NVML)",
    "nvidia-driver-cuda": "NVIDIA driver, CUDA integration components",
    "nvidia-persistenced": "daemon that keeps the device state",
    "nvidia-modprobe": "loads the kernel module and makes device files",
}


@dataclass(frozen=True, slots=True)
class Repository:
    """A built repository: its folder, its releases, the architecture of its packages."""

    folder: Path
    releases: tuple[DriverRelease, ...]
    architecture: str

    @property
    def source_line(self) -> str:
        """The line for sources.list. `copy:` makes apt fetch into its cache, as it would from a network; `file:` would not."""
        return f"deb [trusted=yes] copy:{str(self.folder).replace('%', '%25').replace(' ', '%20')} ./\n"


def machine_of(architecture: str) -> tuple[str, str]:
    """(multiarch folder, uname -m) of a dpkg architecture; others than amd64 and arm64 are named after themselves."""
    return _MACHINES.get(architecture, (f"{architecture}-linux-gnu", architecture))


def architecture() -> str:
    """This machine's dpkg architecture."""
    return _run(["dpkg", "--print-architecture"]).strip()


def build_repository(folder: Path, releases: Sequence[DriverRelease] = DEFAULT_RELEASES) -> Repository:
    """Build the packages of all `releases` and their index in `folder` (made if absent). Raises MissingTool where dpkg-deb is absent."""
    require_tools(("dpkg", "dpkg-deb"))
    arch = architecture()
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder.parent / f".{folder.name}.build"
    shutil.rmtree(scratch, ignore_errors=True)
    jobs = [(release, member) for release in releases for member in MEMBERS]
    # dpkg-deb is a process each; two at a time is what a small laptop has cores for.
    with ThreadPoolExecutor(max_workers=2) as pool:
        stanzas = list(pool.map(lambda job: _build(scratch, folder, job[0], job[1], arch), jobs))
    shutil.rmtree(scratch)
    _write_index(folder, stanzas, arch)
    return Repository(folder, tuple(releases), arch)


def _build(scratch: Path, folder: Path, release: DriverRelease, member: str, arch: str) -> str:
    tree = scratch / f"{member}_{release.version}"
    control = _control(release, member, arch)
    for path, text, mode in (
        *_contents(release, member, arch),
        ("DEBIAN/control", control, 0o644),
        *(
            (f"DEBIAN/{name}", text, 0o755 if name != "conffiles" else 0o644)
            for name, text in _scripts(release, member)
        ),
    ):
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("->"):
            target.symlink_to(text[2:])
        else:
            target.write_text(text, encoding="utf-8")
            target.chmod(mode)
    for place in (tree, *(p for p in tree.rglob("*") if p.is_dir() and not p.is_symlink())):
        place.chmod(0o755)
    name = f"{member}_{release.package_version}_{arch}.deb"
    _run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(folder / name)])
    data = (folder / name).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return f"{control.rstrip()}\nFilename: ./{name}\nSize: {len(data)}\nSHA256: {digest}\n"


def _control(release: DriverRelease, member: str, arch: str) -> str:
    version = release.package_version
    depends = ", ".join(f"{need} (= {version})" for need in _NEEDS[member])
    lines = [
        f"Package: {member}",
        f"Version: {version}",
        f"Architecture: {arch}",
        "Maintainer: Muster loopback fleet <muster@localhost>",
        "Section: non-free/libs" if member.startswith("lib") else "Section: non-free/kernel",
        "Priority: optional",
        "Source: nvidia-graphics-drivers",
        *([f"Depends: {depends}"] if depends else []),
        f"Description: {_SUMMARY[member]} (loopback stand-in, drives no hardware)",
    ]
    return "\n".join(lines) + "\n"


def _contents(release: DriverRelease, member: str, arch: str) -> Iterable[tuple[str, str, int]]:
    """(path, text, mode) of each file; text that begins with `->` is a link."""
    version, (libraries, _) = release.version, machine_of(arch)
    stand_in = f"stand-in of {member} {version}; drives no hardware\n"
    match member:
        case "nvidia-kernel-open-dkms":
            source = f"usr/src/nvidia-{version}"
            yield f"{source}/dkms.conf", _DKMS_CONF.replace("@VERSION@", version), 0o644
            yield f"{source}/nvidia.c", f'/* {stand_in.strip()} */\nMODULE_LICENSE("Dual MIT/GPL");\n', 0o644
        case "nvidia-kernel-support":
            yield "etc/modprobe.d/nvidia.conf", _MODPROBE_CONF.replace("@VERSION@", version), 0o644
        case "libcuda1":
            yield f"usr/lib/{libraries}/libcuda.so.{version}", stand_in, 0o644
            yield f"usr/lib/{libraries}/libcuda.so.1", f"->libcuda.so.{version}", 0o644
        case "libnvidia-ml1":
            yield f"usr/lib/{libraries}/libnvidia-ml.so.{version}", stand_in, 0o644
            yield f"usr/lib/{libraries}/libnvidia-ml.so.1", f"->libnvidia-ml.so.{version}", 0o644
        case "nvidia-driver-cuda":
            yield "usr/bin/nvidia-smi", f'#!/bin/sh\n# {stand_in}exec nvidia-smi "$@"\n', 0o755
        case "nvidia-persistenced":
            yield "usr/bin/nvidia-persistenced", f"#!/bin/sh\n# {stand_in}", 0o755
            yield "lib/systemd/system/nvidia-persistenced.service", _PERSISTENCED_UNIT, 0o644
        case _:
            yield "usr/bin/nvidia-modprobe", f"#!/bin/sh\n# {stand_in}", 0o755


def _scripts(release: DriverRelease, member: str) -> Iterable[tuple[str, str]]:
    """(name, text) of the control files beside `control`."""
    match member:
        case "nvidia-kernel-open-dkms":
            yield (
                "postinst",
                _POSTINST.replace("@BUILD@", _BUILD_OK if release.builds else _build_failure()).replace(
                    "@VERSION@", release.version
                ),
            )
            yield "prerm", _PRERM.replace("@VERSION@", release.version)
        case "nvidia-kernel-support":
            yield "conffiles", "/etc/modprobe.d/nvidia.conf\n"
        case "nvidia-persistenced":
            yield "postinst", _PERSISTENCED_POSTINST
        case _:
            return


def _build_failure() -> str:
    """The part of the postinst that fails, printing a real DKMS failure's own lines with the kernel and version put in."""
    capture = files("muster.loopback").joinpath("captures/dkms_580.119.02_kernel-6.17.9_apport.log")
    lines = [
        line.replace("6.17.9-76061709-generic", "$kernel")
        .replace("580.119.02", "@VERSION@")
        .replace("(x86_64)", "($machine)")
        for line in capture.read_text(encoding="utf-8").splitlines()
        if not line.startswith(("Deprecated", "dpkg:", " installed"))
    ]
    return _BUILD_BAD.replace("@LINES@", "\n".join(lines))


def _write_index(folder: Path, stanzas: Sequence[str], arch: str) -> None:
    packages = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(packages)
    release = (
        "Origin: NVIDIA\nLabel: NVIDIA CUDA (loopback)\nSuite: stable\nCodename: loopback\n"
        f"Date: {_RELEASE_DATE}\nArchitectures: {arch}\nSHA256:\n {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n"
    )
    (folder / "Release").write_text(release, encoding="utf-8")


def _run(argv: list[str]) -> str:
    environment = {
        "PATH": search_path(),
        "LC_ALL": "C",
        "SOURCE_DATE_EPOCH": str(_EPOCH),
        "HOME": os.environ.get("HOME", "/"),
    }
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} failed with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


_DKMS_CONF = """\
PACKAGE_NAME="nvidia"
PACKAGE_VERSION="@VERSION@"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="yes"
"""

_MODPROBE_CONF = """\
# shipped by nvidia-kernel-support @VERSION@
blacklist nouveau
options nvidia NVreg_PreserveVideoMemoryAllocations=1
"""

_PERSISTENCED_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon
[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced
[Install]
WantedBy=multi-user.target
"""

_PERSISTENCED_POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
policy="$DPKG_ROOT/usr/sbin/policy-rc.d"
if [ -x "$policy" ] && ! "$policy" nvidia-persistenced restart; then
    echo "invoke-rc.d: policy-rc.d denied execution of restart." >&2
    exit 0
fi
systemctl restart nvidia-persistenced.service || true
"""

# Like dkms, it builds for every kernel whose headers are there, and fails with 10 where a build fails.
_POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
root=$DPKG_ROOT
version=@VERSION@
machine=$(uname -m)
echo "Loading new nvidia-$version DKMS files..."
[ ! -e "$root/loopback/knobs/slow-package" ] || sh "$root/loopback/hold.sh" slow-package
for headers in "$root"/lib/modules/*/build; do
    [ -d "$headers" ] || continue
    place=${headers%/build}
    kernel=${place##*/}
    mkdir -p "$root/var/lib/dkms/nvidia/$version/build"
@BUILD@
done
"""

_BUILD_OK = """\
    echo "Building initial module for $kernel"
    mkdir -p "$place/updates/dkms" "$root/var/lib/dkms/nvidia/$version/$kernel/$machine/module" "$root/boot"
    {
        echo "version=$version"
        echo "license=Dual MIT/GPL"
        echo "vermagic=$kernel SMP preempt mod_unload modversions"
        echo "srcversion=$(echo "$version $kernel" | cksum | tr -d ' ' | head -c 23)"
        echo "name=nvidia"
    } > "$place/updates/dkms/nvidia.ko.new"
    mv "$place/updates/dkms/nvidia.ko.new" "$place/updates/dkms/nvidia.ko"
    : > "$root/var/lib/dkms/nvidia/$version/$kernel/$machine/module/nvidia.ko"
    echo "Done."
    echo "nvidia.ko: Installing to /lib/modules/$kernel/updates/dkms/"
    echo "update-initramfs: Generating /boot/initrd.img-$kernel"
    cpio() { # name, text: one file of an archive, as a kernel unpacks it
        pad=$(((4 - (110 + ${#1} + 1) % 4) % 4)) fill=$(((4 - ${#2} % 4) % 4))
        printf '070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\\0' 1 33188 0 0 1 0 ${#2} 0 0 0 0 $((${#1} + 1)) 0 "$1"
        while [ "$pad" -gt 0 ]; do printf '\\0'; pad=$((pad - 1)); done
        printf '%s' "$2"
        while [ "$fill" -gt 0 ]; do printf '\\0'; fill=$((fill - 1)); done
    }
    {
        cpio "lib/modules/$kernel/updates/dkms/nvidia.ko" "version=$version"
        cpio 'TRAILER!!!' ''
    } > "$root/boot/initrd.img-$kernel"
"""

_BUILD_BAD = """\
    {
        echo "DKMS make.log for nvidia-$version for kernel $kernel ($machine)"
        echo "nvidia/nv-mmap.c: error: implicit declaration of function '__vma_start_write'"
        echo "make: *** [Makefile:115: modules] Error 2"
    } > "$root/var/lib/dkms/nvidia/$version/build/make.log"
    cat >&2 <<END
@LINES@
END
    exit 10
"""

# What the real prerm does through `dkms remove`: the module of this version leaves every kernel.
_PRERM = """\
#!/bin/sh
set -e
root=$DPKG_ROOT
for module in "$root"/lib/modules/*/updates/dkms/nvidia.ko; do
    [ -f "$module" ] || continue
    if grep -q "^version=@VERSION@$" "$module"; then
        rm -f "$module"
    fi
done
rm -rf "$root/var/lib/dkms/nvidia/@VERSION@"
"""
