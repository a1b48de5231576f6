"""Each refusal that prevents an outage stands in the plan under the node's own name."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from muster.model.fact import FactValue
from tests.support.desk import Desk
from tests.support.planning import NEW, OLD, seen
from tests.support.shelf import made_now, put

SXM: Mapping[str, FactValue] = {"gpu.product": "NVIDIA A100-SXM4-80GB", "gpu.fabric_state": "N/A"}
OFFERED: Mapping[str, FactValue] = {
    "repository.lists": True,
    f"repository[{OLD}-1].missing": (),
    f"repository[{NEW}-1].missing": (),
}
FM: Mapping[str, FactValue] = {
    "package[nvidia-fabricmanager].version": f"{OLD}-1", "package[nvidia-fabricmanager].state": "installed",
    "package[nvidia-fabricmanager].hold": True, "fabric_manager.present": True, "fabric_manager.version": OLD,
}  # fmt: skip

FLEET: Mapping[str, tuple[Mapping[str, FactValue | None], str]] = {
    "fm-missing": ({**SXM, **FM, **OFFERED, f"repository[{NEW}-1].missing": ("nvidia-fabricmanager",)}, f"no fabric manager for {NEW}"),
    "fm-none": (SXM, f"no fabric manager for {NEW}: none is installed"),
    "no-headers": ({"kernel[6.1.0-18-amd64].headers": False}, "no headers for 6.1.0-18-amd64"),
    "image": ({"root_fs.kind": "overlay"}, "boots from an image (root on overlay)"),
    "no-way-back": ({**OFFERED, f"repository[{OLD}-1].missing": ("libcuda1",)}, "no way back: the node's repository has lost libcuda1"),
    "run-file": ({"runfile.installed": True}, "a .run install lies on it"),
    "unsigned": ({"secure_boot.enabled": True, "secure_boot.enrolled": ("a key",)}, "modules built for 6.1.0-18-amd64 are not signed"),
    "good": (OFFERED, ""),
}  # fmt: skip
VOLTA: Mapping[str, FactValue] = {"gpu.product": "Tesla V100-PCIE-16GB", "module.nvidia.flavour": "proprietary"}

POLICY = """
schema: 1
fleet: lab
inventory:
  - ansible: hosts.ini
pools:
  train: {match: {label.role: train}, driver: {want: 580.126.20}}
  later: {match: {label.role: later}, driver: {want: 615.71.10}}
"""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What the plan says of each node that it leaves out."""
    folder: Path = tmp_path_factory.mktemp("refusals")
    (folder / "fleet.yaml").write_text(POLICY, encoding="utf-8")
    hosts = "".join(f"{name} role=train\n" for name in FLEET) + "volta role=later\nclosed role=later\n"
    (folder / "hosts.ini").write_text(f"[all]\n{hosts}", encoding="utf-8")
    desk = Desk(folder, folder / "muster.db")
    looks = [seen(name, {"gpu.confidential": False, **values}) for name, (values, _) in FLEET.items()]
    looks += [seen("volta", VOLTA), seen("closed", {"module.nvidia.flavour": "proprietary"})]
    put(desk, [made_now(each) for each in looks])
    plan = desk.here("plan", "--json").body["plan"]
    assert isinstance(plan, dict)
    # Nodes with one reason may stand together.
    return {node: each["detail"] for each in plan["left_out"] for node in each.get("subjects", [each.get("subject")])}


@pytest.mark.parametrize("name", [name for name, (_, words) in FLEET.items() if words])
def test_a_node_that_must_not_be_changed_stands_in_the_plan_by_name_with_the_reason(
    left: Mapping[str, str], name: str
) -> None:
    assert FLEET[name][1] in left[name]


def test_a_gpu_that_the_branch_dropped_is_refused_by_name(left: Mapping[str, str]) -> None:
    assert "R615 does not drive Volta GPUs any more" in left["volta"]


def test_closed_modules_on_a_branch_without_any_are_refused_by_name(left: Mapping[str, str]) -> None:
    assert "R615 has no proprietary modules for NVIDIA H100 PCIe" in left["closed"]


def test_a_node_against_which_nothing_speaks_is_not_left_out(left: Mapping[str, str]) -> None:
    assert "good" not in left
