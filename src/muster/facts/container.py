"""What containers are given: the container toolkit, and the CDI specs, which name the driver's files with the version in the name.

A spec that was not made anew after a driver change names files that are gone, or that belong to another driver.
"""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_COMMAND = r"""
if command -v nvidia-ctk >/dev/null; then echo "ctk $(nvidia-ctk --version | head -n 1)"; else echo "ctk none"; fi
runtime=run
if [ ! -d "$MUSTER_ROOT/run/cdi" ]; then runtime=var/run; fi
for spec in "$MUSTER_ROOT"/etc/cdi/* "$MUSTER_ROOT/$runtime"/cdi/*; do
  case "$spec" in *.yaml | *.yml | *.json) ;; *) continue ;; esac
  if [ -r "$spec" ]; then
    echo "spec ${spec#"$MUSTER_ROOT"}"
    grep -oE 'lib(cuda|nvidia-ml)\.so\.[0-9]+\.[0-9]+(\.[0-9]+)?' "$spec" | sort -u
  elif [ -e "$spec" ]; then echo "unreadable ${spec#"$MUSTER_ROOT"}"; fi
done
echo "asked yes"
"""

_PROVIDES = ("container.toolkit", "container.toolkit_version", "container.cdi_specs", "cdi[*].drivers")

_CTK = re.compile(r"ctk .{0,80}?version:? v?(\d+\.\d+[\w.~+-]{0,40})")
_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d{1,5}\.\d{1,5}(?:\.\d{1,5})?)")
_PATH = re.compile(r"/[\w./+@:-]{1,200}")
MOST_SPECS = 50


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """Whether the toolkit is there and which; the paths of the CDI specs, and for each the driver versions its file names carry."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    drivers: dict[str, list[str]] = {}
    found: dict[str, FactValue] = {}
    here = ""
    for line in lines:
        library = _LIBRARY.fullmatch(line.strip())
        if library and here:
            drivers[here].append(library[1])
        word, _, path = line.partition(" ")
        if word in ("spec", "unreadable") and _PATH.fullmatch(path) and len(drivers) < MOST_SPECS:
            here = path
            drivers[here] = []
            if word == "unreadable":
                found[f"cdi[{path}].drivers"] = Unknown("may not be read (needs root)")
    for path, versions in drivers.items():
        found.setdefault(f"cdi[{path}].drivers", tuple(sorted(set(versions))))
    told = next((line for line in lines if line.startswith("ctk ")), "")
    version = _CTK.match(told)
    silent = Unknown("the output does not say it")
    found["container.toolkit"] = told != "ctk none" if told else silent
    found["container.toolkit_version"] = (
        version[1]
        if version
        else Unknown("nvidia-ctk is not installed" if told == "ctk none" else "nvidia-ctk states no version")
    )
    found["container.cdi_specs"] = tuple(drivers) if "asked yes" in lines else Unknown("the output ends too early")
    return found


FACT = FactSpec("container", _COMMAND, 10, 32768, parse, _PROVIDES, whole_only=True)
