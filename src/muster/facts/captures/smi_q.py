"""`nvidia-smi -q`, whole or in part (`-d ECC,PAGE_RETIREMENT`): an indented text. Values keep the paths of the XML report."""

import re
from collections.abc import Iterator, Mapping

from muster.facts.captures._gpus import Gpus, first_version
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_FIELDS: Mapping[str, str] = {
    "product name": "name", "product brand": "brand", "product architecture": "architecture", "serial number": "serial",
    "vbios version": "vbios", "pci/bus id": "bus_id", "pci/device id": "pci_device_id", "minor number": "minor",
    "board part number": "board_part", "gpu part number": "gpu_part", "gsp firmware version": "gsp_firmware",
    "fb memory usage/total": "memory", "persistence mode": "persistence", "addressing mode": "addressing_mode",
    "mig mode/current": "mig.mode", "mig mode/pending": "mig.pending", "ecc mode/current": "ecc.mode", "ecc mode/pending": "ecc.pending",
    "compute mode": "compute_mode", "gpu virtualization mode/virtualization mode": "virtualization",
    "driver model/current": "driver_model", "gpu recovery action": "recovery_action",
    "fabric/state": "fabric.state", "fabric/status": "fabric.status",
    "remapped rows/correctable error": "row_remap.correctable", "remapped rows/uncorrectable error": "row_remap.uncorrectable",
    "remapped rows/pending": "row_remap.pending", "remapped rows/remapping failure occurred": "row_remap.failure",
    "retired pages/single bit ecc": "retired_pages.single_bit", "retired pages/double bit ecc": "retired_pages.double_bit",
    "retired pages/pending page blacklist": "retired_pages.pending",
    "ecc errors/volatile/dram correctable": "ecc.volatile.dram_correctable",
    "ecc errors/volatile/dram uncorrectable": "ecc.volatile.dram_uncorrectable",
    "ecc errors/volatile/sram correctable": "ecc.volatile.sram_correctable",
    "ecc errors/volatile/sram uncorrectable": "ecc.volatile.sram_uncorrectable",
    "ecc errors/aggregate/dram correctable": "ecc.aggregate.dram_correctable",
    "ecc errors/aggregate/dram uncorrectable": "ecc.aggregate.dram_uncorrectable",
    "performance state": "pstate", "fan speed": "fan",
}  # fmt: skip
"""Place in the text (lower case, joined by `/`) -> fact under `gpu[<uuid>].`."""

_ANYWHERE: Mapping[str, str] = {
    "hw slowdown": "throttle.hw_slowdown",
    "hw thermal slowdown": "throttle.hw_thermal_slowdown",
    "hw power brake slowdown": "throttle.hw_power_brake_slowdown",
}
"""What has one name in a GPU's block is taken by the end of that name: the heading above it has been renamed before (535), and will be."""

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_LINE = re.compile(r"( *)(\S[^:\n]{0,120}?)\s*(?: : (.*)|:(?=\s*$)|$)")
_HEAD = re.compile(r"^(?:Driver Version|KMD Version)\s+: ", re.MULTILINE)
_MOST_DEPTH = 16
_MOST_LINES = 200_000
"""Ten times what sixteen GPUs with MIG print."""
_TITLE = "==============NVSMI LOG=============="


def sniff(head: str) -> int:
    if "NVSMI LOG" in head[:2000]:
        return 98
    return (
        90
        if _HEAD.search(head) and re.search(r"^(?:Attached GPUs\s+: |GPU [0-9A-Fa-f]{8}:)", head, re.MULTILINE)
        else 0
    )


def parse(text: str) -> Mapping[str, FactValue]:
    """All GPUs whose block is there, by UUID, by bus id where a part of the report has none. A text that ends within a GPU says less than
    `gpu.attached`: then `gpu.count` is Unknown, and `report.gpu_blocks` says how many began.
    """
    gpus = Gpus()
    top: dict[str, str] = {}
    block: dict[str, str] = {}
    bus, migs, blocks = "", 0, 0
    for place, value in _places(_first_report(text)):
        started = _GPU.fullmatch(value) if place == "" else None
        if started:
            _finish(gpus, bus, block, migs)
            bus, block, migs = started[1], {}, 0
            blocks += 1
        elif not bus:
            top.setdefault(place, value)
        elif place == "mig device":
            migs += 1
        else:
            block.setdefault(place, value)
    _finish(gpus, bus, block, migs)
    found = dict(
        gpus.result(
            driver=first_version((top.get("kmd version"), top.get("driver version"))),
            cuda=first_version((top.get("cuda umd version"), top.get("cuda version"))),
            attached=top.get("attached gpus"),
        )
    )
    if text.count(_TITLE) > 1:
        found["report.repeats"] = text.count(_TITLE) - 1
    found["report.gpu_blocks"] = blocks if blocks else Unknown("no GPU's block is in the text")
    attached = found.get("gpu.attached")
    if isinstance(attached, int) and attached != found["gpu.count"]:
        found["gpu.count"] = Unknown(f"the report speaks of {attached} GPUs and holds {blocks} of them")
    return found


def _first_report(text: str) -> str:
    """Up to where a tool that ran in a loop begins again."""
    first = text.find(_TITLE)
    again = text.find(_TITLE, first + 1) if first >= 0 else -1
    return text if again < 0 else text[:again]


def _finish(gpus: Gpus, bus: str, block: Mapping[str, str], migs: int) -> None:
    """One GPU's block into its facts."""
    if not bus:
        return
    key = gpus.add(block.get("gpu uuid"), bus)
    if key is None:
        return
    for place, field in _FIELDS.items():
        value = block.get(place)
        if value:
            gpus.put(key, field, value)
    for place, value in block.items():
        for name, field in _ANYWHERE.items():
            if value and place.rpartition("/")[2].endswith(name):
                gpus.put(key, field, value)
    gpus.found.setdefault(f"gpu[{key}].bus_id", bus)
    if migs or "mig mode/current" in block:
        gpus.found[f"gpu[{key}].mig.device_count"] = migs


def _places(text: str) -> Iterator[tuple[str, str]]:
    """(place, value) of each line; a heading's value is empty. A GPU's first line has the empty place and itself as value."""
    stack: list[tuple[int, str]] = []
    for line in text.split("\n", _MOST_LINES)[:_MOST_LINES]:
        if line.startswith("GPU ") and _GPU.fullmatch(line):
            stack = []
            yield "", line
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        indent, name = len(match[1]), match[2].lower()
        while stack and stack[-1][0] >= indent:
            stack.pop()
        if len(stack) < _MOST_DEPTH:
            stack.append((indent, name))
            yield "/".join(each for _, each in stack), (match[3] or "").strip()


READER = CaptureSpec("smi_q", "nvidia-smi -q", sniff, parse)
