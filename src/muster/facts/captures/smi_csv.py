"""`nvidia-smi --query-gpu=... --format=csv`: a row per GPU. Columns that mean what a fact of the XML report means have that fact's path."""

import re
from collections.abc import Mapping

from muster.facts.captures import _csv
from muster.facts.captures._gpus import Gpus, first_version
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_SAME: Mapping[str, str] = {
    "name": "name", "gpu_name": "name", "serial": "serial", "gpu_serial": "serial", "vbios_version": "vbios",
    "pci.bus_id": "bus_id", "gpu_bus_id": "bus_id", "pci.device_id": "pci_device_id", "memory.total": "memory",
    "persistence_mode": "persistence", "addressing_mode": "addressing_mode", "mig.mode.current": "mig.mode", "mig.mode.pending": "mig.pending",
    "ecc.mode.current": "ecc.mode", "ecc.mode.pending": "ecc.pending", "compute_mode": "compute_mode",
    "driver_model.current": "driver_model", "gpu_recovery_action": "recovery_action", "fabric.state": "fabric.state",
    "fabric.status": "fabric.status", "remapped_rows.pending": "row_remap.pending", "remapped_rows.failure": "row_remap.failure",
    "remapped_rows.correctable": "row_remap.correctable", "remapped_rows.uncorrectable": "row_remap.uncorrectable",
    "clocks_event_reasons.hw_slowdown": "throttle.hw_slowdown", "clocks_throttle_reasons.hw_slowdown": "throttle.hw_slowdown",
    "clocks_event_reasons.hw_power_brake_slowdown": "throttle.hw_power_brake_slowdown",
    "clocks_throttle_reasons.hw_power_brake_slowdown": "throttle.hw_power_brake_slowdown",
}  # fmt: skip
_OF_THE_NODE = {"timestamp", "driver_version", "kmd_version", "cuda_version", "count", "gpu_count", "uuid", "gpu_uuid"}
_KNOWN = {*_SAME, *_OF_THE_NODE, "index", "pstate", "compute_cap", "temperature.gpu", "utilization.gpu"}


def sniff(head: str) -> int:
    table = _csv.split(head)
    if table is None:
        return 0
    names = {name for name, _ in table[0]}
    if "pid" in names or any(name.startswith("retired_pages.a") for name in names):
        return 0
    known = len(names & _KNOWN)
    return 95 if (known >= 2 and known * 4 >= len(names)) or known >= 8 else 60 if known and len(names) == 1 else 0


def parse(text: str) -> Mapping[str, FactValue]:
    table = _csv.split(text)
    if table is None or not {name for name, _ in table[0]} & _KNOWN:
        return {"gpu.count": Unknown("the table has no header line that is known: take it without noheader")}
    header, lines = table
    gpus, drivers, cudas, read = Gpus(), [], [], 0
    for row in _csv.rows(lines, header, free="name"):
        read += 1
        key = gpus.add(_of(row, "uuid", "gpu_uuid"), _of(row, "pci.bus_id", "gpu_bus_id"), row.get("index"))
        if key is None:
            continue
        drivers.append(first_version((row.get("driver_version"), row.get("kmd_version"))))
        cudas.append(row.get("cuda_version"))
        for column, cell in row.items():
            if column not in _OF_THE_NODE and cell:
                gpus.put(key, _SAME.get(column) or _snake(column), "N/A" if cell == "[Not Supported]" else cell)
    found = dict(gpus.result(driver=_one(drivers), cuda=_one(cudas)))
    found |= {"report.columns": len(header), "report.rows": read}
    if "kmd_version" in {name for name, _ in header}:
        found["report.names"] = "610"
    if read < len(lines) or not lines:
        found["gpu.count"] = Unknown(f"{read} of the table's {len(lines)} rows can be read")
    return found


def _of(row: Mapping[str, str], *columns: str) -> str | None:
    return next((row[column] for column in columns if column in row), None)


def _one(versions: list[str | None]) -> str | None:
    """The version that all rows name; all of them, where they differ (they are of one node, and cannot)."""
    return ", ".join(sorted({version for version in versions if version})) or None


def _snake(column: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", column).lower()


READER = CaptureSpec("smi_csv", "nvidia-smi --query-gpu=... --format=csv", sniff, parse)
