"""Packages of the driver stack and the kernel as the node's package manager has them: version, state, hold.

That is dpkg, and rpm (see `_rpm`) where there is no dpkg. Holds come from dpkg's own selection state: `apt-mark showhold` costs half a second
of CPU for the same answer.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from muster.facts import _read, _rpm
from muster.model.fact import FactSpec, FactValue, RawOutput

_PATTERNS = (
    "dpkg", "nvidia*", "libnvidia*", "cuda*", "libcuda*", "libnccl*", "libcudnn*", "libnvsdm*", "nvlsm*", "libxnvctrl*",
    "xserver-xorg-video-nvidia*", "datacenter-gpu-manager*", "firmware-nvidia*", "dkms", "linux-image*", "linux-headers*",
    "linux-modules-*", "linux-kbuild*", "linux-objects-nvidia*", "linux-signatures-nvidia*", "unattended-upgrades",
)  # fmt: skip

_FORMAT = r"${binary:Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\t${Architecture}\n"
_DPKG = f"""dpkg-query --admindir="$MUSTER_ROOT/var/lib/dpkg" -W -f '{_FORMAT}' """ + " ".join(
    f"'{pattern}'" for pattern in _PATTERNS
)
_COMMAND = f"""
if command -v dpkg-query >/dev/null || ! command -v rpm >/dev/null; then
  {_DPKG}
  exit
fi
{_rpm.COMMAND}"""

_PROVIDES = ("packages.manager", "package[*].version", "package[*].state", "package[*].hold")

_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*(?::[a-z0-9-]+)?")

_WANT = {"u": "unknown", "i": "install", "h": "hold", "r": "deinstall", "p": "purge"}
_STATE = {
    "n": "not-installed", "c": "config-files", "H": "half-installed", "U": "unpacked", "F": "half-configured",
    "W": "triggers-awaited", "t": "triggers-pending", "i": "installed",
}  # fmt: skip
_LIST_ROW = re.compile(r"([uihrp])([ncHUFWti])R?\s+(\S+)\s+(\S+)(?:\s+(\S+))?")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """Each known package's version, dpkg state (`installed`, `half-configured`, ...) and hold. Rows of `dpkg -l` are read too.

    A package of a foreign architecture keeps its `:arch`; one of the node's own does not. No row at all is an answer: no such package.
    """
    why = _read.no_answer(raw, "dpkg-query")
    if why is None and raw.exit_status not in (0, 1):
        why = f"dpkg-query failed with exit status {raw.exit_status}"
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    if "rpm yes" in lines[:1]:
        return _rpm_packages(lines)
    found: dict[str, FactValue] = {"packages.manager": "dpkg"}
    rows = tuple(_rows(lines))
    native = next((architecture for name, _, _, _, architecture in rows if name == "dpkg"), "")
    for full_name, version, want, state, architecture in rows:
        if state == "not-installed":
            continue
        name, _, qualifier = full_name.partition(":")
        foreign = bool(native) and (qualifier or architecture) not in (native, "all", "")
        key = f"{name}:{qualifier or architecture}" if foreign or f"package[{name}].version" in found else name
        found[f"package[{key}].version"] = version
        found[f"package[{key}].state"] = state
        found[f"package[{key}].hold"] = want == "hold"
    return found


def _rpm_packages(lines: Sequence[str]) -> Mapping[str, FactValue]:
    if "asked yes" not in lines:
        return _read.all_unknown(_PROVIDES, "the list of packages ends too early")
    if "nothing yes" in lines:
        return _read.all_unknown(_PROVIDES, "rpm has no database here")
    return {"packages.manager": "rpm", **_rpm.packages(lines)}


def _rows(lines: Iterable[str]) -> Iterable[tuple[str, str, str, str, str]]:
    """(name, version, want, state, architecture) of each line that is a package."""
    for line in lines:
        cells = line.split("\t")
        listed = _LIST_ROW.match(line)
        if len(cells) == 5 and _NAME.fullmatch(cells[0]):
            yield cells[0], cells[1], cells[2], cells[3], cells[4]
        elif listed and _NAME.fullmatch(listed[3]):
            yield listed[3], listed[4], _WANT[listed[1]], _STATE[listed[2]], listed[5] or ""


FACT = FactSpec("dpkg", _COMMAND, 15, 262144, parse, _PROVIDES)
