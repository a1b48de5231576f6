"""What the kernel's log says of GPUs, switches, PCIe and network cards since boot: how often, when first and last, and the newest lines.

Only such lines leave the node, the newest ones; what an Xid means is said where health is judged.
"""

from collections.abc import Mapping

from muster.facts import _read
from muster.facts.captures import _text
from muster.facts.captures import kernel_log as log
from muster.model.fact import FactSpec, FactValue, RawOutput

# However long the log is, 4 MiB of it are held and 40 kB sent: both `tail` keep the newest.
_COMMAND = r"""
if command -v dmesg >/dev/null; then
  wanted='NVRM|Xid|nvidia-nvswitch|nvidia[-_a-z]*:|nvidia [0-9a-f]{4}:|nv_peer_mem|mlx5_core'
  wanted="$wanted|AER: |PCIe Bus Error|Out of memory|oom-kill|^muster: "
  { dmesg || echo "muster: refused"; } | tail -c 4194304 | grep -aE "$wanted" | tail -c 40000
else
  echo "muster: dmesg missing"
fi
echo "muster: asked"
"""

_PROVIDES = (
    "kernel_log.newest", "kernel_log.count[*]", "xid[*].count", "xid[*].first", "xid[*].last",
)  # fmt: skip

MOST_LINES = 20
_MOST_CHARS = 240


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`kernel_log.count[<kind>]` of each kind of message (of xid, sxid and nic also where none came), `xid[<pci>/<number>]` with the seconds
    since boot of the first and the last, `kernel_log.newest`: the last lines themselves.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    said = {line for line in lines if line.startswith("muster: ")}
    kept = [line for line in lines if line and not line.startswith("muster: ")]
    if "muster: dmesg missing" in said:
        return _read.all_unknown(_PROVIDES, "dmesg is not installed")
    if "muster: refused" in said and not kept:
        return _read.all_unknown(_PROVIDES, "dmesg may not read the kernel's log (needs root)")
    if "muster: asked" not in said and not raw.truncated:
        return _read.all_unknown(_PROVIDES, "the output ends too early")
    found = log.parse("\n".join(kept))
    wanted = {path: value for path, value in found.items() if path.startswith(("xid[", "kernel_log.count["))}
    newest = tuple(_text.bounded(line, _MOST_CHARS) for line in kept[-MOST_LINES:])
    return {**wanted, "kernel_log.newest": newest}


FACT = FactSpec("kernel_log", _COMMAND, 10, 49152, parse, _PROVIDES, momentary=True, whole_only=True)
