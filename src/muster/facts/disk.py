"""Free space where a change needs it: /var (packages, restore points) and /boot (initramfs)."""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_COMMAND = r"""
for place in var boot; do
  echo "$place $(df -P -k "$MUSTER_ROOT/$place" | tail -n 1)"
done
"""

_PROVIDES = ("disk.var.free_mib", "disk.boot.free_mib")

_ROW = re.compile(r".*\s\d+\s+\d+\s+(\d{1,18})\s+\d+%\s+/")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """Whole MiB that are available, by place."""
    why = _read.no_answer(raw, "df")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    seen = _read.labelled(raw)
    found: dict[str, FactValue] = {}
    for place in ("var", "boot"):
        row = _ROW.match(seen.get(place, ""))
        found[f"disk.{place}.free_mib"] = int(row[1]) // 1024 if row else Unknown(f"df did not answer for /{place}")
    return found


FACT = FactSpec("disk", _COMMAND, 5, 4096, parse, _PROVIDES, momentary=True)
