"""The forms of text that records of many kinds share, for the types of their fields. Knows no record."""

import re
from typing import Annotated, TypeAlias

from muster.model.frozen import dataclass
from muster.model.ranges import parse_ranges
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion


@dataclass(frozen=True, slots=True)
class Check:
    """What a text must look like, as `Annotated[str, Check(...)]`; `kind` names it in messages (`driver branch`)."""

    kind: str
    pattern: str

    def __call__(self, text: str) -> str:
        """The text itself; raises ValueError for any other form."""
        if not re.fullmatch(self.pattern, text, re.ASCII):
            raise ValueError(f"{text!r} is no {self.kind}")
        return text


class Range(Check):
    """A range of versions as text, checked by reading it: `>=570,<570.172.08 || ==580.105.08`."""

    def __call__(self, text: str) -> str:
        """The text itself; raises ValueError where it is no range of this kind of version."""
        parse_ranges(text, DriverVersion if self.pattern == "driver" else CudaVersion)
        return text


Branch: TypeAlias = Annotated[str, Check("driver branch", "R[1-9][0-9]{2,3}")]
Day: TypeAlias = Annotated[str, Check("day (YYYY-MM-DD)", "20[0-9]{2}-[01][0-9]-[0-3][0-9]")]
Month: TypeAlias = Annotated[str, Check("month (YYYY-MM)", "20[0-9]{2}-[01][0-9]")]
Pci: TypeAlias = Annotated[str, Check("PCI id", "[0-9a-f]{4}:[0-9a-f]{4}")]
Capability: TypeAlias = Annotated[str, Check("compute capability", r"[1-9][0-9]?\.[0-9]")]
Id: TypeAlias = Annotated[str, Check("name (lower case, digits, dashes, dots)", r"[a-z0-9][a-z0-9.+-]*")]
Release: TypeAlias = Annotated[str, Check("kernel version", r"[1-9][0-9]*\.[0-9]+[A-Za-z0-9._-]*")]
DriverRange: TypeAlias = Annotated[str, Range("range of driver versions", "driver")]
CudaRange: TypeAlias = Annotated[str, Range("range of CUDA versions", "cuda")]
