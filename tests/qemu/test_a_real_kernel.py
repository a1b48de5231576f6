"""What a container cannot show: a module that is really built, loaded, held and refused, a kernel that is really booted - once, and not again.

One file, so that there is one machine at a time: each of these takes minutes of a whole core.
"""

import json
from collections.abc import Callable

import pytest

from lab.guest import Guest
from lab.guest_base import PROGRAMS
from lab.packages import OPEN, RELEASES, names
from tests.qemu.conftest import NEW, OLD, SAME_BRANCH, Bench

SOURCES = {release.version: release for release in RELEASES}

pytestmark = [pytest.mark.slow, pytest.mark.lab(*PROGRAMS), pytest.mark.xdist_group("qemu")]

HOLDER = """\
#!/bin/sh
exec 3</dev/nvidia0 || exit 1
while :; do sleep 3600 3<&- & wait $!; done
"""
HOLDER_UNIT = """\
[Service]
ExecStart=/usr/local/bin/dcgm-exporter
[Install]
WantedBy=multi-user.target
"""

# Where the initramfs of one kernel hands over to nobody: as a kernel does that lacks a driver for its disk.
PANIC = """\
#!/bin/sh
[ "${1-}" = prereqs ] && exit 0
case $(uname -r) in @KERNEL@) echo c >/proc/sysrq-trigger ;; esac
"""


def is_whole_on(guest: Guest, driver: str, kernel: str) -> None:
    """Loaded, library, disk and packages are `driver` on `kernel`; nothing is half done, everything is held, nobody has the node."""
    truth = guest.truth()
    release = SOURCES[driver]
    wanted = names(release, OPEN).all
    assert {truth["loaded"], truth["library"], truth["disk"]} == {driver}, truth
    assert truth["kernel"] == kernel
    assert truth["packages"].split() == [f"{name}={release.package_version}" for name in wanted]
    assert truth["audit"] == ""
    assert truth["lease"] == ""
    assert set(wanted) <= set(truth["holds"].split())


def cause(bench: Bench) -> str:
    """Why the node's run ended as it did."""
    return str(json.loads(str(bench.desk.runs()[bench.guest.name]["notes"])).get("cause", ""))


def next_kernel(guest: Guest) -> str:
    """The wish for the newer kernel that the repository offers."""
    listed = guest.ok(f"apt-get -q update >/dev/null; apt-cache madison linux-image-{guest.next_kernel}")
    return f"{{want: {guest.next_kernel}, package: {listed.split('|')[1].strip()}}}"


def test_a_module_is_built_and_exchanged_and_its_holders_are_stopped_in_order_and_run_again(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    bench.guest.put("/usr/local/bin/dcgm-exporter", HOLDER)
    bench.guest.put("/etc/systemd/system/dcgm-exporter.service", HOLDER_UNIT)
    bench.guest.ok("chmod 755 /usr/local/bin/dcgm-exporter")
    bench.guest.ok("systemctl enable --now dcgm-exporter nvidia-persistenced")
    assert bench.guest.sh("rmmod nvidia").exit_status != 0
    before = bench.guest.boot_id()
    said = bench.change(SAME_BRANCH)
    assert said.exit_code == 0, said.out + said.err
    is_whole_on(bench.guest, SAME_BRANCH, bench.guest.kernel)
    assert bench.guest.boot_id() == before
    assert bench.guest.ok("systemctl is-active dcgm-exporter nvidia-persistenced").split() == ["active", "active"]
    asked = "journalctl --no-pager -o short-monotonic -u dcgm-exporter -u nvidia-persistenced | grep -E 'Stopped|Started' | tail -n 4"
    order = [line.split("]: ")[-1].split(" - ")[0] for line in bench.guest.ok(asked).splitlines()]
    assert [word.split()[0] for word in order] == ["Stopped", "Stopped", "Started", "Started"]
    assert "dcgm-exporter" in order[0]
    assert "persistenced" in order[1]
    assert "persistenced" in order[2]


def test_a_module_that_is_held_by_no_service_is_not_pulled_away_and_the_node_restarts(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    bench.guest.ok("cp /bin/sleep /usr/local/bin/nv-hostengine")
    bench.guest.ok("setsid -f nv-hostengine infinity 3</dev/nvidia0 </dev/null >/dev/null 2>&1")
    before = bench.guest.boot_id()
    said = bench.change(SAME_BRANCH)
    assert said.exit_code == 0, said.out + said.err
    assert "Module nvidia is in use" in said.out
    assert bench.guest.boot_id() != before
    is_whole_on(bench.guest, SAME_BRANCH, bench.guest.kernel)


def test_a_module_that_finds_no_gpu_is_gone_back_from_by_a_restart(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.guest.put("/etc/modprobe.d/lab.conf", f"options nvidia refuse={SAME_BRANCH}\n")
    before = bench.guest.boot_id()
    said = bench.change(SAME_BRANCH)
    assert said.exit_code == 6, said.out + said.err
    assert bench.phase() == "rolled-back"
    assert "No such device" in cause(bench)
    assert bench.guest.boot_id() != before
    is_whole_on(bench.guest, OLD, bench.guest.kernel)


def test_a_kernel_without_headers_is_named_before_anything_is_touched(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    plan = bench.planned(NEW)
    other = "6.1.0-99-cloud-amd64"
    bench.guest.ok(f"cp /boot/vmlinuz-{bench.guest.kernel} /boot/vmlinuz-{other}")
    bench.desk.muster("apply", plan, limit_s=600)
    assert bench.phase() == "left-out"
    assert f"the headers of {other}, which the node can boot, are missing" in cause(bench)
    bench.desk.ok("collect")
    refused = bench.desk.muster("plan")
    assert f"no headers for {other}" in refused.out, refused.out + refused.err
    is_whole_on(bench.guest, OLD, bench.guest.kernel)


def test_kernel_headers_and_driver_are_one_change_and_the_new_kernel_is_the_default_afterwards(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    wish = next_kernel(bench.guest)
    said = bench.change(NEW, wish)
    assert said.exit_code == 0, said.out + said.err
    is_whole_on(bench.guest, NEW, bench.guest.next_kernel)
    assert bench.guest.sh("test -e /etc/default/grub.d/zz-muster.cfg").exit_status == 1
    bench.guest.reboot()
    is_whole_on(bench.guest, NEW, bench.guest.next_kernel)
    assert f"nvidia/{NEW}, {bench.guest.kernel}, x86_64: installed" in bench.guest.ok("dkms status")


def test_a_kernel_alone_that_panics_is_left_by_the_machine_itself_and_then_by_muster(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    wish = next_kernel(bench.guest)
    bench.guest.put(
        "/etc/initramfs-tools/scripts/init-top/lab-panic", PANIC.replace("@KERNEL@", bench.guest.next_kernel)
    )
    bench.guest.ok("chmod 755 /etc/initramfs-tools/scripts/init-top/lab-panic")
    said = bench.change(OLD, wish)
    assert said.exit_code == 6, said.out + said.err
    assert bench.phase() == "rolled-back"
    assert f"kernel.running is {bench.guest.kernel}, not {bench.guest.next_kernel}" in cause(bench)
    assert "Kernel panic" in bench.guest.console()
    is_whole_on(bench.guest, OLD, bench.guest.kernel)
    assert bench.guest.next_kernel not in bench.guest.ok("ls /boot")
    assert bench.guest.sh("test -e /etc/default/grub.d/zz-muster.cfg").exit_status == 1
