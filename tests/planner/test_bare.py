"""Laws of a first driver's plan: which nodes are bare, what comes onto them, and who says what they cannot."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from muster.backends.packages.apt import BACKEND as APT
from muster.knowledge.loader import load
from muster.knowledge.query import package_set
from muster.knowledge.schema import PackageSet
from muster.model.fact import FactValue, Unknown
from muster.model.plan import Plan, StepKind, WaitingOn
from muster.model.policy import Flavour
from muster.planner.bare import Installer
from muster.planner.lint import lint
from muster.planner.propose import propose
from tests.support.planning import GOOD, NEW, answer, given, node, policy, seen

DRIVERS = frozenset(version.text for version in load().releases)
ABSENT = Unknown("the module nvidia is not loaded")
BARE: Mapping[str, FactValue | None] = {
    **{path: None for path in GOOD if path.startswith("package[")}, "package[dkms].version": "3.0.10-8", "package[dkms].state": "installed",
    "module.nvidia.on_disk": False, "module.nvidia.loaded": False, "module.nvidia.loaded_version": ABSENT,
    "module.nvidia.disk_version": ABSENT, "module.nvidia.flavour": ABSENT, "library.libcuda.version": ABSENT,
    "gpu.product": "H100 PCIe", "gpu.count": ABSENT, "pci.gpus": 4, "pci.gpus_elsewhere": 4,
}  # fmt: skip


def set_of(system: str, arch: str, number: int, flavour: str) -> PackageSet | None:
    return package_set(load(), system, arch, f"R{number}", Flavour(flavour))


def installed(changes: Mapping[str, FactValue | None], *, wanted: str | None = None) -> Plan:
    wish = policy()
    installer = Installer(
        {each.name: each for each in wish.pools},
        (APT,),
        answer,
        set_of,
        "H100 PCIe",
        DRIVERS,
        ("the source x",),
        wanted,
    )
    facts = {"n1": seen("n1", {**BARE, **changes})}
    return propose(replace(given((node("n1"),), facts, wish), judge=installer))


def test_a_bare_node_gets_what_the_set_of_its_system_always_has() -> None:
    plan = installed({})
    (part,) = plan.nodes
    assert (part.step.kind, part.step.to_driver, part.step.back, part.gpus) == (StepKind.INSTALL, NEW, (), 8)
    pins = {pin.name: pin.version for pin in part.step.packages}
    assert {"nvidia-kernel-open-dkms", "libcuda1", "firmware-nvidia-gsp"} <= set(pins)
    assert set(pins.values()) == {f"{NEW}-1"}
    assert "installs: the source x" in plan.because
    assert [note for note in lint(plan) if note.severity == "fatal"] == []


def test_nouveau_on_the_gpus_costs_a_restart() -> None:
    assert installed({}).nodes[0].step.restart == "reload"
    assert installed({"nouveau.loaded": True}).nodes[0].step.restart == "reboot"


@pytest.mark.parametrize(
    ("changes", "on", "words"),
    [
        ({"module.nvidia.on_disk": True}, WaitingOn.NOTHING_TO_DO, "has a driver already"),
        ({"package[libcuda1].version": f"{NEW}-1", "package[libcuda1].state": "unpacked"}, WaitingOn.NOTHING_TO_DO, "libcuda1"),
        ({"module.nvidia.loaded": ABSENT}, WaitingOn.UNKNOWN_HEALTH, "whether it has a driver is unknown"),
        ({"runfile.installed": True}, WaitingOn.NO_SOLUTION, "nvidia-uninstall"),
        ({"root_fs.kind": "overlay"}, WaitingOn.NO_SOLUTION, "boots from an image"),
        ({"pci.gpus": 0, "pci.gpus_elsewhere": 0}, WaitingOn.NO_SOLUTION, "no GPU of NVIDIA's"),
        ({"os.id": "plan9"}, WaitingOn.NO_SOLUTION, "no package set names it"),
        ({"kernel[6.1.0-18-amd64].headers": False}, WaitingOn.NO_SOLUTION, "headers"),
        (
            {"secure_boot.enabled": True, "secure_boot.enrolled": (), "secure_boot.kernel_keys": ()},
            WaitingOn.NO_SOLUTION, "secure boot",
        ),
    ],
)  # fmt: skip
def test_a_node_that_is_not_bare_or_cannot_have_it_is_left(
    changes: Mapping[str, FactValue], on: WaitingOn, words: str
) -> None:
    (left,) = installed(changes).left_out
    assert left.on is on, left
    assert words in left.detail


def test_lint_wants_nothing_under_a_first_driver() -> None:
    plan = installed({})
    (part,) = plan.nodes
    damaged = replace(plan, nodes=(replace(part, step=replace(part.step, back=part.step.packages[:1])),))
    assert any("over packages that are there" in note.says for note in lint(damaged))
