"""`nvidia-smi topo -m`: how the GPUs of a node are joined, and which CPUs and memory are near them. A key is the GPU's index."""

import re
from collections.abc import Mapping, Sequence

from muster.facts.captures import _text
from muster.facts.gpu import MOST_GPUS
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_GAP = re.compile(r"\t|\s{2,}")
_TITLE = re.compile(r"(GPU|NIC)(\d{1,4})|CPU Affinity|NUMA Affinity|GPU NUMA ID")
_ROW = re.compile(r"\s*(?:GPU|NIC)\d{1,4}\s")
_HEADER = re.compile(r"^\s*GPU0\b.*Affinity", re.MULTILINE)
_LINK = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV\d{1,3}|C2C")
_REFUSED = re.compile(r"^ERROR: Option (\S{1,20}) is missing its value", re.MULTILINE)


def sniff(head: str) -> int:
    if _HEADER.search(head):
        return 95
    return 80 if _REFUSED.search(head) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`link[<a>-<b>].kind` of each pair once, `topo.gpu_links` (each kind between GPUs), `gpu[<i>].numa`, `.cpus`."""
    refused = _REFUSED.search(text)
    if refused:
        why = f"nvidia-smi refused: option {refused[1]} is missing its value"
        return {"gpu.count": Unknown(why), "topo.gpu_links": Unknown(why)}
    lines = text.split("\n")
    titles: list[str] = []
    found: dict[str, FactValue] = {}
    gpus = 0
    kinds: list[str] = []
    for line in lines[:4096]:
        if not titles and _HEADER.match(line):
            titles = [match[0] for match in _TITLE.finditer(line)][: 2 * MOST_GPUS]
        elif titles and _ROW.match(line):
            name, cells = _cells(line, titles)
            gpus += name.startswith("GPU")
            found |= _row(name, cells, titles, kinds)
    found["gpu.count"] = gpus if gpus else Unknown("the output holds no matrix of GPUs")
    found["topo.gpu_links"] = tuple(sorted(set(kinds))) if titles else Unknown("the output holds no matrix")
    return found


def _cells(line: str, titles: Sequence[str]) -> tuple[str, list[str]]:
    """The row's name and its cells. The links are single words; what follows is parted by tabs, or by two blanks, and may be empty."""
    words = line.split(None, 1)
    joined = [title for title in titles if title[-1].isdigit()]
    rest = words[1] if len(words) > 1 else ""
    cells = []
    for _ in joined:
        word, _, rest = rest.lstrip(" \t").partition("\t") if "\t" in line else _word(rest)
        cells.append(word.strip())
    # nvidia-smi parts its columns by one tab, the last by two; an empty cell is between two tabs.
    after = re.split(r"\t", rest) if "\t" in line else _GAP.split(rest.strip())
    if "\t" in line and len(after) > len(titles) - len(joined):
        after = after[:2] + after[-1:]
    return words[0], cells + [cell.strip() for cell in after]


def _word(rest: str) -> tuple[str, str, str]:
    word, _, after = rest.lstrip().partition(" ")
    return word, "", after


def _row(name: str, cells: Sequence[str], titles: Sequence[str], kinds: list[str]) -> Mapping[str, FactValue]:
    found: dict[str, FactValue] = {}
    for title, cell in zip(titles, cells, strict=False):
        if title[-1].isdigit():
            if _LINK.fullmatch(cell) and cell != "X" and _order(name) < _order(title):
                found[f"link[{_text.key(name)}-{_text.key(title)}].kind"] = cell
                if name.startswith("GPU") and title.startswith("GPU"):
                    kinds.append(cell)
        elif name.startswith("GPU"):
            field = {"CPU Affinity": "cpus", "NUMA Affinity": "numa", "GPU NUMA ID": "gpu_numa"}[title]
            found[f"gpu[{name[3:]}].{field}"] = _text.or_unknown(cell[:400], "the matrix has no value here")
    return found


def _order(name: str) -> tuple[str, int]:
    return name[:3], int(name[3:]) if name[3:].isdigit() else 0


READER = CaptureSpec("smi_topo", "nvidia-smi topo -m", sniff, parse)
