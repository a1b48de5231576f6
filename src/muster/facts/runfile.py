"""Traces of NVIDIA's own `.run` installer, which writes over files that packages own and is unknown to every package manager."""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

# Debian's packages keep folders in /usr/lib/nvidia; the installer's uninstaller and its list of files are nobody else's.
_COMMAND = r"""
for place in usr/bin/nvidia-uninstall usr/bin/nvidia-installer var/lib/nvidia/log usr/lib/nvidia/pre-install; do
  if [ -e "$MUSTER_ROOT/$place" ]; then echo "marker /$place"; fi
done
if [ -r "$MUSTER_ROOT/var/lib/nvidia/log" ]; then
  read -r first <"$MUSTER_ROOT/var/lib/nvidia/log"
  echo "version $first"
elif [ -d "$MUSTER_ROOT/var/lib/nvidia" ] && [ ! -x "$MUSTER_ROOT/var/lib/nvidia" ]; then
  echo "unreadable list"
fi
echo "asked yes"
"""

_PROVIDES = ("runfile.installed", "runfile.markers", "runfile.version")
_SIGNS = ("/usr/bin/nvidia-uninstall", "/var/lib/nvidia/log")
_VERSION = re.compile(r"\d{2,4}\.\d{1,4}(?:\.\d{1,4})?")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`runfile.installed` where its uninstaller or its list of files is there; `runfile.version` as that list states it."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    if "asked yes" not in lines:
        return _read.all_unknown(_PROVIDES, "the output ends too early")
    markers = tuple(line[7:107] for line in lines if line.startswith("marker "))[:10]
    version = next((line[8:] for line in lines if line.startswith("version ")), "")
    installed: FactValue = any(sign in markers for sign in _SIGNS)
    if not installed and "unreadable list" in lines:
        installed = Unknown("/var/lib/nvidia may not be read (needs root)")
    return {
        "runfile.installed": installed,
        "runfile.markers": markers,
        "runfile.version": version
        if _VERSION.fullmatch(version)
        else Unknown("no list of the installer's files states it"),
    }


FACT = FactSpec("runfile", _COMMAND, 5, 4096, parse, _PROVIDES, whole_only=True)
