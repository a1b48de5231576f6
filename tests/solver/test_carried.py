"""Laws of package names over the rename with R590, both ways, by the knowledge base itself."""

from dataclasses import replace

import pytest

from muster.knowledge.loader import load
from muster.model.stack import PackagePin, pins_from
from muster.solver.carried import Carried, NotNamed, carried
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


EL = (
    "kmod-nvidia-open-dkms",
    "libnvidia-ml",
    "nvidia-driver-cuda",
    "nvidia-driver-cuda-libs",
    "nvidia-kmod-common",
    "nvidia-modprobe",
)


def el_node(*streams: PackagePin, system: str = "rocky 9.4", driver: str = "580.126.20") -> NodeClass:
    packages = tuple(sorted((*streams, *pins_from(dict.fromkeys(EL, f"3:{driver}-1.el9")))))
    return replace(
        kind(), os=system, arch="x86_64", driver=driver, loaded=driver, flavour="open", manager="dnf", packages=packages,
    )  # fmt: skip


@pytest.mark.parametrize("system", ["rhel 9.4", "rocky 9.4", "almalinux 9", "ol 8.10", "rhel 10.0"])
def test_on_rhel_and_its_like_names_stay_with_the_branch_and_change_with_the_flavour(system: str) -> None:
    there = carried(el_node(system=system), "595.71.05", "open", "3:595.71.05-1.el9", BASE)
    assert isinstance(there, Carried)
    assert tuple(pin.name for pin in there.packages) == EL
    assert {pin.version for pin in there.packages} == {"3:595.71.05-1.el9"}


def test_the_flavour_of_another_module_leaves_with_its_name() -> None:
    there = carried(el_node(), "580.126.20", "proprietary", "", BASE)
    assert isinstance(there, Carried)
    names = tuple(pin.name for pin in there.packages)
    assert "kmod-nvidia-latest-dkms" in names
    assert "kmod-nvidia-open-dkms" in there.renamed


@pytest.mark.parametrize(
    ("now", "target", "flavour", "then"),
    [
        ("580-open", "595.71.05", "open", "595-open"),
        ("580-open", "580.95.05", "open", "580-open"),
        ("open-dkms", "580.95.05", "open", "open-dkms"),
        ("open-dkms", "595.71.05", "open", "595-open"),
        ("580-open", "580.126.20", "proprietary", "580-dkms"),
    ],
)
def test_a_module_stream_goes_to_that_of_the_branch_and_flavour_by_the_data(
    now: str, target: str, flavour: str, then: str
) -> None:
    there = carried(el_node(PackagePin("@nvidia-driver", now)), target, flavour, f"3:{target}-1.el9", BASE)
    assert isinstance(there, Carried)
    assert PackagePin("@nvidia-driver", then) in there.packages


def test_a_stream_that_nobody_names_is_not_guessed() -> None:
    node = el_node(PackagePin("@nvidia-driver", "580-open"), system="fedora 42")
    there = carried(node, "595.71.05", "open", "", BASE)
    assert isinstance(there, NotNamed)
    assert there.packages == ("@nvidia-driver",)
    assert "R595" in there.why
