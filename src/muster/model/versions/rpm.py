"""RPM package versions, in the order of rpm. Does not know which packages exist.

Source of the rule: `rpmio/rpmvercmp.c` and `rpmio/rpmver.c` of rpm; tests compare with rpm's own answer.
"""

import re
from dataclasses import field
from typing import ClassVar

from muster.model.frozen import dataclass
from muster.model.versions.base import Version

# rpm keeps the epoch in 32 bits.
_MAX_EPOCH = 2**32 - 1

_PIECE = re.compile(r"[~^]|[0-9]+|[A-Za-z]+")
_PART = re.compile(r"[A-Za-z0-9._+~^]+")

# What can stand at one place, lowest first: `~`, the end, `^`, letters, a number.
_TILDE, _END, _CARET, _LETTERS, _NUMBER = range(5)

RpmKey = tuple[tuple[int, int, str], ...]


def rpm_order_key(part: str) -> RpmKey:
    """A key that sorts versions or releases as rpmvercmp does. Other signs only part the pieces; they do not count."""
    return (*(_piece_key(piece) for piece in _PIECE.findall(part)), (_END, 0, ""))


def _piece_key(piece: str) -> tuple[int, int, str]:
    if piece == "~":
        return (_TILDE, 0, "")
    if piece == "^":
        return (_CARET, 0, "")
    if piece.isdigit():
        return (_NUMBER, int(piece), "")
    return (_LETTERS, 0, piece)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RpmVersion(Version):
    """`[epoch:]version[-release]`, such as `3:580.126.20-1.el9`.

    Equal as rpm sees it: a missing epoch is 0, separators and leading zeros do not count. A missing release sorts
    before every release.
    """

    kind: ClassVar[str] = "RPM package version"
    epoch: int = field(init=False)
    version: str = field(init=False)
    release: str | None = field(init=False)

    def _read(self) -> None:
        epoch_text, colon, rest = self.text.partition(":")
        if not colon:
            epoch_text, rest = "0", self.text
        version, dash, release = rest.partition("-")
        if not re.fullmatch(r"[0-9]+", epoch_text) or int(epoch_text) > _MAX_EPOCH:
            raise self.error(self.text, "the epoch before the colon is a number from 0 to 4294967295")
        if not _PART.fullmatch(version) or (dash and not _PART.fullmatch(release)):
            raise self.error(self.text, "it is written [epoch:]version[-release] with letters, digits and . _ + ~ ^")
        self._set(
            (int(epoch_text), rpm_order_key(version), rpm_order_key(release) if dash else ()),
            epoch=int(epoch_text),
            version=version,
            release=release if dash else None,
        )
