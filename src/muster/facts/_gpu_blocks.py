"""Reads nvidia-smi's report a GPU at a time, by what it has in common with one that was read before. Pure.

Ten thousand nodes print reports that differ in their texts and not in their elements. A GPU's element is understood by the XML parser; of
the next one, lines that are the same mean the same, and a line that is the same element with another text, that text. Nothing is taken for
granted: an element with any other line is understood anew, and what this cannot read (entities, comments) is left to the parser. What is
remembered changes the cost of an answer and never the answer.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from operator import ne

from muster.model.frozen import dataclass

_GPU = '<gpu id="'
_ROOT_END = "</nvidia_smi_log>"
_BUS_ID = re.compile(r"[0-9A-Za-z:.]*")
_LEAF = re.compile(r"([\t ]*<([A-Za-z_][A-Za-z0-9_]*)>)([\t -%'-;=?-~]*)(</\2>)")
"""A line that is one element with a text."""
_PLAIN = re.compile(r"[\t -%'-;=?-~]*")
"""What may stand in the place of such a text: no markup, no entity, and nothing that XML forbids."""

_MARK = "\ue000"
"""Of no language: no report holds it, and one that does is left to the parser."""

_GAP = r"[\t\n ]*+"
_WORDS = r"[\t\n -%'-;=?-~]*+"
_CLOCKS = re.compile(
    rf"<supported_clocks>{_GAP}(?:<supported_mem_clock>{_GAP}<value>{_WORDS}</value>{_GAP}"
    rf"(?:<supported_graphics_clock>{_WORDS}</supported_graphics_clock>{_GAP})*+</supported_mem_clock>{_GAP})*+"
)
_CLOCKS_END = "</supported_clocks>"
"""A list of clocks, but for its end: half of a report, the same for all boards of a model, and read by nobody."""

_MOST_FORMS, _MOST_OF_A_LENGTH = 256, 8
"""How many forms of a GPU's element are remembered, 10 KiB each; and how many are tried. A node's GPUs have one or two."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a report: the text at each place that was asked for and is there, how many MIG devices it has, and the id of its element."""

    texts: Mapping[str, str]
    slices: int
    id: str


Understand = Callable[[ET.Element], Gpu]
"""Reads a GPU's element."""


class _Form:
    """A GPU's element that was understood: its lines, which of them are one element with a text, and of which places that is the text."""

    def __init__(self, lines: Sequence[str], understand: Understand) -> None:
        """Raises ParseError for what is no XML."""
        self.lines = tuple(lines)
        self.gpu = understand(_element(self.lines))
        leaves = [_LEAF.fullmatch(line) for line in self.lines]
        # With its number in the place of each text, the element says what the text of which line is.
        marked = [
            f"{leaf[1]}{_MARK}{at}{leaf[4]}" if leaf else line
            for at, (line, leaf) in enumerate(zip(lines, leaves, strict=True))
        ]
        places: dict[str, list[str]] = {}
        for place, text in understand(_element(marked)).texts.items():
            places.setdefault(text, []).append(place)
        self._ends = tuple(
            (leaf[1], leaf[4], tuple(places.get(f"{_MARK}{at}", ()))) if leaf else None
            for at, leaf in enumerate(leaves)
        )
        self._numbers = range(len(self.lines))

    def of(self, lines: Sequence[str], bus: str) -> Gpu | None:
        """What as many lines of another GPU say; None where they are of another form."""
        texts = dict(self.gpu.texts)
        others: list[str] = []
        for at in compress(self._numbers, map(ne, lines, self.lines)):
            ends, line = self._ends[at], lines[at]
            if ends is None or not line.startswith(ends[0]) or not line.endswith(ends[1]):
                return None
            text = line[len(ends[0]) : len(line) - len(ends[1])]
            others.append(text)
            for place in ends[2]:
                texts[place] = text.strip()
        return Gpu(texts, self.gpu.slices, bus) if _PLAIN.fullmatch("".join(others)) else None


_FORMS: dict[tuple[int, Understand], list[_Form]] = {}


def read(body: str, understand: Understand) -> tuple[ET.Element, Sequence[Gpu]] | None:
    """The report's head (its root with what stands before the GPUs) and its GPUs; None where the whole must be read by the XML parser.

    `body` is the root element. `understand` must find the same in elements that differ in their texts alone, but for the texts.
    """
    start, *blocks = body.removesuffix(_ROOT_END).split(_GPU)
    found: list[Gpu | None] = []
    clocks = ""
    try:
        head = ET.fromstring(start + _ROOT_END)
        for block in blocks:
            gpu, clocks = _gpu(block, understand, clocks)
            found.append(gpu)
    except (ET.ParseError, ValueError):
        return None
    gpus = [gpu for gpu in found if gpu is not None]
    return (head, gpus) if len(gpus) == len(found) else None


def _gpu(block: str, understand: Understand, clocks: str) -> tuple[Gpu | None, str]:
    """A GPU from what follows `<gpu id="`, up to the next one; and its list of clocks. Raises ParseError for what is no XML.

    `clocks` is a list of clocks that was found to be nothing else.
    """
    bus, _, rest = block.partition('">')
    inner, end, after = rest.rpartition("</gpu>")
    if not end or after.strip(" \t\n") or not _BUS_ID.fullmatch(bus):
        return None, clocks
    lines, clocks = _lines(inner, clocks)
    known = (len(lines), understand)
    for form in _FORMS.get(known, ()):
        gpu = form.of(lines, bus)
        if gpu is not None:
            return gpu, clocks
    if any(mark in inner for mark in ("&", "<!", "<?", "\r", _MARK)):
        return None, clocks
    form = _Form(lines, understand)
    if sum(map(len, _FORMS.values())) >= _MOST_FORMS:
        _FORMS.clear()
    _FORMS[known] = [*_FORMS.get(known, ()), form][-_MOST_OF_A_LENGTH:]
    return Gpu(form.gpu.texts, form.gpu.slices, bus), clocks


def _lines(inner: str, last: str) -> tuple[list[str], str]:
    """The lines of a GPU's element, without the list of clocks where that is nothing else; and that list, or `last`."""
    start = inner.find("<supported_clocks>")
    end = inner.find(_CLOCKS_END, start) if start >= 0 else -1
    clocks = inner[start:end] if end >= 0 else ""
    if not clocks or not (clocks == last or _is_clocks(clocks)):
        return inner.split("\n"), last
    return inner[:start].split("\n") + inner[end + len(_CLOCKS_END) :].split("\n"), clocks


@lru_cache(maxsize=32)
def _is_clocks(text: str) -> bool:
    return _CLOCKS.fullmatch(text) is not None


def _element(lines: Sequence[str]) -> ET.Element:
    return ET.fromstring("<gpu>" + "\n".join(lines) + "</gpu>")
