"""The driver's packages as NVIDIA's Ubuntu repository names them, before and after its rename with R590: names, dependencies, scripts.

The names and the way the packages need, provide and replace one another are written down here by hand and not read from Muster's own knowledge:
a test that crosses the rename must be able to contradict it. The contents are ours and drive no hardware.
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

OPEN, PROPRIETARY = "open", "proprietary"
MULTIARCH = "x86_64-linux-gnu"


@dataclass(frozen=True, slots=True)
class Release:
    """One driver version in the repository. `builds` false: its module does not build, and its package's postinst fails."""

    version: str
    builds: bool = True

    @property
    def branch(self) -> int:
        """Its branch as a number: 580."""
        return int(self.version.partition(".")[0])

    @property
    def package_version(self) -> str:
        """The version its packages carry."""
        return f"{self.version}-{'0ubuntu1' if self.branch < _RENAMED else '1ubuntu1'}"


_RENAMED = 590

RELEASES = (
    Release("580.95.05"),
    Release("580.119.02", builds=False),
    Release("580.126.20"),
    Release("595.58.03", builds=False),
    Release("595.71.05"),
)


@dataclass(frozen=True, slots=True)
class Package:
    """One binary package: its fields, its files (path -> text or bytes; `->` begins a link), its scripts and conffiles."""

    name: str
    version: str
    fields: Mapping[str, str]
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    conffiles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Names:
    """What the members of the stack are called in one release and flavour."""

    module: str
    source: str
    common: str
    firmware: str
    library: str
    persistence: str
    meta: str
    tools: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Every member, sorted."""
        return tuple(
            sorted(
                (
                    self.module,
                    self.source,
                    self.common,
                    self.firmware,
                    self.library,
                    self.persistence,
                    self.meta,
                    *self.tools,
                )
            )
        )


def names(release: Release, flavour: str) -> Names:
    """The names of a release's packages in a flavour."""
    mark = "-open" if flavour == OPEN else ""
    if release.branch < _RENAMED:
        b = f"-{release.branch}"
        return Names(
            f"nvidia-dkms{b}{mark}", f"nvidia-kernel-source{b}{mark}", f"nvidia-kernel-common{b}", f"nvidia-firmware{b}",
            f"libnvidia-compute{b}", f"nvidia-compute-utils{b}", f"nvidia-driver{b}{mark}", (f"nvidia-utils{b}",),
        )  # fmt: skip
    return Names(
        f"nvidia-dkms{mark}", f"nvidia-kernel-source{mark}", "nvidia-kernel-common", "nvidia-firmware", "libnvidia-compute",
        "nvidia-persistenced", f"nvidia-driver{mark}", ("nvidia-modprobe",),
    )  # fmt: skip


def packages(release: Release, kernel: str) -> tuple[Package, ...]:
    """Every package of a release, both flavours; their modules are for `kernel`."""
    found: dict[str, Package] = {}
    for flavour in (OPEN, PROPRIETARY):
        found |= {each.name: each for each in _flavour(release, flavour, kernel)}
    if release.branch >= _RENAMED:
        pinning = f"nvidia-driver-pinning-{release.branch}"
        found[pinning] = Package(pinning, release.package_version, {})
    return tuple(found.values())


def _flavour(release: Release, flavour: str, kernel: str) -> tuple[Package, ...]:
    n, version, v = names(release, flavour), release.package_version, release.version
    old = release.branch < _RENAMED

    def exactly(*needed: str) -> str:
        return ", ".join(f"{each} (= {version})" for each in needed)

    def alone(*virtual: str, depends: str = "") -> dict[str, str]:
        """Fields of a package that is the only provider of `virtual`; from R590 on the name itself is real."""
        joined = ", ".join(virtual)
        fields = {"Conflicts": joined, "Replaces": joined} | ({"Depends": depends} if depends else {})
        return fields | ({"Provides": joined} if old else {})

    module = module_file(v, "Dual MIT/GPL" if flavour == OPEN else "NVIDIA", kernel)
    source = f"usr/src/nvidia-{v}"
    smi = {"usr/bin/nvidia-smi": _STAND_IN.replace("@WHAT@", "nvidia-smi")}
    library = {
        f"usr/lib/{MULTIARCH}/libcuda.so.{v}": f"stand-in {v}\n",
        f"usr/lib/{MULTIARCH}/libcuda.so.1": f"->libcuda.so.{v}",
        f"usr/lib/{MULTIARCH}/libnvidia-ml.so.{v}": f"stand-in {v}\n",
        f"usr/lib/{MULTIARCH}/libnvidia-ml.so.1": f"->libnvidia-ml.so.{v}",
    }
    build = _BUILDS if release.builds else _FAILS
    scripts = {"postinst": _MODULE_POSTINST.replace("@BUILD@", build), "prerm": _MODULE_PRERM}
    common_needs = (n.firmware,) if old else (n.firmware, *n.tools)
    made = [
        Package(
            n.module, version, {"Depends": exactly(n.source, n.common), **_virtual("nvidia-dkms-kernel")},
            scripts={name: text.replace("@VERSION@", v) for name, text in scripts.items()},
        ),
        Package(
            n.source, version, alone("nvidia-kernel-source") if old else _virtual("nvidia-kernel-source-any", "nvidia-kernel-source"),
            {f"{source}/dkms.conf": _DKMS_CONF.replace("@VERSION@", v), f"{source}/nvidia.ko": module},
        ),
        Package(
            n.common, version, alone("nvidia-kernel-common", depends=exactly(*common_needs)),
            {"etc/modprobe.d/nvidia-graphics-drivers.conf": _MODPROBE_CONF.replace("@VERSION@", v)},
            conffiles=("/etc/modprobe.d/nvidia-graphics-drivers.conf",),
        ),
        Package(n.firmware, version, alone("nvidia-firmware"), {f"lib/firmware/nvidia/{v}/gsp_ga10x.bin": f"stand-in {v}\n"}),
        Package(
            n.library, version, alone("libnvidia-compute") if old else alone("libnvidia-compute", "nvidia-utils"),
            library if old else library | smi, scripts={"preinst": _LIBRARY_PREINST.replace("@VERSION@", version)},
        ),
        Package(
            n.persistence, version, alone("nvidia-compute-utils", depends=exactly(n.library)),
            {
                "usr/bin/nvidia-persistenced": _PERSISTENCED.replace("@VERSION@", v),
                "lib/systemd/system/nvidia-persistenced.service": _PERSISTENCED_UNIT,
            },
            {"postinst": _PERSISTENCED_POSTINST.replace("@VERSION@", v), "prerm": _PERSISTENCED_PRERM},
        ),
        Package(n.meta, version, {"Depends": exactly(*(each for each in n.all if each != n.meta)), **_virtual("nvidia-driver-any")}),
    ]  # fmt: skip
    if old:
        utils = alone("nvidia-utils", depends=exactly(n.library))
        return (*made, Package(n.tools[0], version, utils, smi))
    return (*made, Package(n.tools[0], version, {}, {"usr/bin/nvidia-modprobe": "#!/bin/sh\n"}))


def _virtual(*provided: str) -> dict[str, str]:
    joined = ", ".join(provided)
    return {"Provides": provided[0], "Conflicts": joined, "Replaces": joined}


def module_file(version: str, licence: str, kernel: str) -> bytes:
    """A file that the real modinfo reads as a module: an ELF object with nothing in it but what it says of itself."""
    said = {
        "license": licence, "version": version, "name": "nvidia", "srcversion": f"{zlib.crc32(version.encode()):024X}",
        "vermagic": f"{kernel} SMP preempt mod_unload modversions ",
    }  # fmt: skip
    info = b"".join(f"{key}={value}\0".encode() for key, value in said.items())
    strings = b"\0.modinfo\0.shstrtab\0"
    body = info + strings
    at = 64 + len(body) + (-len(body)) % 8
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = identity + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, 3, 2)
    section = struct.Struct("<IIQQQQIIQQ")
    sections = section.pack(*([0] * 10))
    sections += section.pack(1, 1, 2, 0, 64, len(info), 0, 0, 1, 0)
    sections += section.pack(10, 3, 0, 0, 64 + len(info), len(strings), 0, 0, 1, 0)
    return head + body + bytes((-len(body)) % 8) + sections


_STAND_IN = """\
#!/bin/sh
# stand-in of @WHAT@; drives no hardware
exec /usr/local/lib/lab/@WHAT@ "$@"
"""

_DKMS_CONF = """\
PACKAGE_NAME="nvidia"
PACKAGE_VERSION="@VERSION@"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="yes"
"""

_MODPROBE_CONF = """\
# shipped with @VERSION@
blacklist nouveau
options nvidia NVreg_PreserveVideoMemoryAllocations=1
"""

_PERSISTENCED = """\
#!/bin/sh
# stand-in: like the real one it opens the device, so it cannot start beside a module of another version
[ "${1-}" != --version ] || { echo "nvidia-persistenced:  version @VERSION@"; exit 0; }
nvidia-smi -L >/dev/null || exit 1
: >/loopback/units/nvidia-persistenced.new && echo active >/loopback/units/nvidia-persistenced
trap 'rm -f /loopback/units/nvidia-persistenced; exit 0' TERM
while :; do sleep 3600 & wait $!; done
"""

_PERSISTENCED_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon (stand-in)
After=lab-boot.service
[Service]
ExecStart=/usr/bin/nvidia-persistenced
KillMode=mixed
ExecStopPost=-/bin/rm -f /loopback/units/nvidia-persistenced
[Install]
WantedBy=multi-user.target
"""

_PERSISTENCED_POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
# The knob may name the one version that asks.
knob=/loopback/knobs/asks-question
if [ -e $knob ] && { [ ! -s $knob ] || grep -qx '@VERSION@' $knob; }; then
    printf 'Keep the GPUs initialised? [y/n] '
    read -r answer || { echo "nvidia-persistenced: no answer to a question" >&2; exit 1; }
fi
[ ! -e /loopback/knobs/postinst-fails ] || { echo "nvidia-persistenced: postinst fails, as asked" >&2; exit 1; }
deb-systemd-helper enable nvidia-persistenced.service >/dev/null || true
[ ! -d /run/systemd/system ] || { systemctl daemon-reload; deb-systemd-invoke restart nvidia-persistenced.service || true; }
"""

_PERSISTENCED_PRERM = """\
#!/bin/sh
set -e
[ "$1" != remove ] || [ ! -d /run/systemd/system ] || deb-systemd-invoke stop nvidia-persistenced.service || true
"""

_LIBRARY_PREINST = """\
#!/bin/sh
set -e
if [ -e /loopback/knobs/refuses-downgrade ] && [ "$1" = upgrade ] && dpkg --compare-versions "$2" gt @VERSION@; then
    echo "a downgrade from $2 to @VERSION@ is not supported" >&2
    exit 1
fi
if [ -r /loopback/knobs/slow-unpack ]; then sleep "$(cat /loopback/knobs/slow-unpack)"; fi
"""

# Like dkms, it builds for every kernel whose headers are there, and fails with 10 where a build fails.
_MODULE_POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
echo "Loading new nvidia-@VERSION@ DKMS files..."
if [ -r /loopback/knobs/slow-package ]; then sleep "$(cat /loopback/knobs/slow-package)"; fi
for headers in /lib/modules/*/build; do
    [ -d "$headers" ] || continue
    place=${headers%/build}
    kernel=${place##*/}
    mkdir -p "/var/lib/dkms/nvidia/@VERSION@/build"
@BUILD@
done
"""

_BUILDS = """\
    echo "Building initial module for $kernel"
    mkdir -p "$place/updates/dkms" "/var/lib/dkms/nvidia/@VERSION@/$kernel/$(uname -m)/module"
    cp "/usr/src/nvidia-@VERSION@/nvidia.ko" "$place/updates/dkms/nvidia.ko.new"
    mv "$place/updates/dkms/nvidia.ko.new" "$place/updates/dkms/nvidia.ko"
    cp "$place/updates/dkms/nvidia.ko" "/var/lib/dkms/nvidia/@VERSION@/$kernel/$(uname -m)/module/nvidia.ko"
    depmod -a "$kernel"
    echo "nvidia @VERSION@" >"/boot/initrd.img-$kernel"
    echo "Done."
"""

_FAILS = """\
    echo "Building initial module for $kernel"
    echo "Error! Bad return status for module build on kernel: $kernel (x86_64)" >&2
    echo "Consult /var/lib/dkms/nvidia/@VERSION@/build/make.log for more information." >&2
    exit 10
"""

# What the real prerm does through `dkms remove`: the module of this version leaves every kernel.
_MODULE_PRERM = """\
#!/bin/sh
set -e
for module in /lib/modules/*/updates/dkms/nvidia.ko; do
    [ -f "$module" ] || continue
    place=${module%/updates/dkms/nvidia.ko}
    if [ "$(modinfo -F version "$module")" = "@VERSION@" ]; then
        rm -f "$module"
        depmod -a "${place##*/}"
    fi
done
rm -rf "/var/lib/dkms/nvidia/@VERSION@"
"""
