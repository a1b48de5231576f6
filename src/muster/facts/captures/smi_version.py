"""`nvidia-smi --version`: the tool's, the library's and the driver's version."""

import re
from collections.abc import Mapping

from muster.facts.captures import _text
from muster.facts.captures._gpus import first_version, versions
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue

_LINE = re.compile(r"(NVIDIA-SMI|NVML|DRIVER|CUDA|KMD|CUDA UMD) version\s*:\s*(\S.{0,200})", re.IGNORECASE)


def sniff(head: str) -> int:
    return 95 if head.lstrip().startswith("NVIDIA-SMI version") else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`report.deprecated` names the lines that from 610 on only say where the value has gone."""
    said = {match[1].upper(): match[2].strip() for line in text.split("\n")[:200] if (match := _LINE.match(line))}
    found: dict[str, FactValue] = {
        "nvidia_smi.version": _text.or_unknown(said.get("NVIDIA-SMI"), "the output does not say"),
        "nvml.version": _text.or_unknown(said.get("NVML"), "the output does not say"),
    }
    deprecated = tuple(sorted(name for name, value in said.items() if value.startswith("Deprecated")))
    if deprecated:
        found["report.deprecated"] = deprecated
    found |= versions(
        driver=first_version((said.get("KMD"), said.get("DRIVER"), "")),
        cuda=first_version((said.get("CUDA UMD"), said.get("CUDA"), "")),
    )
    return found


READER = CaptureSpec("smi_version", "nvidia-smi --version", sniff, parse)
