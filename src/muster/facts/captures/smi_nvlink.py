"""`nvidia-smi nvlink -s`: which NVLinks of each GPU are up, and at what rate."""

import re
from collections.abc import Mapping

from muster.facts.captures._gpus import Gpus
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_GPU = re.compile(r"(?m:^)GPU (\d{1,4}): (.{1,200}?) \(UUID: (GPU-[\w-]{1,80})\)\s*")
_LINK = re.compile(r"\s+Link (\d{1,3}): (?:(\d{1,6}(?:\.\d{1,6})? GB/s)|<?(\w[\w ]{0,40}))>?\s*")
_SAYS = (
    ("all links are inActive", "inactive"),
    ("does not have or support Nvlink", "not supported"),
    ("not supported for Devices in MIG mode", "refused in MIG mode"),
)
_HINT = re.compile(r"^\s+Link \d+:|[Nn]v[Ll]ink", re.MULTILINE)


def sniff(head: str) -> int:
    return 95 if _GPU.search(head) and _HINT.search(head) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`nvlink.state`, `.links` (how many are up), `.inactive`, `.rates` per GPU. In MIG mode the tool refuses: then links are Unknown."""
    gpus = Gpus()
    links: dict[str, list[str]] = {}
    down: dict[str, int] = {}
    says: dict[str, str] = {}
    key = None
    for line in text.split("\n"):
        listed, link = _GPU.match(line), _LINK.match(line)
        if listed:
            key = gpus.add(listed[3], listed[1])
            if key is not None:
                links[key], down[key] = [], 0
                gpus.put(key, "name", listed[2])
                gpus.put(key, "index", listed[1])
        elif key is not None and link and len(links[key]) + down[key] < 256:
            if link[2]:
                links[key].append(link[2])
            else:
                down[key] += 1
        elif key is not None:
            for words, state in _SAYS:
                if words in line:
                    says[key] = state
    for each, rates in links.items():
        gpus.found |= _links(each, rates, down[each], says.get(each))
    return gpus.result()


def _links(key: str, rates: list[str], down: int, state: str | None) -> Mapping[str, FactValue]:
    refused = state == "refused in MIG mode"
    count: FactValue = Unknown("refused in MIG mode") if refused else len(rates)
    return {
        f"gpu[{key}].nvlink.state": state
        or ("active" if rates else "inactive" if down else Unknown("the tool says nothing of its links")),
        f"gpu[{key}].nvlink.links": count,
        f"gpu[{key}].nvlink.inactive": Unknown("refused in MIG mode") if refused else down,
        f"gpu[{key}].nvlink.rates": tuple(sorted(set(rates))),
    }


READER = CaptureSpec("smi_nvlink", "nvidia-smi nvlink -s", sniff, parse)
