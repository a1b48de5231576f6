"""Bytes of any file as text, and what all readers need of a text. Pure."""

import re
from collections.abc import Iterable

from muster.model.fact import FactValue, Unknown

ESCAPE = re.compile(r"\x1b(?:\[[0-9;:?]{0,32}[A-Za-z]|[()][A-Z0-9])")
"""A terminal's colour and style codes, as `nvidia-smi topo -m` prints them even into a file."""

_MAGIC = (
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"BZh", "compressed with bzip2"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x7fELF", "a program or library"),
)

_WINDOWS = re.compile(
    r"\b(?:WDDM|MCDM|TCC)\b"  # a driver model is in use: there is none on Linux
    r"|[A-Z]:\\(?:Windows|Program|Users)"
    r"|^\|\s*GPU\s+Name\s+.*Driver-Model"
    # Linux shortens NVML's version (595.71 of 595.71.05); on Windows the two are one.
    r"|^NVIDIA-SMI version\s*: ([5-9]\d\d\.\d\d)\nNVML version\s*: \1\n",
    re.MULTILINE,
)
_HELP = re.compile(r"^List of valid properties to query", re.MULTILINE)


def no_text(data: bytes) -> str | None:
    """Why `data` is no text to read, in words; None when it may be one."""
    if not data.strip():
        return "the file is empty"
    for magic, what in _MAGIC:
        if data.startswith(magic):
            return f"the file is no text: it is {what}"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return None
    if data[:65536].count(0) > 0:
        return "the file is no text: it holds zero bytes"
    return None


def decode(data: bytes) -> str:
    """`data` as text, by its byte-order mark, else UTF-8; undecodable bytes are replaced. Lines end in `\\n`."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return text.replace("\x00", "").replace("\r\n", "\n").replace("\r", "\n")


def from_windows(text: str) -> bool:
    """Whether something in it says that the machine runs Windows. False when nothing says so: many outputs are the same on both."""
    return _WINDOWS.search(text) is not None and _HELP.search(text) is None


def bounded(text: str, chars: int) -> str:
    """The text, or its beginning and how much follows."""
    return text if len(text) <= chars else f"{text[:chars]}... ({len(text) - chars} more characters)"


def key(text: str) -> str:
    """A text that may stand between the brackets of a path."""
    return re.sub(r"[^A-Za-z0-9@:+~/,._-]", "_", text)[:200]


def whole(text: str | None) -> int | None:
    """A whole number of at most 18 digits, else None."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 18 else None


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once, sorted: facts are hashed."""
    return tuple(sorted(set(texts)))


def or_unknown(text: str | None, why: str) -> FactValue:
    """`text`, or Unknown(why) where there is none."""
    return text if text else Unknown(why)
