"""The services beside the driver that must be of its version: fabric manager, nvlsm, IMEX, DCGM, the persistence daemon.

Versions of their packages are the source `dpkg`'s; here is what the fabric manager says of itself, and which units are there and run.
"""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

# Units that are not there cost no process. Not each `systemctl show` knows each property; is-active answers one word a unit, in order.
_COMMAND = r"""
set --
for unit in nvidia-fabricmanager nvlsm nvidia-imex nvidia-dcgm nvidia-persistenced; do
  for folder in etc usr/lib lib; do
    if [ -e "$MUSTER_ROOT/$folder/systemd/system/$unit.service" ]; then
      set -- "$@" "$unit"
      echo "unit $unit"
      break
    fi
  done
done
if [ $# -gt 0 ]; then
  if command -v systemctl >/dev/null; then systemctl is-active "$@" | sed 's/^/state /'; else echo "systemctl missing"; fi
fi
for folder in usr/lib/x86_64-linux-gnu usr/lib/aarch64-linux-gnu usr/lib64; do
  for library in "$MUSTER_ROOT/$folder"/libdcgm.so.*.*.*; do
    if [ -e "$library" ]; then echo "dcgm ${library##*/libdcgm.so.}"; fi
  done
done
if [ -e "$MUSTER_ROOT/usr/bin/nvidia-imex" ]; then echo "imex $(nvidia-imex --version)"; fi
if [ -e "$MUSTER_ROOT/usr/bin/nvidia-persistenced" ]; then echo "persistenced $(nvidia-persistenced --version)"; fi
if command -v nv-fabricmanager >/dev/null; then echo "fm $(nv-fabricmanager --version)"; else echo "fm none"; fi
"""

UNITS = ("nvidia-fabricmanager", "nvlsm", "nvidia-imex", "nvidia-dcgm", "nvidia-persistenced")
_PROVIDES = (
    "service.present", "fabric_manager.present", "fabric_manager.version", "dcgm.version", "imex.version", "persistenced.version",
    "service[*].state",
)  # fmt: skip

_VERSION = re.compile(r"fm .{0,100}?(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)")
_OTHERS = {
    "dcgm": re.compile(r"dcgm (\d{1,3}\.\d{1,4}\.\d{1,4})$"),
    "imex": re.compile(r"imex .{0,200}?(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)"),
    "persistenced": re.compile(r"persistenced .{0,200}?(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)"),
}
_STATES = ("active", "inactive", "failed", "activating", "deactivating", "reloading", "maintenance", "unknown")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`service.present`: the units that are there; `service[<unit>].state`; the versions as the fabric manager, IMEX, the persistence daemon
    and DCGM's library tell them themselves. Of nvlsm the packages tell it.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    told = next((line for line in lines if line.startswith("fm ")), "")
    if not told:
        return _read.all_unknown(_PROVIDES, "the output ends too early")
    units = [line[5:] for line in lines if line.startswith("unit ") and line[5:] in UNITS]
    states = [line[6:].strip() for line in lines if line.startswith("state ")]
    found: dict[str, FactValue] = {"service.present": tuple(dict.fromkeys(units))}
    for at, unit in enumerate(units):
        known = len(states) == len(units) and states[at] in _STATES
        missing = "systemctl missing" in lines
        why = "systemctl is not installed" if missing else "systemctl gave no answer for it"
        found[f"service[{unit}].state"] = states[at] if known else Unknown(why)
    version = _VERSION.match(told)
    found["fabric_manager.present"] = told != "fm none"
    absent = "nv-fabricmanager is not installed" if told == "fm none" else "nv-fabricmanager states no version"
    found["fabric_manager.version"] = version[1] if version else Unknown(absent)
    for name, pattern in _OTHERS.items():
        said = next((line for line in lines if line.startswith(f"{name} ")), "")
        match = pattern.match(said)
        none = f"{name} states no version" if said else f"{name} is not installed"
        found[f"{name}.version"] = match[1] if match else Unknown(none)
    return found


FACT = FactSpec("fabric", _COMMAND, 10, 4096, parse, _PROVIDES, whole_only=True)
