"""Nodes of many classes that the solver can decide on: recorded outputs, and beside them what those do not hold. No chance, no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bench.fleet import T0, looked, name, outputs
from muster.backends.packages.apt import BACKEND as APT
from muster.knowledge.loader import load
from muster.model.fact import BySource, FactValue, NodeFacts, Told
from muster.planner.classes import node_class
from muster.solver.problem import NodeClass

PRODUCTS = (
    "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA L40S",
    "NVIDIA B200", "Tesla T4",
)  # fmt: skip
KERNELS = ("6.1.0-31-amd64", "6.1.0-32-amd64", "6.1.0-34-amd64", "6.1.0-35-amd64", "6.19.1-1-amd64")
HEADERS = (True, False)
CLASSES = len(PRODUCTS) * len(KERNELS) * len(HEADERS)


def seen(number: int) -> NodeFacts:
    """What node `number` shows, one of `CLASSES` kinds: its product, two bootable kernels, and package lists that offer every known build."""
    product, kernel, headers = _choice(number % CLASSES)
    facts = looked(number, outputs(number)).facts
    assert isinstance(facts, BySource)
    driver = "580.126.20"
    told: Mapping[str, FactValue] = {
        "gpu.product": product, "gpu.fabric_state": "Completed", "gpu.confidential": False, "kernel.running": kernel, "root_fs.kind": "ext4",
        "module.nvidia.disk_version": driver, "module.nvidia.loaded_version": driver, "module.nvidia.flavour": "open",
        "library.libcuda.version": driver, "kernel.bootable": ("6.1.0-18-amd64", kernel), "kernel[6.1.0-18-amd64].headers": True,
        f"kernel[{kernel}].headers": headers, "secure_boot.enabled": False, "runfile.installed": False, "fabric_manager.present": True,
        "fabric_manager.version": driver, "service.present": ("nvidia-fabricmanager", "nvlsm"), "repository.lists": True,
        "lease.held": False, **{f"repository[{version.text}-1].missing": () for version in load().releases},
    }  # fmt: skip
    mine = [replace(each, values={p: v for p, v in each.values.items() if p not in told}) for each in facts.told]
    return NodeFacts(name(number), T0, BySource([*mine, Told("bench", T0, told)]))


def classes() -> Iterator[NodeClass]:
    """One of each kind."""
    for number in range(CLASSES):
        kind = node_class(seen(number), (APT,))
        assert kind is not None
        yield kind


def _choice(kind: int) -> tuple[str, str, bool]:
    rest, headers = divmod(kind, len(HEADERS))
    return PRODUCTS[rest // len(KERNELS)], KERNELS[rest % len(KERNELS)], HEADERS[headers]
