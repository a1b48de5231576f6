"""What the parsers share: when an output is no answer at all, and why; reading it as text. Pure."""

from collections.abc import Iterable, Mapping

from muster.model.fact import FactValue, RawOutput, Unknown

_NOTE_WORDS = {
    "stuck": "was not asked: an earlier one has not ended, or another that asks the same device",
    "unwritten": "answered, and the node could not write it down: no space left in its scratch folder, or a limit on the size of files",
}
_STATUS_WORDS = {126: "may not be run", 127: "is not installed"}


def no_answer(raw: RawOutput, tool: str) -> str | None:
    """Why `raw` holds nothing to read, in words; None when it may. A cut or failed output may still hold something: that is the parser's."""
    if raw.exit_status is None:
        return f"{tool} {_NOTE_WORDS.get(raw.note, 'did not answer before its deadline')}"
    if raw.exit_status in _STATUS_WORDS:
        return f"{tool} {_STATUS_WORDS[raw.exit_status]}"
    return None


def all_unknown(paths: Iterable[str], why: str) -> Mapping[str, FactValue]:
    """Every path (those with a `*` name members that were not seen, and are left out) as Unknown(why)."""
    return {path: Unknown(why) for path in paths if "*" not in path}


def text(raw: RawOutput) -> str:
    """The output as text; undecodable bytes are replaced, and a last line that was cut is dropped."""
    decoded = raw.stdout.decode("utf-8", "replace")
    if raw.truncated:
        return decoded.rpartition("\n")[0]
    return decoded


def labelled(raw: RawOutput) -> Mapping[str, str]:
    """Lines `label value` as a mapping; the first of a label counts, values are stripped."""
    found: dict[str, str] = {}
    for line in text(raw).splitlines():
        label, _, value = line.partition(" ")
        found.setdefault(label, value.strip())
    return found


def text_or(value: str | None, why: str) -> FactValue:
    """`value`, or Unknown(why) where there is none."""
    return value if value else Unknown(why)


def whole_number(value: str | None, why: str) -> FactValue:
    """`value` as a whole number, or Unknown(why). Digits only, at most 18 of them."""
    if value and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    return Unknown(why)
