"""`dkms status`: which module sources are added, built or installed for which kernels."""

from collections.abc import Mapping

from muster.facts.captures import _dkms
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown


def sniff(head: str) -> int:
    lines = [line for line in head.split("\n") if line.strip()][:200]
    rows = sum(1 for line in lines if _dkms.row(line))
    return 90 if rows and rows * 2 > len(lines) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """The rows, and how many lines are none (`Deprecated feature: ...`)."""
    lines = [line for line in text.split("\n") if line.strip()]
    found = dict(_dkms.facts(lines))
    if not found:
        return {"dkms.rows": Unknown("no line is a row of dkms status")}
    found["dkms.noise_rows"] = sum(1 for line in lines if not _dkms.row(line))
    return found


READER = CaptureSpec("dkms_status", "dkms status", sniff, parse)
