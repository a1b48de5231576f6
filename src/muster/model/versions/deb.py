"""Debian package versions, in the order of dpkg. Does not know which packages exist.

Source of the rule: Debian Policy 5.6.12 and `lib/dpkg/version.c` of dpkg; tests compare with `dpkg --compare-versions`.
"""

import re
from dataclasses import field
from typing import ClassVar

from muster.model.frozen import dataclass
from muster.model.versions.base import Version

# dpkg keeps the epoch in a C int and refuses what does not fit.
_MAX_EPOCH = 2**31 - 1

_END = 0
_PIECE = re.compile(r"([^0-9]*)([0-9]*)")
_UPSTREAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:-]*")
_REVISION = re.compile(r"[A-Za-z0-9.+~]+")


def deb_order_key(part: str) -> tuple[int, ...]:
    """A key that sorts upstream versions or revisions as dpkg does: `~` before the end, letters before other signs.

    dpkg reads a text as runs of non-digits and numbers in turn. The key holds, for each pair, the weights of the run's
    characters, the end weight 0, and the number; then one more end weight. A text that stops early thus meets the next
    character of the longer one with weight 0: above `~` (-1) and below everything else. Nothing and `0` have one key.
    """
    key: list[int] = []
    for run, number in _PIECE.findall(part) if part else [("", "")]:
        if run or number or not part:
            key += [_weight(character) for character in run]
            key += [_END, int(number or "0")]
    key.append(_END)
    return tuple(key)


def _weight(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DebVersion(Version):
    """`[epoch:]upstream[-revision]`, such as `1:535.261.03-1~deb12u1`.

    Equal as dpkg sees it: a missing epoch is 0, a missing revision is `0`, leading zeros of numbers do not count.
    As in dpkg, an upstream version that starts with a letter is let through.
    """

    kind: ClassVar[str] = "Debian package version"
    epoch: int = field(init=False)
    upstream: str = field(init=False)
    revision: str | None = field(init=False)

    def _read(self) -> None:
        epoch_text, colon, rest = self.text.partition(":")
        if not colon:
            epoch_text, rest = "0", self.text
        upstream, dash, revision = rest.rpartition("-")
        if not dash:
            upstream, revision = rest, ""
        if not re.fullmatch(r"[0-9]+", epoch_text) or int(epoch_text) > _MAX_EPOCH:
            raise self.error(self.text, "the epoch before the colon is a number from 0 to 2147483647")
        if dash and not _REVISION.fullmatch(revision):
            raise self.error(self.text, "after the last '-' stands a revision of letters, digits and . + ~")
        if not _UPSTREAM.fullmatch(upstream):
            raise self.error(self.text, "it is written [epoch:]upstream[-revision] with letters, digits and . + ~ - :")
        self._set(
            (int(epoch_text), deb_order_key(upstream), deb_order_key(revision)),
            epoch=int(epoch_text),
            upstream=upstream,
            revision=revision if dash else None,
        )
