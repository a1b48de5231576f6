"""`modinfo nvidia`: the module on disk."""

import re
from collections.abc import Mapping

from muster.facts import module
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_LINE = re.compile(r"([a-z_]{1,30}):\s+(\S.{0,2000})")
_KERNEL = re.compile(r"/lib/modules/([^/]{1,120})/")
_SUFFIX = re.compile(r"\.ko(?:\.(gz|xz|zst))?$")


def sniff(head: str) -> int:
    return 95 if re.search(r"^filename:\s+\S+\.ko", head, re.MULTILINE) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """The disk facts of `module.<name>`, by the file's name (nvidia-uvm is nvidia_uvm): version, flavour, kernel, DKMS, compression."""
    said: dict[str, str] = {}
    for line in text.split("\n")[:20_000]:
        match = _LINE.match(line)
        if match:
            said.setdefault(match[1], match[2].strip())
    path = said.get("filename", "")
    suffix = _SUFFIX.search(path)
    if suffix is None:
        return {"module.nvidia.on_disk": Unknown("the text names no module file")}
    name = re.sub(r"[^a-z0-9_]", "_", path[: suffix.start()].rpartition("/")[2].lower())
    kernel = _KERNEL.search(path)
    found: dict[str, FactValue] = {
        "on_disk": True,
        "file": path,
        "disk_version": said.get("version") or Unknown("the module states no version"),
        "disk_flavour": module.flavour_by_licence(said.get("license", "")),
        "kernel": kernel[1] if kernel else Unknown("its path names no kernel"),
        "vermagic": said.get("vermagic", "").partition(" ")[0] or Unknown("the module states no vermagic"),
        "dkms": "/dkms/" in path,
        "compression": suffix[1] or "none",
        "signer": said.get("signer") or Unknown("the text names no signer"),
    }
    return {f"module.{name}.{field}": value for field, value in found.items()}


READER = CaptureSpec("modinfo", "modinfo nvidia", sniff, parse)
