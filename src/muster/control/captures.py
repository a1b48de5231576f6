"""Reading one captured output from a file, bounded. Which form it is, and what it says, is decided in `muster.facts.captures`."""

from collections.abc import Sequence

from muster.control.site import named
from muster.facts import captures
from muster.model.capture import Capture, CaptureSpec
from muster.model.errors import BadInput

READ_BYTES = 16 * 1024 * 1024
"""Of a longer file only its beginning is read: a year of kernel log is smaller, and reading this much takes seconds."""


def parse_file(path: str, *, kind: str | None, readers: Sequence[CaptureSpec]) -> Capture:
    """What the file says, read as `kind` or as what it is recognised to be; `-` is standard input. At most `READ_BYTES` are read.

    Raises UnknownName for a kind that nobody knows, BadInput when the file cannot be read or no reader is sure of it (the hint names who
    may be).
    """
    kinds = [reader.name for reader in readers]
    chosen = named("kind of output", kind, kinds) if kind is not None else None
    try:
        with open("/dev/stdin" if path == "-" else path, "rb") as file:  # noqa: PTH123 - a pipe is no Path
            data = file.read(READ_BYTES + 1)
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror or error}", hint="give the file that holds one tool's output"
        ) from error
    found = captures.read(data[:READ_BYTES], readers, kind=chosen, cut=len(data) > READ_BYTES)
    if isinstance(found, Capture):
        return found
    if not found.is_text:
        raise BadInput(f"{path}: {found.why}", hint="give the text that the tool printed")
    options = found.candidates or tuple(kinds)
    raise BadInput(f"{path}: {found.why}", hint=f"name it with --kind, one of: {', '.join(options)}")
