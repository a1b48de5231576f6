"""VBIOS versions of GPUs. Does not know which board takes which VBIOS: no public table says so."""

import re
from dataclasses import field
from typing import ClassVar

from muster.model.frozen import dataclass
from muster.model.versions.base import Version

_FORM = re.compile(r"[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f]{2}){4}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VbiosVersion(Version):
    """`96.00.5E.00.01`: five groups of two hexadecimal digits, as nvidia-smi prints them.

    Order: group by group as numbers; letters of either case are the same (drivers have printed both). "Newer" means
    something only between VBIOSes of one board: the first two groups name the chip family, the last often the board.
    """

    kind: ClassVar[str] = "VBIOS version"
    groups: tuple[int, ...] = field(init=False)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The groups as numbers."""
        return self.groups

    def _read(self) -> None:
        if not _FORM.fullmatch(self.text):
            raise self.error(self.text, "it has five groups of two hexadecimal digits, as in 96.00.5E.00.01")
        groups = tuple(int(group, 16) for group in self.text.split("."))
        self._set(groups, groups=groups)
