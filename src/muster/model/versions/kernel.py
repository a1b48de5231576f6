"""Linux kernel releases as `uname -r` and /lib/modules name them. Does not know what builds on which kernel.

No distribution's kernel release follows another's rule, so the order here is natural order, not a promise of content:
an enterprise kernel 5.14 holds much that came later.
"""

import re
from dataclasses import field
from typing import ClassVar, Self

from muster.model.frozen import dataclass
from muster.model.versions.base import Version

_FORM = re.compile(r"(?P<base>[0-9]+(?:\.[0-9]+)*)(?P<rest>(?:[-.+~_][A-Za-z0-9.+~_-]*)?)")
_PIECE = re.compile(r"(?:[-.]rc|~[A-Za-z]*)(?=[0-9])|[0-9]+|[A-Za-z]+")
_HINT = "a kernel release is written as `uname -r` prints it, as in 6.8.0-49-generic"

# What can stand at one place, lowest first: a release candidate, the end, letters, a number.
_CANDIDATE, _END, _LETTERS, _NUMBER = range(4)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KernelVersion(Version):
    """`6.1.0-57-amd64`, `5.14.0-427.13.1.el9_4.x86_64`, `6.8.0-49-generic`.

    Order: numbers as numbers and words as words, in turn; a number is above a word (5.14.0-427.13.1.el9 is above
    5.14.0-427.el9), going on is above ending, and a release candidate (`-rc3`) is below its release. Two releases that
    differ only in their separators are ordered by their text, so equal means: the same folder under /lib/modules.
    """

    kind: ClassVar[str] = "kernel version"
    base: str = field(init=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a kernel release; raises VersionSyntaxError. A bare major number (`6`) is no kernel release."""
        version = cls(text)
        if "." not in version.base:
            raise cls.error(text, _HINT)
        return version

    def _read(self) -> None:
        found = _FORM.fullmatch(self.text)
        if found is None:
            raise self.error(self.text, _HINT)
        pieces = (*(_piece_key(piece) for piece in _PIECE.findall(self.text)), (_END, 0, ""))
        self._set((pieces, self.text), base=found["base"])


def _piece_key(piece: str) -> tuple[int, int, str]:
    if piece[0] in "-.~":
        return (_CANDIDATE, 0, "")
    if piece.isdigit():
        return (_NUMBER, int(piece), "")
    return (_LETTERS, 0, piece)
