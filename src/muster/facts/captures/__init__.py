"""Reading any single captured output: which form it is, and what it says. One module per form declares a `READER`.

Pure: the caller has read the bytes and hands over the readers. What a node itself is asked is in the modules of `muster.facts`.
"""

from collections.abc import Mapping, Sequence

from muster.facts.captures import _text
from muster.model.capture import Capture, CaptureSpec, Unrecognised
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_HEAD_CHARS = 65536
_RAW_CHARS = 4096
_SURE = 50
"""From this score on a reader may be taken without being named; below it, it is only a candidate."""

_ABOUT = ("report.terminal_escapes", "os.family")
"""What is said of the text as such, whatever its form."""


def recognise(text: str, readers: Sequence[CaptureSpec]) -> CaptureSpec | Unrecognised:
    """The one reader that is sure that this is its form; else why there is none, and who it may be."""
    head = text[:_HEAD_CHARS]
    scores = sorted(
        ((reader.sniff(head), reader.name, reader) for reader in readers), key=lambda each: (-each[0], each[1])
    )
    likely = [(score, name, reader) for score, name, reader in scores if score > 0]
    if not likely:
        return Unrecognised("no reader knows this form of output")
    best = likely[0][0]
    if best >= _SURE and (len(likely) == 1 or likely[1][0] < best):
        return likely[0][2]
    return Unrecognised("it is not clear which output this is", tuple(name for _, name, _ in likely))


def of_source(spec: FactSpec) -> CaptureSpec:
    """The reader of what a node's own source printed (`muster facts show NAME`), carried out as a file. It is read only when it is named."""

    def parse(text: str) -> Mapping[str, FactValue]:
        data = text.encode("utf-8", "replace")
        return spec.parse(RawOutput(0, data[: spec.cap_bytes], truncated=len(data) > spec.cap_bytes))

    return CaptureSpec(
        f"source_{spec.name}", f"the command that `muster facts show {spec.name}` prints", lambda _: 0, parse
    )


def read(data: bytes, readers: Sequence[CaptureSpec], *, kind: str | None, cut: bool) -> Capture | Unrecognised:
    """What `data` says, read as `kind` (the name of one of `readers`), or as what it is recognised to be.

    `cut` says that the file goes on after `data`. Never raises for any bytes.
    """
    nothing = _text.no_text(data)
    if nothing:
        return Unrecognised(nothing, is_text=False)
    text = _text.decode(data)
    escapes = _text.ESCAPE.search(text) is not None
    text = _text.ESCAPE.sub("", text)
    if not text.strip():
        return Unrecognised("the file is empty", is_text=False)
    named = [reader for reader in readers if reader.name == kind]
    reader = named[0] if named else recognise(text, readers)
    if isinstance(reader, Unrecognised):
        return reader
    facts: dict[str, FactValue] = {"report.terminal_escapes": escapes}
    facts |= reader.parse(text)
    if _text.from_windows(text):
        facts["os.family"] = "windows"
    understood = any(path not in _ABOUT and not isinstance(value, Unknown) for path, value in facts.items())
    warnings = tuple(_warnings(facts, cut=cut, understood=understood))
    return Capture(reader.name, facts, _text.bounded(text, _RAW_CHARS), understood, warnings)


def _warnings(facts: Mapping[str, FactValue], *, cut: bool, understood: bool) -> list[str]:
    said = []
    if cut:
        said.append("the file is longer than what was read of it: counts are of the part that was read")
    if facts.get("os.family") == "windows":
        said.append("this was captured on Windows: it was read, but Muster looks after Linux nodes only")
    if "report.repeats" in facts:
        said.append("the tool's report stands in it more than once: the first one was read")
    if not understood:
        said.append("nothing in it was understood; the beginning of its text is kept")
    return said
