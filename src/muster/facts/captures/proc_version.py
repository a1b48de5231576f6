"""`/proc/driver/nvidia/version`: the loaded module and its flavour; rows of `dkms status` where they were taken with it."""

import re
from collections.abc import Mapping

from muster.facts import module
from muster.facts.captures import _dkms
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_GCC = re.compile(r"^GCC version:\s+(.{1,200})", re.MULTILINE)


def sniff(head: str) -> int:
    return 95 if module.BANNER.match(head.lstrip()) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """The loaded module's facts; `module.nvidia.from_dkms` says whether DKMS knows the loaded version, where its rows are there."""
    banner = module.BANNER.search(text[:4096])
    if banner is None:
        return {"module.nvidia.loaded_version": Unknown("the text holds no line of the module's version")}
    flavour = "open" if banner[1] else "proprietary"
    found: dict[str, FactValue] = {
        "module.nvidia.loaded": True,
        "module.nvidia.loaded_version": banner[2],
        "module.nvidia.loaded_flavour": flavour,
        "module.nvidia.flavour": flavour,
    }
    gcc = _GCC.search(text)
    if gcc:
        found["module.nvidia.compiler"] = gcc[1].strip()
    rows = _dkms.facts(text.split("\n"))
    if rows:
        versions = rows["dkms.versions"]
        found |= rows
        found["module.nvidia.from_dkms"] = isinstance(versions, tuple) and banner[2] in versions
    return found


READER = CaptureSpec("proc_version", "cat /proc/driver/nvidia/version", sniff, parse)
