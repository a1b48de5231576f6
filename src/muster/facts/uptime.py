"""How long the node has been up. Momentary, and so a source of its own."""

from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput

_PROVIDES = ("uptime_s",)


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """Whole seconds since boot."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    return {"uptime_s": _read.whole_number(_read.text(raw).partition(".")[0].strip(), "/proc/uptime could not be read")}


FACT = FactSpec("uptime", 'cat "$MUSTER_ROOT/proc/uptime"', 5, 256, parse, _PROVIDES, momentary=True)
