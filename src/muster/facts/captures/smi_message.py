"""What nvidia-smi prints instead of an answer, as a text of its own."""

import re
from collections.abc import Mapping

from muster.facts import _smi
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_TROUBLES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "gpu-lost",
        re.compile(r"Unable to determine the device handle for GPU ?(\S+?): (?:GPU is lost|Unknown Error)", re.I),
    ),
    ("module-not-loaded", re.compile(r"couldn't communicate with the NVIDIA driver")),
    ("library-mismatch", re.compile(r"Driver/library version mismatch")),
    ("library-missing", re.compile(r"couldn't find libnvidia-ml")),
    ("nvml-unknown-error", re.compile(r"Failed to initialize NVML: Unknown Error")),
    ("nvml-failed", re.compile(r"Failed to initialize NVML")),
    ("no-devices", re.compile(r"No devices were found")),
    ("mig-pending", re.compile(r"MIG mode is in pending (?:enable|disable) state for GPU (\S+?):(?! ?\d)")),
    ("tool-missing", re.compile(r"nvidia-smi: (?:command )?not found|'nvidia-smi' is not recognized")),
    ("insufficient-permissions", re.compile(r"Insufficient Permissions")),
)
"""What is said -> a stable word for it; a group is the GPU it speaks of. The first that fits."""

_LIBRARY = re.compile(r"NVML library version: (\d[\d.]{0,20})")
_GONE = ("gpu.count", "gpu.driver_version")


def sniff(head: str) -> int:
    lines = [line for line in head.split("\n") if line.strip()]
    return 80 if len(lines) <= 12 and any(pattern.search(head) for _, pattern in _TROUBLES) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`nvidia_smi.trouble` (a word of the table), what it means, and which GPU or library it names. What it answers nothing about is Unknown."""
    head = text[:65536]
    meaning = _smi.message(head, None)
    found: dict[str, FactValue] = {path: Unknown(meaning) for path in _GONE}
    found["nvidia_smi.trouble"] = Unknown("none of the messages that are known")
    for trouble, pattern in _TROUBLES:
        match = pattern.search(head)
        if match:
            found |= {"nvidia_smi.trouble": trouble, "nvidia_smi.meaning": meaning}
            if match.groups():
                found["nvidia_smi.trouble_gpu"] = match[1]
            break
    library = _LIBRARY.search(head)
    found["nvml.version"] = library[1] if library else Unknown("the message names no library version")
    return found


READER = CaptureSpec("smi_message", "what nvidia-smi prints instead of an answer", sniff, parse)
