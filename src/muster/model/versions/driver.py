"""NVIDIA driver versions, with the packaging revision of a distribution or site where there is one.

Does not know which drivers exist or what they promise: that is knowledge.
"""

import re
from dataclasses import field
from typing import ClassVar, Self

from muster.model.frozen import dataclass
from muster.model.versions.base import Version
from muster.model.versions.deb import deb_order_key

_FORM = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6}){0,2})(?:-([A-Za-z0-9.+~_]+))?")
_HINT = "a driver version has two or three numbers, as in 580.126.20, and may end in a revision, as in -1+site1"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DriverVersion(Version):
    """`535.104.05`, `550.100`, or a packaged build of one: `580.126.20-1+site1`.

    Order: first the upstream numbers, one by one and as numbers (550.90.07 < 550.100); a version that ends is below one
    that goes on (450.51 < 450.51.05). Then, between builds of one upstream version, the packaging revision in dpkg's
    order (whatever packaged it), where no revision is below any revision:
    580.126.20 < 580.126.20-1 < 580.126.20-1+site1.

    So a build is *not* equal to its plain upstream version, and `==580.126.20` or `<=580.126.20` do not hold it. What
    NVIDIA says of a driver, it says of the upstream version: ask such ranges about `plain`.
    """

    kind: ClassVar[str] = "driver version"
    parts: tuple[int, ...] = field(init=False)
    upstream: str = field(init=False)
    revision: str | None = field(init=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a driver version; raises VersionSyntaxError. A bare branch number (`580`) is no driver version."""
        version = cls(text)
        if len(version.parts) == 1:
            raise cls.error(text, f"{_HINT}; the branch alone is written R{version.upstream}")
        return version

    @property
    def branch(self) -> str:
        """The driver branch as NVIDIA writes it: `R580`."""
        return f"R{self.parts[0]}"

    @property
    def plain(self) -> "DriverVersion":
        """The upstream version without a packaging revision; itself where there is none."""
        return self if self.revision is None else DriverVersion(self.upstream)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The upstream numbers."""
        return self.parts

    def _read(self) -> None:
        found = _FORM.fullmatch(self.text)
        if found is None:
            raise self.error(self.text, _why_not(self.text))
        upstream, revision = found.groups()
        parts = tuple(int(number) for number in upstream.split("."))
        if len(parts) == 1 and revision is not None:
            raise self.error(self.text, _HINT)
        revision_key = () if revision is None else deb_order_key(revision)
        self._set((parts, revision_key), parts=parts, upstream=upstream, revision=revision)


def _why_not(text: str) -> str:
    if re.fullmatch(r"[Rr][0-9]+", text):
        return f"this names a branch; {_HINT}"
    if re.match(r"[0-9]+:", text):
        return f"leave out the epoch of the package ({text.partition(':')[0]}:)"
    return _HINT
