"""The driver's packages for a virtual machine: the names and dependencies of `lab.packages`, with a kernel module that is real.

The module is a stand-in under the name `nvidia`, GPL, a hundred lines: a character device that processes hold open, /proc/driver/nvidia/version
as the real one words it, a version in /sys, and a refusal to load (ENODEV) on request. It comes as DKMS source and is built by the real dkms.
"""

from collections.abc import Iterable
from dataclasses import replace

from lab.packages import RELEASES, Package, Release, packages

GUEST_RELEASES = tuple(each for each in RELEASES if each.version in ("580.95.05", "580.126.20", "595.71.05"))
"""What the repository of a virtual machine offers."""


def guest_packages(releases: Iterable[Release] = GUEST_RELEASES) -> tuple[Package, ...]:
    """Every package of `releases`, with modules that dkms builds."""
    return tuple(_real(each, release) for release in releases for each in packages(release, ""))


def _real(package: Package, release: Release) -> Package:
    version = release.version
    if package.name.startswith("nvidia-dkms"):
        needs = f"{package.fields['Depends']}, dkms"
        scripts = {name: text.replace("@VERSION@", version) for name, text in _DKMS_SCRIPTS.items()}
        return replace(package, fields={**package.fields, "Depends": needs}, scripts=scripts)
    if package.name.startswith("nvidia-kernel-source"):
        flavour = "Open " if "open" in package.name else ""
        licence = "Dual MIT/GPL" if flavour else "GPL"
        place = f"usr/src/nvidia-{version}"
        source = _SOURCE.replace("@VERSION@", version).replace("@FLAVOUR@", flavour).replace("@LICENCE@", licence)
        files = {f"{place}/dkms.conf": _DKMS_CONF.replace("@VERSION@", version), f"{place}/nvidia.c": source}
        return replace(package, files={**files, f"{place}/Makefile": "obj-m := nvidia.o\n"})
    unit = "lib/systemd/system/nvidia-persistenced.service"
    if unit in package.files:
        service: dict[str, str | bytes] = {
            **package.files,
            unit: _PERSISTENCED_UNIT,
            "usr/bin/nvidia-persistenced": _PERSISTENCED.replace("@VERSION@", version),
        }
        return replace(package, files=service)
    return package


_SOURCE = """\
// SPDX-License-Identifier: MIT OR GPL-2.0
// Stand-in of the laboratory under the name of NVIDIA's module. Drives no hardware.
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/string.h>

#define DRIVER "@VERSION@"

static char *refuse = "";
module_param(refuse, charp, 0444);
MODULE_PARM_DESC(refuse, "the driver version that finds no GPU");
static int NVreg_PreserveVideoMemoryAllocations;
module_param(NVreg_PreserveVideoMemoryAllocations, int, 0444);

static const struct file_operations nothing = { .owner = THIS_MODULE };
static struct miscdevice gpu = { .minor = MISC_DYNAMIC_MINOR, .name = "nvidia0", .fops = &nothing, .mode = 0666 };

static int show_version(struct seq_file *out, void *unused)
{
	seq_puts(out, "NVRM version: NVIDIA UNIX @FLAVOUR@Kernel Module for x86_64  " DRIVER "  Release Build  (lab)\\n");
	seq_puts(out, "GCC version:  " __VERSION__ "\\n");
	return 0;
}

static int show_params(struct seq_file *out, void *unused)
{
	seq_printf(out, "PreserveVideoMemoryAllocations: %d\\nEnableGpuFirmware: 18\\n", NVreg_PreserveVideoMemoryAllocations);
	return 0;
}

static int __init nvidia_init(void)
{
	struct proc_dir_entry *place;
	int failed;

	if (!strcmp(refuse, DRIVER)) {
		pr_err("NVRM: No NVIDIA GPU found.\\n");
		return -ENODEV;
	}
	failed = misc_register(&gpu);
	if (failed)
		return failed;
	place = proc_mkdir("driver/nvidia", NULL);
	proc_create_single("version", 0444, place, show_version);
	proc_create_single("params", 0444, place, show_params);
	pr_info("NVRM: loading NVIDIA UNIX @FLAVOUR@Kernel Module  " DRIVER "\\n");
	return 0;
}

static void __exit nvidia_exit(void)
{
	remove_proc_subtree("driver/nvidia", NULL);
	misc_deregister(&gpu);
}

module_init(nvidia_init);
module_exit(nvidia_exit);
MODULE_LICENSE("@LICENCE@");
MODULE_VERSION(DRIVER);
MODULE_DESCRIPTION("Stand-in of the laboratory, drives no hardware");
"""

_DKMS_CONF = """\
PACKAGE_NAME="nvidia"
PACKAGE_VERSION="@VERSION@"
MAKE[0]="make -C $kernel_source_dir M=$dkms_tree/$PACKAGE_NAME/$PACKAGE_VERSION/build modules"
CLEAN="true"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="yes"
"""

# As the real ones do through /usr/lib/dkms/common.postinst: for every kernel whose headers are there.
_DKMS_SCRIPTS = {
    "postinst": """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
dkms add -m nvidia -v @VERSION@ 2>/dev/null || true
for headers in /lib/modules/*/build; do
    [ -d "$headers" ] || continue
    kernel=${headers%/build}
    dkms install --force -m nvidia -v @VERSION@ -k "${kernel##*/}"
done
update-initramfs -u
""",
    "prerm": """\
#!/bin/sh
set -e
dkms remove -m nvidia -v @VERSION@ --all || true
""",
}

_PERSISTENCED = """\
#!/bin/sh
# stand-in: holds the device open, as the real one does, under its name
[ "${1-}" != --version ] || { echo "nvidia-persistenced:  version @VERSION@"; exit 0; }
exec 3</dev/nvidia0 || exit 1
trap 'exit 0' TERM
while :; do sleep 3600 3<&- & wait $!; done
"""

_PERSISTENCED_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon (stand-in)
After=systemd-modules-load.service
[Service]
ExecStart=/usr/bin/nvidia-persistenced
[Install]
WantedBy=multi-user.target
"""
