"""What is on the buses: NVIDIA GPUs and switches on PCI, and the InfiniBand and RoCE ports, as the kernel's own files show them.

A GPU that the driver could not start is on the bus and in no report of nvidia-smi.
"""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

# Read by the shell itself: one grep over all devices, no process for each.
_COMMAND = r"""
R="$MUSTER_ROOT/sys"
if [ -d "$R/bus/pci/devices" ]; then
  echo "pci yes"
  grep -lx 0x10de "$R"/bus/pci/devices/*/vendor | while read -r vendor; do
    device=${vendor%/vendor} class='' driver=none
    read -r class <"$device/class"
    for each in nvidia nouveau vfio-pci; do
      if [ -e "$R/bus/pci/drivers/$each/${device##*/}" ]; then driver=$each; fi
    done
    echo "device ${device##*/} $class $driver"
  done
fi
for port in "$R"/class/infiniband/*/ports/*; do
  if [ ! -r "$port/state" ]; then continue; fi
  device=${port%/ports/*} state='' physical='' rate='' link='' firmware='' lid='' type=''
  read -r state <"$port/state"
  read -r physical <"$port/phys_state"
  read -r rate <"$port/rate"
  read -r link <"$port/link_layer"
  read -r lid <"$port/lid"
  read -r firmware <"$device/fw_ver"
  read -r type <"$device/hca_type"
  echo "port ${device##*/}/${port##*/};$state;$physical;$rate;$link;$lid;$firmware;$type"
done
echo "asked yes"
"""

_PORT_FIELDS = ("state", "physical_state", "rate_gbps", "link_layer", "lid", "firmware", "ca_type")
_PROVIDES = (
    "pci.gpus", "pci.gpus_elsewhere", "pci.nvswitches", "ib.ports", "ib.active", *(f"ib[*].{name}" for name in _PORT_FIELDS),
)  # fmt: skip

MOST_PORTS = 512
_DEVICE = re.compile(
    r"device ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (0x[0-9a-f]{6}) (nvidia|nouveau|vfio-pci|none)"
)
_PORT = re.compile(r"port ([\w.-]{1,60}/\d{1,3});(.{0,400})")
_WORDS = {"ACTIVE": "Active", "DOWN": "Down", "INIT": "Initializing", "ARMED": "Armed", "ACTIVE_DEFER": "ActiveDefer"}
"""How the kernel's file calls a state -> how ibstat does."""


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`pci.gpus`: GPUs of NVIDIA's that its driver has or nobody has; `gpus_elsewhere`: those that nouveau or a virtual machine has.

    `ib[<device>/<port>]` as `ibstat` tells it; `ib.ports` and `ib.active` count them, 0 where there are none.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    if "asked yes" not in lines:
        return _read.all_unknown(_PROVIDES, "the output ends too early")
    found: dict[str, FactValue] = {}
    devices = [match for line in lines if (match := _DEVICE.fullmatch(line))]
    gpus = [match[3] for match in devices if match[2].startswith("0x03")]
    blind = Unknown("/sys shows no PCI bus")
    on_bus = "pci yes" in lines
    found["pci.gpus"] = sum(driver in ("nvidia", "none") for driver in gpus) if on_bus else blind
    found["pci.gpus_elsewhere"] = sum(driver in ("nouveau", "vfio-pci") for driver in gpus) if on_bus else blind
    found["pci.nvswitches"] = sum(match[2] == "0x068000" for match in devices) if on_bus else blind
    ports = [match for line in lines if (match := _PORT.fullmatch(line))][:MOST_PORTS]
    for match in ports:
        values = [_word(number, text) for number, text in enumerate(match[2].split(";"))]
        for name, value in zip(_PORT_FIELDS, values, strict=False):
            if value:
                found[f"ib[{match[1]}].{name}"] = value
    found["ib.ports"] = len(ports)
    found["ib.active"] = sum(found.get(f"ib[{match[1]}].state") == "Active" for match in ports)
    return found


def _word(number: int, text: str) -> str:
    """A field as ibstat writes it: `4: ACTIVE` is Active, `400 Gb/sec (4X NDR)` is 400."""
    bare = text.strip()[:80]
    if number < 2:
        bare = bare.partition(": ")[2] or bare
        return _WORDS.get(bare, bare)
    if number == 4 and re.fullmatch(r"0x[0-9a-f]{1,8}", bare):
        return str(int(bare, 16))
    return bare.partition(" ")[0] if number == 2 else bare


FACT = FactSpec("hardware", _COMMAND, 5, 32768, parse, _PROVIDES, whole_only=True)
