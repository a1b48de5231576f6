"""Who computes on the GPUs at this moment, as nvidia-smi lists it. Monitoring and idle holders are not among them."""

from collections.abc import Mapping

from muster.facts import _read, _smi
from muster.model.fact import FactSpec, FactValue, RawOutput

_PROVIDES = ("holder.pids", "holder.names")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """The process ids as texts, each once, in order of number, and their names in the same order."""
    why = _read.no_answer(raw, "nvidia-smi")
    if why is None and (raw.exit_status != 0 or raw.truncated):
        why = _smi.message(_read.text(raw), raw.exit_status)
    if why:
        return _read.all_unknown(_PROVIDES, why)
    holders: dict[int, str] = {}
    for line in _read.text(raw).splitlines():
        pid, comma, name = line.partition(",")
        number = _read.whole_number(pid.strip(), "")
        if comma and isinstance(number, int):
            holders[number] = name.strip()
        elif line.strip() and "No running processes found" not in line:
            return _read.all_unknown(_PROVIDES, f"nvidia-smi listed something that is no process: {line.strip()[:80]}")
    pids = sorted(holders)
    return {"holder.pids": tuple(str(pid) for pid in pids), "holder.names": tuple(holders[pid] for pid in pids)}


FACT = FactSpec(
    "compute_apps",
    "nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader 2>&1",
    20,
    65536,
    parse,
    _PROVIDES,
    momentary=True,
)
