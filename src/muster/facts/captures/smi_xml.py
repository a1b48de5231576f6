"""`nvidia-smi -q -x`: all that the node's own source reads, and what only a report as a whole says (its form, its momentary blocks)."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from muster.facts import gpu
from muster.facts.captures import _text
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, RawOutput, Unknown

_DTD = re.compile(r"nvsmi_device_v(\d{1,3})\.dtd")
_POWER = ("gpu_memory_power_readings", "gpu_power_readings", "module_power_readings", "power_readings")
_THROTTLE = ("clocks_event_reasons", "clocks_throttle_reasons")
_MOST_PROCESSES = 100_000


def sniff(head: str) -> int:
    return 100 if "<nvidia_smi_log" in head else 0


def parse(text: str) -> Mapping[str, FactValue]:
    raw = RawOutput(0, text.encode("utf-8", "replace"))
    found: dict[str, FactValue] = dict(gpu.parse(raw))
    dtd = _DTD.search(text[:4096])
    found["report.dtd"] = _text.or_unknown(dtd[1] if dtd else None, "the report names no DTD")
    log = gpu.document(raw)
    if isinstance(log, Unknown):
        return found
    processes = 0
    for key, element in gpu.by_key(log):
        found |= {f"gpu[{key}].{name}": value for name, value in _blocks(element).items()}
        processes += sum(1 for _ in element.iter("process_info"))
    found["processes.rows"] = min(processes, _MOST_PROCESSES)
    return found


def _blocks(element: ET.Element) -> Mapping[str, FactValue]:
    """Which blocks this driver's report has, how many of its values are lost, and whether clocks are held down."""
    found: dict[str, FactValue] = {
        "report.power_blocks": tuple(name for name in _POWER if element.find(name) is not None),
        "report.throttle_blocks": tuple(name for name in _THROTTLE if element.find(name) is not None),
        "lost_values": sum(1 for each in element.iter() if (each.text or "").strip() == "GPU is lost"),
        "mig.device_count": len(element.findall("mig_devices/mig_device")),
    }
    for block in _THROTTLE:
        for name in ("hw_slowdown", "hw_power_brake_slowdown"):
            for prefix in ("clocks_event_reason_", "clocks_throttle_reason_"):
                value = element.findtext(f"{block}/{prefix}{name}")
                if value is not None:
                    found[f"throttle.{name}"] = value.strip()[:80]
    return found


READER = CaptureSpec("smi_xml", "nvidia-smi -q -x", sniff, parse)
