"""`nvidia-smi -L`: names and UUIDs of the GPUs and of their MIG devices."""

import re
from collections.abc import Mapping

from muster.facts.captures import _text
from muster.facts.captures._gpus import Gpus
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_GPU = re.compile(r"(?m:^)GPU (\d{1,4}): (.{1,200}?) \(UUID: (GPU-[\w-]{1,80})\)\s*")
_MIG = re.compile(r"\s+MIG (\S{1,40})\s+Device\s+(\d{1,4}): \(UUID: (MIG-[\w/-]{1,120})\)\s*")
_LINK = re.compile(r"^\s+Link \d+:|[Nn]v[Ll]ink", re.MULTILINE)


def sniff(head: str) -> int:
    if _LINK.search(head):
        return 0
    return 95 if _GPU.search(head) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    gpus = Gpus()
    migs: dict[str, int] = {}
    key = None
    devices = 0
    for line in text.split("\n"):
        listed, part = _GPU.match(line), _MIG.match(line)
        if listed:
            key = gpus.add(listed[3], listed[1])
            if key is not None:
                migs[key] = 0
                gpus.put(key, "name", listed[2])
                gpus.put(key, "index", listed[1])
        elif part and key is not None and migs[key] < 64:
            migs[key] += 1
            devices += 1
            name = _text.key(part[3])
            gpus.found |= {f"mig[{name}].profile": part[1], f"mig[{name}].gpu": key, f"mig[{name}].index": part[2]}
    for each, count in migs.items():
        gpus.found[f"gpu[{each}].mig.device_count"] = count
    found = dict(gpus.result())
    found["mig.count"] = devices if gpus.keys else Unknown("the output lists no GPU")
    return found


READER = CaptureSpec("smi_list", "nvidia-smi -L", sniff, parse)
