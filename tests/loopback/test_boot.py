"""A kernel is booted once only where GRUB can do it; where it cannot, that is said before anything is touched, and nothing is written."""

from pathlib import Path

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.nodes import KERNEL
from muster.node.boot import NOT_POSSIBLE, before, settle

KEEP = "/var/lib/muster/node/restore/run-1"


def test_without_grub_a_kernel_is_not_begun_with(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1)
    seen = sorted(fleet.node_root("gpu01").rglob("*"))
    ran = fleet.run("gpu01", "sh -s", stdin=before(KERNEL, "6.8.0-90-generic"))
    assert ran.exit_status == NOT_POSSIBLE
    assert "a kernel is booted once through GRUB" in ran.stdout
    assert sorted(fleet.node_root("gpu01").rglob("*")) == seen


def test_a_boot_loader_that_was_never_touched_is_left_alone(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1)
    ran = fleet.run("gpu01", "sh -s", stdin=settle(KERNEL, KEEP))
    assert ran.exit_status == 0
    assert "was not touched" in ran.stdout
