"""`nvidia-smi --query-compute-apps=... --format=csv`: the processes on the GPUs at one moment."""

from collections.abc import Mapping

from muster.facts import _smi
from muster.facts.captures import _csv, _text
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown


def sniff(head: str) -> int:
    table = _csv.split(head)
    names = {name for name, _ in table[0]} if table else set()
    return 98 if "pid" in names and names & {"process_name", "gpu_uuid", "used_gpu_memory", "gpu_name"} else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """The holders as the node's own source gives them, and per process its name, memory and GPU (`process[<pid>@<gpu>]`)."""
    table = _csv.split(text)
    if table is None or "pid" not in dict(table[0]):
        return {"holder.pids": Unknown("the table has no header line with pid: take it without noheader")}
    header, lines = table
    found: dict[str, FactValue] = {}
    holders: dict[int, str] = {}
    read = 0
    for row in _csv.rows(lines, header, free="process_name"):
        pid = _text.whole(row.get("pid"))
        if pid is None:
            continue
        read += 1
        holders[pid] = row.get("process_name", "")
        key = _text.key(f"{pid}@{row.get('gpu_uuid') or row.get('gpu_bus_id') or ''}")
        for column, field in (("process_name", "name"), ("used_gpu_memory", "memory"), ("gpu_bus_id", "bus_id")):
            if column in row:
                found[f"process[{key}].{field}"] = _smi.reading(row[column][:500])
    found |= {
        "holder.pids": tuple(str(pid) for pid in sorted(holders)),
        "holder.names": tuple(holders[pid][:500] for pid in sorted(holders)),
        "report.columns": len(header),
        "report.rows": read,
    }
    if read < len(lines):
        found["holder.pids"] = found["holder.names"] = Unknown(f"{read} of the table's {len(lines)} rows can be read")
    return found


READER = CaptureSpec("smi_compute_apps", "nvidia-smi --query-compute-apps=... --format=csv", sniff, parse)
