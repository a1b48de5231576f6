"""`nvidia-smi topo -m`: how the GPUs of a node are joined, and which CPUs and memory are near them. A key is the GPU's index."""

import re
from collections.abc import Mapping, Sequence

from muster.facts.captures import _text
from muster.facts.gpu import MOST_GPUS
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_GAP = re.compile(r"\t|\s{2,}")
_AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_FIELDS = {"CPU Affinity": "cpus", "NUMA Affinity": "numa", "GPU NUMA ID": "gpu_numa"}
_HEADER = re.compile(r"^\s*GPU0\b.*Affinity", re.MULTILINE)
_LINK = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV\d{1,3}|C2C")
_REFUSED = re.compile(r"^ERROR: Option (\S{1,20}) is missing its value", re.MULTILINE)


def sniff(head: str) -> int:
    if _HEADER.search(head):
        return 95
    return 80 if _REFUSED.search(head) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`link[<a>-<b>].kind` of each pair once (GPUs, and the NICs by the tool's name), `topo.gpu_links` (each kind between GPUs),
    `gpu[<i>].numa`, `.cpus`.
    """
    refused = _REFUSED.search(text)
    if refused:
        why = f"nvidia-smi refused: option {refused[1]} is missing its value"
        return {"gpu.count": Unknown(why), "topo.gpu_links": Unknown(why)}
    names: list[str] = []
    after: list[str] = []
    found: dict[str, FactValue] = {}
    kinds: set[str] = set()
    gpus = 0
    for line in text.split("\n")[:4096]:
        if not names:
            names, after = _titles(line)
            continue
        name = (line.split(None, 1) or [""])[0]
        if name in names:
            gpus += name.startswith("GPU")
            links, rest = _cells(line, len(names))
            found |= _links(name, dict(zip(names, links, strict=False)), names, kinds)
            if name.startswith("GPU"):
                found |= _near(name[3:], dict(zip(after, rest, strict=False)))
    found["gpu.count"] = gpus if gpus else Unknown("the output holds no matrix of GPUs")
    found["topo.gpu_links"] = tuple(sorted(kinds)) if names else Unknown("the output holds no matrix")
    return found


def _titles(line: str) -> tuple[list[str], list[str]]:
    """The names of GPUs and NICs, and the columns that follow them; nothing where the line is no header."""
    if not _HEADER.match(line):
        return [], []
    before, _, _ = line.partition("CPU Affinity")
    return before.split()[: 2 * MOST_GPUS], [title for title in _AFFINITIES if title in line]


def _cells(line: str, links: int) -> tuple[list[str], list[str]]:
    """A row's links, which are single words, and the cells after them: parted by tabs, or by two blanks; between tabs a cell may be empty."""
    rest = [*line.split(None, 1), ""][1]
    cells = []
    for _ in range(links):
        cell, _, rest = rest.partition("\t") if "\t" in line else rest.lstrip().partition(" ")
        cells.append(cell.strip())
    after = rest.split("\t") if "\t" in line else _GAP.split(rest.strip())
    # nvidia-smi writes two tabs before its last column.
    return cells, [cell.strip() for cell in (after[:2] + after[-1:] if len(after) > len(_AFFINITIES) else after)]


def _links(name: str, row: Mapping[str, str], names: Sequence[str], kinds: set[str]) -> Mapping[str, FactValue]:
    found: dict[str, FactValue] = {}
    for other, kind in row.items():
        if _LINK.fullmatch(kind) and kind != "X" and names.index(name) < names.index(other):
            found[f"link[{_text.key(name)}-{_text.key(other)}].kind"] = kind
            if name.startswith("GPU") and other.startswith("GPU"):
                kinds.add(kind)
    return found


def _near(index: str, row: Mapping[str, str]) -> Mapping[str, FactValue]:
    return {
        f"gpu[{_text.key(index)}].{_FIELDS[title]}": _text.or_unknown(cell[:400], "the matrix has no value here")
        for title, cell in row.items()
    }


READER = CaptureSpec("smi_topo", "nvidia-smi topo -m", sniff, parse)
