"""Whatever happens to a node in the middle of its change, it ends on one whole stack, old or new, never between."""

from collections.abc import Callable

import pytest

from lab.node import until
from lab.packages import OPEN, RELEASES, names
from lab.tools import PROGRAMS
from tests.nspawn.conftest import OLD, Bench

NEW = "595.71.05"
SOURCES = {release.version: release for release in RELEASES}
LIMIT_S = 180.0

# Holds dpkg's own two locks, as another package manager does, and says when it has them.
LOCK_HOLDER = """
import fcntl, sys, time
held = [open("/var/lib/dpkg/" + name, "a") for name in ("lock-frontend", "lock")]
for lock in held: fcntl.lockf(lock, fcntl.LOCK_EX)
open("/run/lock-held", "w").close()
time.sleep(float(sys.argv[1]))
"""

pytestmark = [pytest.mark.slow, pytest.mark.lab(*PROGRAMS), pytest.mark.xdist_group("nspawn")]


def whole_driver(bench: Bench) -> str:
    """The one driver that the node is whole on: loaded, library, disk, every package. Fails for anything between."""
    truth = bench.node.truth()
    assert truth["loaded"] == truth["library"] == truth["disk"], truth
    assert truth["audit"] == "", truth
    assert truth["lease"] == "", truth
    release = SOURCES[truth["loaded"]]
    wanted = names(release, OPEN).all
    assert truth["packages"].split() == [f"{name}={release.package_version}" for name in wanted]
    assert set(wanted) <= set(truth["holds"].split())
    return truth["loaded"]


def begun(bench: Bench, plan: str) -> None:
    """The change of packages is under way on the node."""
    bench.desk.ok("apply", plan, "--detach")
    until(lambda: bench.phase() == "apply-required", "the change", LIMIT_S)


def asleep(bench: Bench, seconds: str, what: str) -> None:
    """A package's script sleeps as its knob says: a script that has only begun may not have read the knob yet."""
    until(lambda: bench.node.sh(f"pgrep -fx 'sleep {seconds}'").exit_status == 0, what, LIMIT_S)


def task_of(bench: Bench, phase: str) -> str:
    """The folder of the task of a phase, as the node names it."""
    return bench.node.sh(f"ls -d /var/lib/muster/node/tasks/*-{phase}-0 2>/dev/null").stdout.strip()


def test_a_power_cut_in_mid_unpack_ends_on_the_old_driver(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    plan = bench.planned(NEW)
    bench.node.set_knob("slow-unpack", "5")
    begun(bench, plan)
    asleep(bench, "5", "the unpacking")
    bench.node.set_knob("slow-unpack", None)
    before = bench.node.boot_id()
    bench.node.power_cut()
    assert bench.node.boot_id() != before
    said = bench.desk.muster("apply", plan)
    assert bench.phase() == "rolled-back", said.out
    assert whole_driver(bench) == OLD


def test_a_killed_wrapper_does_not_kill_the_transaction_and_the_node_ends_whole(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    plan = bench.planned(NEW)
    bench.node.set_knob("slow-package", "4")
    begun(bench, plan)
    until(lambda: bool(task_of(bench, "apply")), "the task", LIMIT_S)
    task = task_of(bench, "apply")
    asleep(bench, "4", "the postinst")
    bench.node.ok(f"kill -9 $(cat {task}/pid)")
    said = bench.desk.muster("apply", plan)
    assert bench.phase() in ("rolled-back", "done"), said.out
    whole_driver(bench)
    assert bench.node.ok("dpkg --audit") == ""


def test_a_disk_that_fills_in_the_middle_ends_on_the_old_driver(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    plan = bench.planned(NEW)
    bench.node.set_knob("slow-unpack", "4")
    begun(bench, plan)
    asleep(bench, "4", "the unpacking")
    bench.node.sh(
        "dd if=/dev/zero of=/var/filler bs=1M 2>/dev/null; dd if=/dev/zero of=/var/filler2 bs=512 2>/dev/null"
    )
    assert int(bench.node.ok("df --output=avail /var | tail -n 1")) == 0
    until(lambda: bench.phase() != "apply-required", "the failure", LIMIT_S)
    bench.node.set_knob("slow-unpack", None)
    bench.node.ok("rm -f /var/filler /var/filler2")
    bench.desk.muster("apply", plan)
    assert bench.phase() == "rolled-back"
    assert whole_driver(bench) == OLD


def test_a_lock_of_dpkg_that_is_held_for_90_s_is_waited_for_and_its_holder_lives(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    plan = bench.planned(NEW)
    bench.node.ok(f"systemd-run --quiet --unit=holder python3 -c '{LOCK_HOLDER}' 90")
    until(
        lambda: (
            (bench.node.root / "run/lock-held").exists() or bench.node.sh("test -e /run/lock-held").exit_status == 0
        ),
        "the lock",
    )
    said = bench.desk.muster("apply", plan)
    assert said.exit_code == 0, said.out + said.err
    assert whole_driver(bench) == NEW
    assert bench.node.ok("systemctl show -p Result,ExecMainStatus holder").split() == [
        "Result=success",
        "ExecMainStatus=0",
    ]


def test_a_repository_that_is_gone_leaves_the_node_as_it_is_and_later_is_not_needed(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    plan = bench.planned(NEW)
    bench.lab.unserve()
    said = bench.desk.muster("apply", plan)
    assert bench.phase() == "left-out", said.out
    assert "the repository cannot be read" in said.out
    assert whole_driver(bench) == OLD
    bench.lab.serve()
    plan = bench.planned(NEW)
    bench.node.set_knob("postinst-fails")
    bench.node.set_knob("slow-unpack", "3")
    begun(bench, plan)
    bench.lab.unserve()
    bench.desk.muster("apply", plan)
    bench.node.set_knob("postinst-fails", None)
    assert bench.phase() in ("rolled-back", "quarantined")
    if bench.phase() == "rolled-back":
        assert whole_driver(bench) == OLD
