"""Plain `nvidia-smi`: the table that people paste. It has no UUIDs, so a GPU's key is its bus id; what the table cuts off is Unknown."""

import re
from collections.abc import Iterator, Mapping, Sequence

from muster.facts import _smi
from muster.facts.captures import _text
from muster.facts.captures._gpus import Gpus, first_version
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_HEADER = re.compile(r"^\|\s*NVIDIA-SMI\s+(\d[\w.]{0,30})\s", re.MULTILINE)
_VERSION = re.compile(r"(Driver|KMD|CUDA|CUDA UMD) Version:\s*(\d[\w.]{0,30}|N/A|ERR!)")
_FIRST = re.compile(r"\s*(\d{1,4})\s+(\S.{0,60}?)\s+(On|Off|WDDM|TCC|MCDM|N/A|ERR!)\s*")
_BUS = re.compile(r"\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s+(On|Off|N/A|ERR!)\s*")
_SENSORS = re.compile(r"\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+) ?/ *(\S+)\s*")
_MEMORY = re.compile(r"\s*(\d{1,9})MiB ?/ *(\d{1,9})MiB\s*")
_MIG_ROW = re.compile(r"\s*(\d{1,4})\s+(\d{1,4})\s+(\d{1,4})\s+(\d{1,4})\s*")
_PROCESS = re.compile(
    r"\|\s+(\d{1,4})\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(\d{1,10})\s+(C\+G|M\+C|C|G)\s+(\S.*?)\s+(\d+MiB|N/A)?\s*\|"
)
_WARNING = re.compile(r"^WARNING: (.{1,200})", re.MULTILINE)
_EXIT = re.compile(r"(?:^|\n)\s*(?:# \(exit code: )?(\d{1,3})\)?\s*$")
_SWITCH = {"On": "Enabled", "Off": "Disabled"}
_MODELS = ("WDDM", "TCC", "MCDM")
_COMPUTE = {"E. Process": "Exclusive_Process", "E. Thread": "Exclusive_Thread"}


def sniff(head: str) -> int:
    return 98 if _HEADER.search(head) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """GPUs, MIG devices (`mig[<gpu>/<gi>/<ci>]`) and processes of the table, its warnings, and the exit status where it was pasted below."""
    gpus = Gpus()
    version = _HEADER.search(text)
    again = _HEADER.search(text, version.end()) if version else None
    if again:
        text = text[: again.start()]
    said = {match[1]: match[2] for match in _VERSION.finditer(text[: (version.end() if version else 0) + 400])}
    found: dict[str, FactValue] = {}
    migs: dict[str, int] = {}
    by_index: dict[str, str] = {}
    for group in _groups(text):
        row = _FIRST.fullmatch(group[0][0])
        device = _MIG_ROW.fullmatch(group[0][0])
        if row and len(group[0]) == 3:
            key = _gpu(gpus, row, group)
            if key is not None:
                by_index[row[1]] = key
        elif device and len(group[0]) == 4 and len(migs) <= 256:
            gpu = by_index.get(device[1], device[1])
            migs[gpu] = migs.get(gpu, 0) + 1
            found |= _mig(gpu, device, group[0])
    for key in gpus.keys:
        found[f"gpu[{key}].mig.device_count"] = migs.get(key, 0)
    found["mig.count"] = sum(migs.values()) if gpus.keys else Unknown("the table lists no GPU")
    found |= _beside(text)
    found["nvidia_smi.version"] = _text.or_unknown(
        version[1] if version else None, "the text holds no header of a table"
    )
    if said:
        found["report.header"] = tuple(f"{name} Version" for name in said)
    if again:
        found["report.repeats"] = 1
    result = gpus.result(
        driver=first_version((said.get("KMD"), said.get("Driver"), "")),
        cuda=first_version((said.get("CUDA UMD"), said.get("CUDA"), "")),
    )
    return {**found, **result}


def _groups(text: str) -> Iterator[list[list[str]]]:
    """The lines between two rules of the table, each as its cells."""
    group: list[list[str]] = []
    for line in text.split("\n"):
        if line.startswith("|") and not line.startswith(("|-", "|=")):
            if len(group) < 4:
                group.append(line[1:].rstrip().removesuffix("|").split("|", 8))
        else:
            if group:
                yield group
            group = []
    if group:
        yield group


def _gpu(gpus: Gpus, row: re.Match[str], group: Sequence[Sequence[str]]) -> str | None:
    bus = _BUS.fullmatch(group[0][1])
    key = gpus.add(bus[1] if bus else None, row[1])
    if key is None:
        return None
    name = row[2].strip()
    gpus.found[f"gpu[{key}].name"] = (
        Unknown(f"the table cuts it off: {name}") if name.endswith("...") else _smi.reading(name)
    )
    gpus.put(key, "index", row[1])
    if bus:
        gpus.put(key, "bus_id", bus[1])
    # The column is the persistence mode on Linux and the driver model on Windows.
    gpus.put(key, "driver_model" if row[3] in _MODELS else "persistence", _SWITCH.get(row[3], row[3]))
    _ecc(gpus, key, group[0][2].strip())
    if len(group) > 1 and len(group[1]) == 3:
        _second(gpus, key, group[1])
    if len(group) > 2 and len(group[2]) == 3:
        mode = group[2][2].strip()
        gpus.put(key, "mig.mode", mode.rstrip("*"))
        gpus.found[f"gpu[{key}].mig.change_pending"] = mode.endswith("*")
    return key


def _ecc(gpus: Gpus, key: str, cell: str) -> None:
    """`Off` is a board with ECC switched off, `N/A` one without; a number counts errors and so says that it is on, as `On` does with MIG."""
    count = _text.whole(cell)
    gpus.put(key, "ecc.mode", "Enabled" if count is not None else _SWITCH.get(cell, cell))
    if count is not None:
        gpus.found[f"gpu[{key}].ecc.volatile.uncorrectable"] = count


def _second(gpus: Gpus, key: str, cells: Sequence[str]) -> None:
    sensors = _SENSORS.fullmatch(cells[0])
    if sensors:
        for field, value in zip(
            ("fan", "temperature.gpu", "pstate", "power.draw", "power.limit"), sensors.groups(), strict=True
        ):
            gpus.put(key, field, value)
    memory = _MEMORY.fullmatch(cells[1])
    gpus.put(key, "memory", f"{memory[2]} MiB" if memory else cells[1].strip())
    util, _, compute = cells[2].strip().partition(" ")
    gpus.put(key, "utilization.gpu", util)
    gpus.put(key, "compute_mode", _COMPUTE.get(compute.strip(), compute.strip()))


def _mig(gpu: str, device: re.Match[str], cells: Sequence[str]) -> Mapping[str, FactValue]:
    memory = _MEMORY.fullmatch(cells[1])
    name = f"mig[{_text.key(gpu)}/{device[2]}/{device[3]}]"
    size: FactValue = f"{memory[2]} MiB" if memory else Unknown("the table's cell holds no size")
    return {f"{name}.gpu": gpu, f"{name}.index": device[4], f"{name}.memory": size}


def _beside(text: str) -> Mapping[str, FactValue]:
    """The processes, the warnings below the table, and the exit status."""
    found: dict[str, FactValue] = {}
    rows = [match for line in text.split("\n") if (match := _PROCESS.fullmatch(line.rstrip()))][:100_000]
    found["processes.rows"] = len(rows)
    holders = {int(row[2]): row[4] for row in rows if "C" in row[3]}
    found["holder.pids"] = tuple(str(pid) for pid in sorted(holders))
    found["holder.names"] = tuple(holders[pid][:200] for pid in sorted(holders))
    if "Processes:" not in text:
        found["holder.pids"] = found["holder.names"] = found["processes.rows"] = Unknown(
            "the table has no part for processes"
        )
    warnings = tuple(match[1].strip() for match in _WARNING.finditer(text))[:100]
    if warnings:
        found["report.warnings"] = warnings
    status = _EXIT.search(text.rstrip()[-200:])
    if status:
        found["report.exit_status"] = int(status[1])
    return found


READER = CaptureSpec("smi_table", "nvidia-smi", sniff, parse)
