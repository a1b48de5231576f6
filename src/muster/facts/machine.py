"""Which machine it is, by its own word: two names with one answer are one machine, or an image that was cloned without being made new."""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_COMMAND = r"""
cat "$MUSTER_ROOT/etc/machine-id"
"""

_PROVIDES = ("machine.id",)
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`machine.id`: 32 hexadecimal digits. `uninitialized`, nothing, or anything else is Unknown."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    text = _read.text(raw).strip()
    return {"machine.id": text if _ID.fullmatch(text) else Unknown("/etc/machine-id holds no id")}


FACT = FactSpec("machine", _COMMAND, 5, 256, parse, _PROVIDES)
