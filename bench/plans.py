"""A site to plan on: nodes of 80 classes whose looks are stored, in racks, with Slurm's jobs on most of them. No chance, no network.

Slurm's commands are stand-ins on PATH that print what was written once, as Slurm 22.05 does: what is measured is what Muster makes of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.fleet import T0, looked, name, outputs
from muster.backends.store.sqlite import open_store
from muster.model.fact import BySource, FactValue, NodeFacts, Told

WANTED = "580.126.20"
_PRODUCTS = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S")
_KERNELS = ("6.1.0-31-amd64", "6.1.0-32-amd64", "6.1.0-34-amd64", "6.1.0-35-amd64")
_DRIVERS = ("570.133.20", "570.172.08", "575.57.08", "580.65.06")
CLASSES = len(_PRODUCTS) * len(_KERNELS) * len(_DRIVERS)
_SIZES = (1, 1, 4, 1, 8, 1, 1, 2, 1, 4, 1, 1, 16, 1, 2)
"""Nodes of a job, over and over: 45 nodes for 15 jobs."""

_POLICY = f"""
schema: 1
fleet: bench
inventory:
  - slurm: {{}}
pools:
  train: {{match: {{slurm.partition: train}}, tier: critical, driver: {{want: {WANTED}}}, max_unavailable: {{pool: 5%}}}}
  batch: {{match: {{slurm.partition: batch}}, driver: {{want: {WANTED}}}, max_unavailable: {{pool: 10%}}}}
  lab: {{match: {{slurm.partition: lab}}, tier: development, driver: {{want: {WANTED}}}, max_unavailable: {{pool: 25%}}}}
"""


@cache
def site(nodes: int, jobs: int) -> Mapping[str, str]:
    """A site of so many nodes and jobs: the environment of a command that works on it. It goes with this process."""
    folder = Path(_kept(TemporaryDirectory(prefix="muster-bench-")).name)
    (folder / "fleet.yaml").write_text(_POLICY, encoding="utf-8")
    _stand_in(
        folder, "sinfo", json.dumps({"meta": {}, "errors": [], "nodes": [_node(number) for number in range(nodes)]})
    )
    _stand_in(folder, "squeue", "".join(_jobs(nodes, jobs)))
    store = open_store(str(folder / "muster.db"))
    for start in range(0, nodes, 10_000):
        asyncio.run(store.save_facts([_seen(number) for number in range(start, min(nodes, start + 10_000))]))
    asyncio.run(store.close())
    return {
        "MUSTER_FLEET": str(folder / "fleet.yaml"),
        "MUSTER_STORE": str(folder / "muster.db"),
        "PATH": f"{folder}:/usr/bin:/bin",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


def _stand_in(folder: Path, command: str, says: str) -> None:
    (folder / f"{command}.out").write_text(says, encoding="utf-8")
    (folder / command).write_text(f'#!/bin/sh\nexec cat "{folder}/{command}.out"\n', encoding="utf-8")
    (folder / command).chmod(0o755)


def _node(number: int) -> Mapping[str, object]:
    partition = ("train", "train", "train", "train", "train", "train", "batch", "batch", "batch", "lab")[
        number // 64 % 10
    ]
    return {
        "architecture": "x86_64", "boards": 1, "boot_time": 1796040444, "comment": "", "cores": 64, "cpu_load": 393, "extra": "",
        "free_memory": 19665, "cpus": 128, "last_busy": 1796047166, "features": f"rack{number // 32}", "active_features":
        f"rack{number // 32}", "gres": "gpu:8", "gres_drained": "N/A", "gres_used": "gpu:0", "mcs_label": "", "name": name(number),
        "next_state_after_reboot": "invalid", "address": name(number), "hostname": name(number), "state": "idle",
        "state_flags": ["DRAIN"] if number % 997 == 5 else [], "next_state_after_reboot_flags": [], "operating_system": "Linux",
        "owner": None, "partitions": [partition], "port": 6818, "real_memory": 2_000_000, "reason": "bad DIMM" if number % 997 == 5
        else "", "reason_changed_at": 0, "reason_set_by_user": "root" if number % 997 == 5 else None, "slurmd_start_time": 1796047165,
        "sockets": 2, "threads": 1, "temporary_disk": 0, "weight": 1, "tres": "cpu=128,mem=2000G,billing=128", "slurmd_version": "22.05.8",
        "alloc_memory": 0, "alloc_cpus": 0, "idle_cpus": 128, "tres_used": None, "tres_weighted": 0.0,
    }  # fmt: skip


def _jobs(nodes: int, jobs: int) -> Iterator[str]:
    """Jobs side by side, as long as there are nodes; every seventh one without an end."""
    at = 0
    for number in range(jobs):
        size = _SIZES[number % len(_SIZES)]
        if at + size > nodes:
            return
        last = at + size - 1
        on = name(at) if size == 1 else f"gpu[{at:05d}-{last:05d}]"
        ends = (
            "NONE"
            if number % 7 == 3
            else (T0 + timedelta(minutes=10 + 17 * (number % 60))).strftime("%Y-%m-%dT%H:%M:%S")
        )
        limit = "UNLIMITED" if number % 7 == 3 else "1-00:00:00"
        yield f"{1000 + number}|RUNNING|{size}|{limit}|{ends}|train|lab{number % 9}|{on}\n"
        at += size


def _class_of(number: int) -> int:
    return number // 3 % CLASSES


def _seen(number: int) -> NodeFacts:
    """What node `number` shows: the recorded look of a node, with its class's driver, kernel and model, and its own ids."""
    told = []
    for each in _recorded().told:
        values = _kind(_class_of(number))
        shared = {path: values.get(path, value) for path, value in each.values.items()}
        if each.source == "gpu":
            shared = {path.replace("GPU-", f"GPU-{number:05x}"): value for path, value in shared.items()}
        if each.source == "system":
            shared["boot_id"] = f"{number:08x}-0000"
        told.append(Told(each.source, T0, shared, each.momentary))
    told.append(Told("bench", T0, _added(_class_of(number))))
    return NodeFacts(name(number), T0, BySource(told))


@cache
def _recorded() -> BySource:
    facts = looked(1, outputs(1)).facts
    assert isinstance(facts, BySource)
    return facts


@cache
def _kind(kind: int) -> Mapping[str, FactValue]:
    product, kernel, driver = _choice(kind)
    packages = {
        path: f"{driver}-1"
        for path, value in ((p, _recorded()[p].value) for p in _recorded())
        if value == f"{WANTED}-1"
    }
    return packages | {
        "gpu.product": product, "kernel.running": kernel, "module.nvidia.loaded_version": driver, "library.libcuda.version": driver,
        "module.nvidia.disk_version": driver,
    }  # fmt: skip


@cache
def _added(kind: int) -> Mapping[str, FactValue]:
    """What the recorded look does not have, and a planned node must."""
    _product, kernel, driver = _choice(kind)
    wanted: Mapping[str, FactValue] = {
        "module.nvidia.disk_version": driver, "module.nvidia.flavour": "open", "root_fs.kind": "ext4", "holder.pids": (),
        "packages.manager": "dpkg", "library.libcuda.version": driver, "lease.held": False,
        "kernel.bootable": (kernel,), "kernel.next_boot": kernel, f"kernel[{kernel}].headers": True, "dkms.present": True,
        f"kernel[{kernel}].nvidia.signer": "none", "secure_boot.enabled": False, "runfile.installed": False, "service.present": (
        "nvidia-fabricmanager",), "fabric_manager.present": True, "fabric_manager.version": driver, "gpu.confidential": False,
        "repository.lists": True, f"repository[{driver}-1].missing": (), f"repository[{WANTED}-1].missing": (),
    }  # fmt: skip
    return wanted


def _choice(kind: int) -> tuple[str, str, str]:
    driver, rest = _DRIVERS[kind % len(_DRIVERS)], kind // len(_DRIVERS)
    return _PRODUCTS[rest // len(_KERNELS)], _KERNELS[rest % len(_KERNELS)], driver


_FOLDERS: list[TemporaryDirectory[str]] = []


def _kept(folder: TemporaryDirectory[str]) -> TemporaryDirectory[str]:
    _FOLDERS.append(folder)
    return folder
