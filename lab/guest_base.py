"""The disk of a virtual machine: the laboratory's base with a kernel, its headers, dkms, a compiler and GRUB, made once and kept in the cache.

It is a machine's disk as firmware sees it: a partition table, GRUB in the sectors before the first partition, one ext4 file system. No loop
device and no mount is needed to make it. The packages of the next kernel are kept beside it, for a repository to offer them.
"""

import fcntl
import hashlib
import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from lab.base import base
from lab.tools import cache_folder, run

PROGRAMS = (
    "qemu-system-x86_64",
    "qemu-img",
    "systemd-nspawn",
    "debootstrap",
    "mke2fs",
    "ssh",
    "gpg",
    "apt-ftparchive",
    "dpkg-deb",
)
"""What a virtual machine needs beside root; tests name them in their mark."""

DISK_MIB = 3072
FIRST_SECTOR = 2048
SECTOR = 512
_TABLE_AT = 446
LIMIT_S = 1800

_TOOLS = (
    "dkms", "gcc", "make", "initramfs-tools", "zstd", "grub-pc-bin", "grub2-common", "libc6-dev", "openssl", "apt-utils", "dpkg-dev",
)  # fmt: skip

_OPTIONS = "rw console=ttyS0 quiet net.ifnames=0 mitigations=off"
_UUID = "5eed5eed-0000-4000-8000-000000000001"
"""Of every machine's file system: no two of them ever meet."""

_NET_UNIT = """\
[Unit]
Description=The one network of a virtual machine: QEMU's own
DefaultDependencies=no
After=local-fs.target systemd-udev-settle.service
Before=ssh.service network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2'
[Install]
WantedBy=multi-user.target
"""

_GRUB = """\
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR=Lab
GRUB_TERMINAL=console
GRUB_CMDLINE_LINUX_DEFAULT=""
GRUB_CMDLINE_LINUX="@OPTIONS@"
"""

# As update-grub writes it, without what it does for screens; the machine's own update-grub writes the next one.
_MENU = """\
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="0"
fi
menuentry_id_option="--id"
export menuentry_id_option
set timeout=0
menuentry 'Lab GNU/Linux' $menuentry_id_option 'gnulinux-simple-@UUID@' {
\tlinux\t/boot/vmlinuz-@KERNEL@ root=UUID=@UUID@ ro @OPTIONS@
\tinitrd\t/boot/initrd.img-@KERNEL@
}
submenu 'Advanced options for Lab GNU/Linux' $menuentry_id_option 'gnulinux-advanced-@UUID@' {
\tmenuentry 'Lab GNU/Linux, with Linux @KERNEL@' $menuentry_id_option 'gnulinux-@KERNEL@-advanced-@UUID@' {
\t\tlinux\t/boot/vmlinuz-@KERNEL@ root=UUID=@UUID@ ro @OPTIONS@
\t\tinitrd\t/boot/initrd.img-@KERNEL@
\t}
}
"""

_INSIDE = """\
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get -q update
apt-get -q -y install --no-install-recommends @PACKAGES@
mkdir -p /debs
cd /debs
apt-get -q download @NEXT@
rm -f /usr/sbin/policy-rc.d
sed -i 's/^COMPRESS=.*/COMPRESS=gzip/; s/^MODULES=.*/MODULES=list/' /etc/initramfs-tools/initramfs.conf
printf '%s\\n' virtio_pci virtio_blk virtio_net ext4 >>/etc/initramfs-tools/modules
update-initramfs -u -k @KERNEL@
mkdir -p /boot/grub
cp -r /usr/lib/grub/i386-pc /boot/grub/i386-pc
grub-mkimage -O i386-pc -p '(hd0,msdos1)/boot/grub' -o /core.img biosdisk part_msdos ext2 normal linux configfile test loadenv echo search \\
  search_fs_uuid search_fs_file search_label gzio minicmd reboot halt sleep
cp /usr/lib/grub/i386-pc/boot.img /boot.img
grub-editenv /boot/grub/grubenv create
apt-get clean
rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man /usr/share/locale
rm -f /etc/apt/sources.list.d/mirror.list /etc/resolv.conf
for unit in systemd-udevd.service systemd-udev-trigger.service; do rm -f /etc/systemd/system/$unit; done
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer man-db.timer e2scrub_reap.service systemd-logind.service \\
  modprobe@.service dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount systemd-binfmt.service \\
  systemd-update-utmp.service systemd-update-utmp-runlevel.service sys-fs-fuse-connections.mount; do
  ln -sf /dev/null /etc/systemd/system/$unit
done
systemctl enable lab-net.service
"""


@dataclass(frozen=True, slots=True)
class GuestBase:
    """A root to be copied, the kernel it boots, and the packages of the next one."""

    folder: Path
    kernel: str
    next_kernel: str

    @property
    def root(self) -> Path:
        """What lies on its disk, as a folder, in which more can be installed."""
        return self.folder / "root"

    @property
    def debs(self) -> tuple[Path, ...]:
        """The packages of the next kernel and its headers."""
        return tuple(sorted((self.folder / "debs").glob("*.deb")))


def guest_base() -> GuestBase:
    """The base, made if it is not there (a minute or two). Raises RuntimeError with the words of what failed."""
    kernel, following = _kernels()
    text = f"{base().name}\n{kernel}\n{following}\n{_TOOLS}\n{_NET_UNIT}\n{_GRUB}\n{_MENU}\n{_OPTIONS}\n{_INSIDE}"
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    place = cache_folder() / f"guest-{mark}"
    found = GuestBase(place, kernel, following)
    with (place.parent / "guest.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _make(place, kernel, following)
    return found


def _make(place: Path, kernel: str, following: str) -> None:
    made = place.with_name(f"{place.name}.{os.getpid()}")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    root = made / "root"
    run(["cp", "-a", str(base()), str(root)])
    files = {
        "etc/apt/sources.list.d/mirror.list": "".join(f"deb {line}\n" for line in _sources()),
        "etc/systemd/system/lab-net.service": _NET_UNIT,
        "etc/default/grub": _GRUB.replace("@OPTIONS@", _OPTIONS),
        "etc/fstab": "/dev/vda1 / ext4 defaults 0 0\n",
        "boot/grub/grub.cfg": _MENU.replace("@KERNEL@", kernel).replace("@UUID@", _UUID).replace("@OPTIONS@", _OPTIONS),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    short = following.removesuffix("-cloud-amd64")
    packages = (f"linux-image-{kernel}", f"linux-headers-{kernel}", *_TOOLS)
    coming = (f"linux-image-{following}", f"linux-headers-{following}", f"linux-headers-{short}-common")
    inside = _INSIDE.replace("@PACKAGES@", " ".join(packages)).replace("@NEXT@", " ".join(coming))
    nspawn(root, inside.replace("@KERNEL@", kernel), network=True)
    (root / "debs").rename(made / "debs")
    made.rename(place)


def nspawn(root: Path, script: str, *, network: bool = False) -> str:
    """What `script` printed, run by sh as root in `root`. Raises RuntimeError with its words."""
    wire = ["--resolv-conf=copy-host"] if network else ["--private-network", "--resolv-conf=off"]
    argv = [
        "systemd-nspawn",
        "-q",
        "--register=no",
        "--keep-unit",
        "--timezone=off",
        *wire,
        "-D",
        str(root),
        "--pipe",
        "sh",
        "-s",
    ]
    return run(argv, stdin=script, timeout_s=LIMIT_S)


def write_disk(root: Path, disk: Path) -> None:
    """Write a disk that boots what lies in `root`."""
    part = disk.with_suffix(".part")
    run(["mke2fs", "-q", "-t", "ext4", "-m", "0", "-U", _UUID, "-d", str(root), str(part), f"{DISK_MIB}M"])
    with disk.open("wb") as file:
        file.truncate(FIRST_SECTOR * SECTOR + DISK_MIB * 1024 * 1024 + 1024 * 1024)
    boot, core = (root / "boot.img").read_bytes(), (root / "core.img").read_bytes()
    if len(core) > (FIRST_SECTOR - 1) * SECTOR:
        raise RuntimeError("GRUB's core does not fit before the first partition")
    with disk.open("r+b") as file:
        # The first 440 bytes are code, then comes the partition table. GRUB looks for its core in the next sector by itself.
        file.write(boot[:440])
        file.seek(_TABLE_AT)
        file.write(
            struct.pack("<B3xB3xII", 0x80, 0x83, FIRST_SECTOR, DISK_MIB * 1024 * 1024 // SECTOR)
            + bytes(48)
            + b"\x55\xaa"
        )
        file.seek(SECTOR)
        file.write(core)
    run(
        [
            "dd",
            f"if={part}",
            f"of={disk}",
            "bs=1M",
            f"seek={FIRST_SECTOR * SECTOR // 1024 // 1024}",
            "conv=notrunc,sparse",
            "status=none",
        ]
    )
    part.unlink()


def _kernels() -> tuple[str, str]:
    """The second newest and the newest kernel for virtual machines that this machine's package source has."""
    listed = run(["apt-cache", "--names-only", "search", "^linux-image-[0-9.]*-[0-9]*-cloud-amd64$"])
    names = {line.split()[0].removeprefix("linux-image-") for line in listed.splitlines() if line.strip()}
    ordered = sorted(
        names, key=lambda name: [int(part) for part in name.replace("-", ".").split(".") if part.isdigit()]
    )
    if len(ordered) < 2:
        raise RuntimeError("apt on this machine knows no two kernels for virtual machines (linux-image-*-cloud-amd64)")
    return ordered[-2], ordered[-1]


def _sources() -> tuple[str, ...]:
    """This machine's own package sources of its release, as lines of a sources.list."""
    listed = run(
        ["apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    )
    suite = base().name.split("-")[1]
    found = []
    for line in listed.splitlines():
        codename, component, address = line.split(" ", 2)
        if component == "main" and codename in (suite, f"{suite}-security", f"{suite}-updates"):
            found.append(f"{address} {codename} main")
    return tuple(dict.fromkeys(found))
