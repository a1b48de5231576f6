"""Laws of the questions asked before a change and before a restart: a node that would not come up is not begun with, or not restarted."""

import time
from pathlib import Path

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.nodes import KERNEL
from muster.node.readiness import NOT_READY, RESTARTS_A_DAY, TOO_OFTEN, before, before_restart

DRIVER = "580.126.20"
NAMES = ("nvidia-kernel-open-dkms", "libcuda1")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> LoopbackFleet:
    folder = tmp_path_factory.mktemp("readiness") / "fleet"
    return LoopbackFleet.create(folder, nodes=4, initial=dict.fromkeys(("gpu01", "gpu02", "gpu03", "gpu04"), DRIVER))


def test_a_node_that_is_ready_is_begun_with_and_nothing_is_written(fleet: LoopbackFleet) -> None:
    root = fleet.node_root("gpu01")
    seen = sorted(path for path in root.rglob("*"))
    ran = fleet.run("gpu01", "sh -s", stdin=before(NAMES, restarts=True))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert sorted(path for path in root.rglob("*")) == seen


def test_without_headers_nothing_is_begun_that_must_be_built(fleet: LoopbackFleet) -> None:
    (fleet.node_root("gpu02") / f"lib/modules/{KERNEL}/build").rmdir()
    ran = fleet.run("gpu02", "sh -s", stdin=before(NAMES, restarts=False))
    assert ran.exit_status == NOT_READY
    assert f"the headers of the running kernel {KERNEL} are missing" in ran.stdout
    built = fleet.run("gpu02", "sh -s", stdin=before(("linux-modules-nvidia-580-open",), restarts=False))
    assert built.exit_status == 0


def test_every_kernel_that_can_be_booted_must_have_its_headers(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1, initial={"gpu01": DRIVER})
    other = "6.8.0-90-generic"
    (fleet.node_root("gpu01") / f"boot/vmlinuz-{other}").write_text("", encoding="ascii")
    ran = fleet.run("gpu01", "sh -s", stdin=before(NAMES, restarts=False))
    assert ran.exit_status == NOT_READY
    assert f"the headers of {other}, which the node can boot, are missing" in ran.stdout
    (fleet.node_root("gpu01") / f"lib/modules/{other}/build").mkdir(parents=True)
    assert fleet.run("gpu01", "sh -s", stdin=before(NAMES, restarts=False)).exit_status == 0


def test_a_node_is_not_restarted_into_a_kernel_that_has_no_module(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet", nodes=1, initial={"gpu01": DRIVER})
    ran = fleet.run("gpu01", "sh -s", stdin=before_restart(DRIVER, back=False, kernel="6.8.0-90-generic"))
    assert ran.exit_status == NOT_READY
    assert "there is no module nvidia on disk for 6.8.0-90-generic" in ran.stdout
    assert fleet.run("gpu01", "sh -s", stdin=before_restart(DRIVER, back=False, kernel=KERNEL)).exit_status == 0


def test_a_node_is_not_restarted_into_a_module_a_module_that_is_missing_or_another(fleet: LoopbackFleet) -> None:
    ran = fleet.run("gpu03", "sh -s", stdin=before_restart("595.71.05", back=False))
    assert ran.exit_status == NOT_READY
    assert f"is {DRIVER}, not 595.71.05" in ran.stdout
    (fleet.node_root("gpu03") / f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko").unlink()
    ran = fleet.run("gpu03", "sh -s", stdin=before_restart(DRIVER, back=False))
    assert ran.exit_status == NOT_READY
    assert "there is no module nvidia on disk" in ran.stdout


def test_the_third_restart_within_a_day_is_left_to_a_person_and_the_way_back_has_one_more(fleet: LoopbackFleet) -> None:
    for _ in range(RESTARTS_A_DAY):
        assert fleet.run("gpu04", "sh -s", stdin=before_restart(DRIVER, back=False)).exit_status == 0
    assert fleet.run("gpu04", "sh -s", stdin=before(NAMES, restarts=True)).exit_status == TOO_OFTEN
    third = fleet.run("gpu04", "sh -s", stdin=before_restart(DRIVER, back=False))
    assert third.exit_status == TOO_OFTEN
    assert "restarted this node 2 times within a day" in third.stdout
    assert fleet.run("gpu04", "sh -s", stdin=before_restart(DRIVER, back=True)).exit_status == 0
    record: Path = fleet.node_root("gpu04") / "var/lib/muster/node/restarts"
    record.write_text(f"{int(time.time()) - 90000}\n" * 5, encoding="ascii")
    assert fleet.run("gpu04", "sh -s", stdin=before(NAMES, restarts=True)).exit_status == 0
