"""Laws of package names over the rename with R590, both ways, by the knowledge base itself."""

from dataclasses import replace

from muster.knowledge.loader import load
from muster.model.stack import pins_from
from muster.solver.carried import Carried, carried
from muster.solver.problem import NodeClass
from tests.support.solving import kind

BASE = load()
OLD = (
    "libnvidia-compute-580", "nvidia-compute-utils-580", "nvidia-dkms-580-open", "nvidia-driver-580-open", "nvidia-firmware-580",
    "nvidia-kernel-common-580", "nvidia-kernel-source-580-open", "nvidia-utils-580",
)  # fmt: skip


def node(driver: str, names: tuple[str, ...], version: str) -> NodeClass:
    return replace(
        kind(), os="ubuntu 24.04", arch="x86_64", driver=driver, loaded=driver, flavour="open", manager="apt",
        packages=pins_from(dict.fromkeys(names, version)),
    )  # fmt: skip


def test_names_change_with_r590_and_change_back() -> None:
    there = carried(node("580.126.20", OLD, "580.126.20-0ubuntu1"), "595.71.05", "open", "", BASE)
    assert isinstance(there, Carried)
    assert {pin.version for pin in there.packages} == {"595.71.05-1ubuntu1"}
    names = tuple(pin.name for pin in there.packages)
    assert "nvidia-dkms-open" in names and not any("580" in name for name in names)
    back = carried(node("595.71.05", names, "595.71.05-1ubuntu1"), "580.126.20", "open", "", BASE)
    assert isinstance(back, Carried)
    assert tuple(pin.name for pin in back.packages) == OLD
    assert {pin.version for pin in back.packages} == {"580.126.20-0ubuntu1"}
