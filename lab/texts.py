"""The files that make a copy of the base a node of the laboratory, and the texts that are run around it."""

from collections.abc import Mapping
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

CALL = """\
#!/bin/sh
# Stand-in: no module can be loaded in a container, and there is no GPU.
MUSTER_ROOT=/. exec /usr/local/lib/lab/loopback/@NAME@ "$@"
"""

_BOOT = """\
#!/bin/sh
# What the kernel does at a start: nothing is held, no unit has opened the device, the module on disk is loaded.
MUSTER_ROOT=/. root=/.
export MUSTER_ROOT
. /loopback/modules.sh
rm -f /loopback/held/* /loopback/units/*
load nvidia_uvm && load nvidia_drm
: >/run/lab-booted
exit 0
"""

_BOOT_UNIT = """\
[Unit]
Description=Loads the module that is on disk
DefaultDependencies=no
After=local-fs.target
Before=ssh.service nvidia-persistenced.service sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/lab/boot
"""

# The container shows the host's uptime, and a lease counts by it.
_UPTIME = """\
#!/bin/sh
began=$(date +%s)
echo '1.00 1.00' >/run/lab-uptime
mount --bind /run/lab-uptime /proc/uptime || exit 1
while :; do
  now=$(($(date +%s) - began + 1))
  printf '%s.00 %s.00\\n' "$now" "$now" >/run/lab-uptime
  sleep 1
done
"""

_UPTIME_UNIT = """\
[Unit]
Description=Counts since the boot of the container, not of its host
DefaultDependencies=no
Before=ssh.service
[Service]
ExecStart=/usr/local/lib/lab/uptime
"""

_OS_RELEASE = """\
PRETTY_NAME="Ubuntu 24.04 LTS (stand-in: package names and release only; the system is Debian 12)"
NAME="Ubuntu"
VERSION_ID="24.04"
VERSION_CODENAME=noble
ID=ubuntu
ID_LIKE=debian
"""

_SSHD = """\
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
"""


def files_of(name: str, kernel: str, repository: str, public_key: str) -> Mapping[str, str]:
    """Path -> text of every file that is put into a node; a text that begins with `#!` is a program."""
    return {
        "etc/hostname": f"{name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {name}\n",
        "etc/os-release": _OS_RELEASE,
        "etc/ssh/sshd_config": _SSHD,
        "etc/apt/sources.list.d/nvidia.list": f"deb [signed-by=/usr/share/keyrings/lab.gpg] {repository} ./\n",
        "etc/systemd/system/lab-boot.service": _BOOT_UNIT,
        "etc/systemd/system/lab-uptime.service": _UPTIME_UNIT,
        "loopback/kernel": f"{kernel}\n",
        "loopback/dmesg": "",
        f"boot/vmlinuz-{kernel}": "",
        "root/.ssh/authorized_keys": public_key,
        "usr/local/lib/lab/boot": _BOOT,
        "usr/local/lib/lab/uptime": _UPTIME,
    }


def reading_modinfo(modules: str) -> str:
    """The loopback fleet's way to load a module, for module files that are real ones: the real modinfo reads them."""
    for old, new in (
        ("version=$(sed -n 's/^version=//p' \"$file\")", 'version=$(modinfo -F version "$file")'),
        ("! grep -q '^license=Dual MIT/GPL' \"$file\"", '! modinfo -F license "$file" | grep -q "^Dual MIT/GPL"'),
    ):
        if old not in modules:
            raise RuntimeError(f"modules.sh has changed: {old!r} is not in it")
        modules = modules.replace(old, new)
    return modules


def keeper(folder: Path, name: str, namespace: str) -> str:
    """The text that boots the container again and again until `stop` is there."""
    return f"""\
cd '{folder}' || exit 1
echo $$ >keeper.pid
while [ ! -e stop ]; do
  systemd-nspawn -q --register=no --keep-unit --console=pipe --kill-signal=SIGRTMIN+3 -b -D '{folder}/root' -M '{name}' \\
    --network-namespace-path='/run/netns/{namespace}' --tmpfs=/sys/module --tmpfs=/proc/driver \\
    --bind-ro='{folder}/pci:/sys/bus/pci/devices'
  echo "--- ended with $?"
  # A second without a boot would be a busy loop where something is wrong for good.
  sleep 0.2
done
rm -f keeper.pid
"""


TRUTH = """\
echo "loaded=$(cat /sys/module/nvidia/version 2>/dev/null)"
echo "banner=$(head -n 1 /proc/driver/nvidia/version 2>/dev/null)"
echo "library=$(readlink /usr/lib/*/libnvidia-ml.so.1 | sed 's/^libnvidia-ml.so.//')"
echo "disk=$(modinfo -F version nvidia 2>/dev/null)"
echo "licence=$(modinfo -F license nvidia 2>/dev/null)"
echo "audit=$(dpkg --audit | tr '\\n' ' ')"
echo "holds=$(dpkg-query -W -f '${Package} ${db:Status-Want}\\n' | sed -n 's/ hold$//p' | tr '\\n' ' ')"
listed=$(dpkg-query -W -f '${Package}=${Version} ${db:Status-Status}\\n' '*nvidia*' 2>/dev/null)
echo "packages=$(printf '%s\\n' "$listed" | sed -n 's/ installed$//p' | tr '\\n' ' ')"
echo "boot=$(cat /proc/sys/kernel/random/boot_id)"
echo "lease=$([ -e /var/lib/muster/node/lease ] && echo yes)"
"""
