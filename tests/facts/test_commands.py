"""The commands of the sources that read files, run for real over a folder that stands for a node's root."""

import gzip
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from muster.discovery import one
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

KERNEL = os.uname().release
GRUB = """\
### BEGIN /etc/grub.d/00_header ###
if [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
else
   set default="1>0"
fi
function load_video {
  insmod all_video
}
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-9f' {
\tload_video
\tif [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
\tif [ x$feature_platform_search_hint = xy ]; then
\t  search --no-floppy --fs-uuid --set=root 9f
\tfi
\tlinux\t/boot/vmlinuz-6.1.0-57-amd64 root=UUID=9f ro quiet
\tinitrd\t/boot/initrd.img-6.1.0-57-amd64
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-9f' {
\tmenuentry 'Debian GNU/Linux, with Linux 6.1.0-18-amd64' $menuentry_id_option 'gnulinux-6.1.0-18-amd64-advanced-9f' {
\t\tlinux\t/boot/vmlinuz-6.1.0-18-amd64 root=UUID=9f ro quiet
\t}
}
"""


def facts(name: str, root: Path) -> Mapping[str, FactValue]:
    spec = one("muster.facts", name, "FACT")
    assert isinstance(spec, FactSpec)
    environment = {**os.environ, "MUSTER_ROOT": str(root), "TZ": "UTC"}
    done = subprocess.run(["sh", "-c", spec.command], stdin=subprocess.DEVNULL, capture_output=True, env=environment)
    return spec.parse(RawOutput(done.returncode, done.stdout))


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_the_next_kernel_is_read_out_of_a_real_boot_menu(tmp_path: Path) -> None:
    write(tmp_path, {"boot/vmlinuz-6.1.0-57-amd64": "", "boot/vmlinuz-6.1.0-18-amd64": "", "boot/grub/grub.cfg": GRUB})
    (tmp_path / "lib/modules/6.1.0-57-amd64/build").mkdir(parents=True)
    found = facts("kernels", tmp_path)
    assert found["kernel.next_boot"] == "6.1.0-18-amd64"
    assert (found["kernel[6.1.0-57-amd64].headers"], found["kernel[6.1.0-18-amd64].headers"]) == (True, False)
    write(tmp_path, {"boot/grub/grubenv": "# GRUB Environment Block\nnext_entry=gnulinux-simple-9f\n####\n"})
    assert facts("kernels", tmp_path)["kernel.next_boot"] == "6.1.0-57-amd64"
    (tmp_path / "boot/grub/grub.cfg").unlink()
    (tmp_path / "boot/grub/grubenv").unlink()
    assert facts("kernels", tmp_path)["kernel.next_boot"] == Unknown("there is no boot menu of GRUB")


def test_the_settings_of_automatic_upgrades_are_read_as_apt_reads_them(tmp_path: Path) -> None:
    on = 'APT::Periodic::Update-Package-Lists "1";\n  APT::Periodic::Unattended-Upgrade  "1"; // nightly\n'
    timer = "usr/lib/systemd/system/apt-daily-upgrade.timer"
    write(tmp_path, {"etc/apt/apt.conf.d/20auto-upgrades": on, "usr/bin/unattended-upgrade": "", timer: ""})
    assert facts("upgrades", tmp_path)["upgrades.automatic"] is True
    write(tmp_path, {"etc/apt/apt.conf.d/99site": 'APT::Periodic::Unattended-Upgrade "0";\n'})
    assert facts("upgrades", tmp_path)["upgrades.automatic"] is False
    (tmp_path / "etc/apt/apt.conf.d/99site").unlink()
    masked = tmp_path / "etc/systemd/system/apt-daily-upgrade.timer"
    masked.parent.mkdir(parents=True)
    masked.symlink_to("/dev/null")
    found = facts("upgrades", tmp_path)
    assert (found["upgrades.automatic"], found["upgrades.timer.apt_daily_upgrade"]) == (False, "masked")


def test_nouveau_is_kept_out_by_files_and_the_age_of_the_initramfs_is_held_against_them(tmp_path: Path) -> None:
    write(
        tmp_path,
        {f"lib/modules/{KERNEL}/kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz": "", f"boot/initrd.img-{KERNEL}": ""},
    )
    found = facts("nouveau", tmp_path)
    assert (found["nouveau.on_disk"], found["nouveau.blacklisted"]) == (True, False)
    write(tmp_path, {"etc/modprobe.d/site.conf": "# blacklist nouveau\n"})
    assert facts("nouveau", tmp_path)["nouveau.blacklisted"] is False
    write(tmp_path, {"etc/modprobe.d/site.conf": "blacklist nouveau\n"})
    os.utime(tmp_path / f"boot/initrd.img-{KERNEL}", (1, 1))
    found = facts("nouveau", tmp_path)
    assert (found["nouveau.blacklisted_by"], found["nouveau.initramfs_older"]) == (("/etc/modprobe.d/site.conf",), True)


def test_a_cdi_spec_gives_the_versions_in_its_file_names(tmp_path: Path) -> None:
    spec = "hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.570.195.03\ncontainerPath: /usr/lib/libcuda.so.1\n"
    write(tmp_path, {"etc/cdi/nvidia.yaml": spec, "etc/cdi/README": spec, "var/run/cdi/other.json": "{}"})
    found = facts("container", tmp_path)
    assert found["container.cdi_specs"] == ("/etc/cdi/nvidia.yaml", "/var/run/cdi/other.json")
    assert (found["cdi[/etc/cdi/nvidia.yaml].drivers"], found["cdi[/var/run/cdi/other.json].drivers"]) == (
        ("570.195.03",),
        (),
    )


def test_the_installers_own_traces_are_seen(tmp_path: Path) -> None:
    assert facts("runfile", tmp_path)["runfile.installed"] is False
    write(
        tmp_path,
        {"usr/bin/nvidia-uninstall": "", "var/lib/nvidia/log": "570.195.03\nNVIDIA Accelerated Graphics Driver\n"},
    )
    found = facts("runfile", tmp_path)
    assert (found["runfile.installed"], found["runfile.version"]) == (True, "570.195.03")


def stanza(day: int, command: str, change: str, by: str = "") -> str:
    user = f"Requested-By: {by}\n" if by else ""
    return f"\nStart-Date: 2026-11-{day:02}  06:00:00\nCommandline: {command}\n{user}{change}\nEnd-Date: 2026-11-{day:02}  06:00:09\n"


def test_of_all_transactions_those_that_touched_the_driver_are_sent_also_from_the_log_before(tmp_path: Path) -> None:
    night = "Upgrade: bash:amd64 (5.2-1, 5.2-2), libcuda1:amd64 (570.195.03-1, 580.126.20-1), zlib1g:amd64 (1.2, 1.3)"
    log = stanza(2, "apt-get install vim", "Install: vim:amd64 (9)") + stanza(3, "/usr/bin/unattended-upgrade", night)
    write(tmp_path, {"var/log/apt/history.log": log, "var/log/dpkg.log": ""})
    first = stanza(1, "apt install cuda", "Install: cuda-drivers:amd64 (570-1)", "alice (1000)")
    (tmp_path / "var/log/apt/history.log.1.gz").write_bytes(gzip.compress(first.encode()))
    found = facts("transactions", tmp_path)
    assert [path for path in found if path.endswith(".by")] == [
        f"transaction[2026-11-0{day}T06:00:00].by" for day in (1, 3)
    ]
    assert found["transaction[2026-11-03T06:00:00].packages"] == ("libcuda1 570.195.03-1 -> 580.126.20-1",)
    assert found["transaction[2026-11-03T06:00:00].line"] == (
        "apt/history.log:9: Upgrade: libcuda1 (570.195.03-1, 580.126.20-1)"
    )
    assert log.splitlines()[9 - 1] == night
    assert found["transaction[2026-11-01T06:00:00].by"] == "alice (1000)"
    assert str(found["transaction[2026-11-01T06:00:00].line"]).startswith("apt/history.log.1.gz:5: ")


def test_a_log_of_years_is_read_to_its_end_and_the_newest_are_sent(tmp_path: Path) -> None:
    years = "".join(
        stanza(day, "apt upgrade", f"Upgrade: libcuda1:amd64 ({year}.{day}-1, {year}.{day + 1}-1)").replace(
            "2026-11", f"{year}-11"
        )
        for year in range(2001, 2027)
        for day in range(1, 29)
    )
    write(tmp_path, {"var/log/apt/history.log": years})
    found = facts("transactions", tmp_path)
    assert found["transactions.newest"] == "2026-11-28T06:00:00"
    assert len([path for path in found if path.endswith(".at")]) == 20


def test_a_log_in_bytes_that_are_no_text_gives_what_can_be_read(tmp_path: Path) -> None:
    write(tmp_path, {"var/log/apt/history.log": stanza(3, "apt upgrade", "Upgrade: libcuda1:amd64 (1-1, 2-1)")})
    with (tmp_path / "var/log/apt/history.log").open("ab") as log:
        log.write(b"\xff\xfe\x00\n" * 1000 + b"Upgrade: " + b"nvidia(" * 10_000)
    assert facts("transactions", tmp_path)["transactions.newest"] == "2026-11-03T06:00:00"
