"""How long the node has been up, and what time it has. Momentary, and so a source of its own."""

from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput

_PROVIDES = ("uptime_s", "clock.utc_s")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """Whole seconds since boot, and since 1970 by the node's own clock."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    up = next((line.partition(".")[0].strip() for line in lines if not line.startswith("utc ")), "")
    utc = next((line[4:].strip() for line in lines if line.startswith("utc ")), "")
    return {
        "uptime_s": _read.whole_number(up, "/proc/uptime could not be read"),
        "clock.utc_s": _read.whole_number(utc, "date told no time"),
    }


FACT = FactSpec(
    "uptime",
    'cat "$MUSTER_ROOT/proc/uptime"\ndate "+utc %s"',
    5,
    256,
    parse,
    _PROVIDES,
    momentary=True,
)
