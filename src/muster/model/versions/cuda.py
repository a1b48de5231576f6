"""CUDA toolkit and runtime versions, in numbers or in NVIDIA's words. Does not know which releases exist."""

import re
from dataclasses import field
from typing import ClassVar, Self

from muster.model.frozen import dataclass
from muster.model.versions.base import Version

_FORM = re.compile(
    r"(?P<major>[0-9]{1,6})"
    r"(?:\.(?P<minor>[0-9]{1,6})"
    r"(?:\.(?P<patch>[0-9]{1,6})| Update (?P<update>[1-9][0-9]{0,5})| GA| (?P<preview>Developer Preview))?"
    r")?",
    re.IGNORECASE,
)
_HINT = "a CUDA version is written 13.0, 12.4.1 or 13.0 Update 2"

_PREVIEW, _RELEASE = 0, 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CudaVersion(Version):
    """`13.0`, `12.4.1`, `13.0 Update 2`, `13.5 GA`, `13.4 Developer Preview`.

    Order: major, minor, patch as numbers. Update N is patch N; no patch, `GA` and patch 0 are one version (so `==12.4`
    and `<=12.4` do not hold 12.4.1); a developer preview is below its GA. Up to 10.2 NVIDIA's third number is a build
    number (10.2.89), which sorts the same way.

    NVIDIA broke the rule "Update N is patch N" twice: 11.0 GA is 11.0.2, and 13.4 GA is 13.4.1 with 13.4 Update 1 as
    13.4.2. Which number a label stands for is knowledge; whoever has the knowledge base looks up `label` there first.
    """

    kind: ClassVar[str] = "CUDA version"
    major: int = field(init=False)
    minor: int = field(init=False)
    patch: int = field(init=False)
    is_preview: bool = field(init=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a CUDA version; raises VersionSyntaxError. A bare major number (`13`) is no CUDA version."""
        version = cls(text)
        if "." not in text:
            raise cls.error(text, f"{_HINT}; {text} alone can only be the end of a range: >={text} or <{text}")
        return version

    @property
    def release(self) -> str:
        """The release without its patch or update: `13.0`."""
        return f"{self.major}.{self.minor}"

    @property
    def label(self) -> str | None:
        """NVIDIA's words in its own spelling (`13.4 Update 1`) where the text has them; None where it is in numbers."""
        release, blank, words = self.text.partition(" ")
        return f"{release} {'GA' if words.upper() == 'GA' else words.title()}" if blank else None

    @property
    def numbers(self) -> tuple[int, ...]:
        """Major, minor, patch."""
        return (self.major, self.minor, self.patch)

    def _read(self) -> None:
        found = _FORM.fullmatch(self.text)
        if found is None:
            raise self.error(self.text, _HINT)
        major, minor = int(found["major"]), int(found["minor"] or 0)
        patch = int(found["patch"] or found["update"] or 0)
        is_preview = found["preview"] is not None
        key = (major, minor, patch, _PREVIEW if is_preview else _RELEASE)
        self._set(key, major=major, minor=minor, patch=patch, is_preview=is_preview)
