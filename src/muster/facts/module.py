"""The NVIDIA kernel module: what is loaded, what lies on disk for the running kernel, in which flavour, and with which parameters.

Loaded and on disk are two facts: after a package upgrade they differ until the reload, and that is what breaks nodes.
"""

import re
from collections.abc import Mapping

from muster.facts import _options, _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_COMMAND = (
    r"""
if [ -d "$MUSTER_ROOT/sys/module/nvidia" ]; then
  echo "loaded yes"
  echo "loaded_version $(cat "$MUSTER_ROOT/sys/module/nvidia/version")"
else
  echo "loaded no"
fi
if [ -r "$MUSTER_ROOT/proc/driver/nvidia/version" ]; then
  echo "banner $(head -n 1 "$MUSTER_ROOT/proc/driver/nvidia/version")"
fi
if ! command -v modinfo >/dev/null; then
  echo "modinfo missing"
elif version=$(modinfo -F version nvidia); then
  echo "disk yes"
  echo "disk_version $version"
  echo "disk_license $(modinfo -F license nvidia)"
else
  echo "disk no"
fi
"""
    + _options.COMMAND
)

_PREFIX = "module.nvidia."
_PROVIDES = tuple(
    _PREFIX + name
    for name in (
        "loaded",
        "loaded_version",
        "on_disk",
        "disk_version",
        "flavour",
        "loaded_flavour",
        "disk_flavour",
        "parameters",
        "options",
        "options_differ",
    )
)

BANNER = re.compile(r"NVRM version:\s+NVIDIA UNIX (Open )?.*?Kernel Module(?: for \S+)?\s+(\d[\w.-]*)")
"""The first line of /proc/driver/nvidia/version: `Open ` where the loaded module is the open one, and its version."""


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """Loaded and disk version and flavour (`open` or `proprietary`); `flavour` is the loaded one, or where none is loaded the one on disk.

    `parameters` (`NAME=VALUE`) are those of the loaded module, `options` those that modprobe.d gives it, `options_differ` what the next load
    would change.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    seen = _read.labelled(raw)
    loaded, loaded_version, loaded_flavour = _loaded(seen)
    on_disk, disk_version, disk_flavour = _on_disk(seen)
    return {
        _PREFIX + "loaded": loaded,
        _PREFIX + "loaded_version": loaded_version,
        _PREFIX + "loaded_flavour": loaded_flavour,
        _PREFIX + "on_disk": on_disk,
        _PREFIX + "disk_version": disk_version,
        _PREFIX + "disk_flavour": disk_flavour,
        _PREFIX + "flavour": disk_flavour if loaded is False else loaded_flavour,
        **_parameters(raw, loaded),
    }


def _parameters(raw: RawOutput, loaded: FactValue) -> Mapping[str, FactValue]:
    lines = _read.text(raw).splitlines()
    now, wanted = _options.parameters(lines), _options.options(lines)
    seen: FactValue = tuple(f"{name}={value}" for name, value in sorted(now.items()))
    if "parameters yes" not in lines:
        why = "the module nvidia is not loaded" if loaded is False else "/proc/driver/nvidia/params could not be read"
        seen = Unknown(why)
    asked = "options asked" in lines
    silent = Unknown("the output ends too early")
    return {
        _PREFIX + "parameters": seen,
        _PREFIX + "options": tuple(f"{name}={value}" for name, value in sorted(wanted.items())) if asked else silent,
        _PREFIX + "options_differ": (seen if isinstance(seen, Unknown) else _options.differences(now, wanted))
        if asked
        else silent,
    }


def _loaded(seen: Mapping[str, str]) -> tuple[FactValue, FactValue, FactValue]:
    if seen.get("loaded") == "no":
        absent = Unknown("the module nvidia is not loaded")
        return False, absent, absent
    if seen.get("loaded") != "yes":
        silent = Unknown("the output does not say whether the module is loaded")
        return silent, silent, silent
    banner = BANNER.search(seen.get("banner", ""))
    version = seen.get("loaded_version") or (banner[2] if banner else "")
    flavour: FactValue = Unknown("/proc/driver/nvidia/version could not be read")
    if banner:
        flavour = "open" if banner[1] else "proprietary"
    return True, _read.text_or(version, "/sys/module/nvidia/version could not be read"), flavour


def _on_disk(seen: Mapping[str, str]) -> tuple[FactValue, FactValue, FactValue]:
    if seen.get("disk") == "no":
        absent = Unknown("there is no module nvidia on disk for the running kernel")
        return False, absent, absent
    if seen.get("disk") != "yes":
        silent = Unknown("modinfo is not installed" if "modinfo" in seen else "modinfo gave no answer")
        return silent, silent, silent
    return (
        True,
        _read.text_or(seen.get("disk_version"), "the module on disk states no version"),
        flavour_by_licence(seen.get("disk_license", "")),
    )


def flavour_by_licence(license_text: str) -> FactValue:
    """The flavour by the module's licence: the open one is `Dual MIT/GPL`, the proprietary one `NVIDIA`."""
    if "MIT" in license_text and "GPL" in license_text:
        return "open"
    if license_text == "NVIDIA":
        return "proprietary"
    return Unknown(
        f"the module's licence {license_text[:40]!r} tells no flavour"
        if license_text
        else "the module states no licence"
    )


FACT = FactSpec("module", _COMMAND, 10, 16384, parse, _PROVIDES)
