"""One captured output of a tool, given as a file and not collected by Muster: how a reader of such outputs is described, and what it found."""

from collections.abc import Callable, Mapping

from muster.model.fact import FactValue
from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class CaptureSpec:
    """A reader of one form of output.

    `sniff` says from the beginning of the text how sure it is that this is its form: 0 not at all, 100 certain. `parse` gets the whole
    text (no terminal escapes, lines end in `\\n`) and returns path -> value, the paths of the node's own facts where the meaning is the
    same. Neither raises for any text, and both end in time linear in its length.
    """

    name: str
    what: str
    sniff: Callable[[str], int]
    parse: Callable[[str], Mapping[str, FactValue]]


@dataclass(frozen=True, slots=True)
class Capture:
    """What was read out of one output: by which reader, and a bounded part of the text itself, so that nothing read is without its source.

    `understood` is False where every value is Unknown.
    `warnings` are for people: what was cut, that the text is of a system Muster does not look after, that nothing was understood.
    """

    kind: str
    facts: Mapping[str, FactValue]
    raw: str
    understood: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unrecognised:
    """No reader is sure enough. `why` in words; `candidates` are the kinds that it may be, the likeliest first.

    What is no text (`is_text` is False) is of no kind.
    """

    why: str
    candidates: tuple[str, ...] = ()
    is_text: bool = True
