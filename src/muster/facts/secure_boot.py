"""Does the firmware check signatures, which keys did the owner of the machine enrol, and which does the kernel have?

Whose key a module carries is the source `dkms`'s. The kernel shows its keys, also those that the distribution built in, to root alone.
"""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

# Without firmware variables there is nothing to ask: the machine was not started by EFI. The variable's fifth byte is its value.
_COMMAND = r"""
V="$MUSTER_ROOT/sys/firmware/efi/efivars"
if [ ! -d "$MUSTER_ROOT/sys/firmware/efi" ]; then echo "efi no"; exit; fi
echo "efi yes"
variable="$V/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
if command -v mokutil >/dev/null; then
  mokutil --sb-state 2>&1 | sed 's/^/state /'
  mokutil --list-enrolled 2>&1 | sed -n -e 's/^[[:space:]]*Subject:[[:space:]]*/subject /p' -e 's/^\(.*is empty.*\)/empty \1/p' \
    -e '/^[[:space:]]*Serial Number:/{' -e N -e 's/^[[:space:]]*Serial Number:[[:space:]]*/serial /' -e 's/\n[[:space:]]*/ /' -e p -e '}'
else
  echo "mokutil missing"
  if [ -r "$variable" ]; then echo "variable $(od -An -t u1 -j 4 -N 1 "$variable")"; fi
fi
if [ -r "$MUSTER_ROOT/proc/keys" ]; then sed -n 's/^.* asymmetri \(.*\): X509\..*$/key \1/p' "$MUSTER_ROOT/proc/keys"; fi
"""

_PROVIDES = (
    "secure_boot.efi", "secure_boot.enabled", "secure_boot.enrolled", "secure_boot.enrolled_serials", "secure_boot.kernel_keys",
)  # fmt: skip

_SERIAL = re.compile(r"(?:\d{1,40} \(0x([0-9a-f]{1,40})\)|((?:[0-9a-f]{2}:){1,40}[0-9a-f]{2})(?: |$))")
_NAME = re.compile(r"CN ?= ?([^,/]{1,120})")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`secure_boot.enabled` by mokutil or by the variable itself; `secure_boot.enrolled`: the names (CN) of the machine owner's keys.

    `enrolled_serials` are their serial numbers (hexadecimal digits); `kernel_keys` the names of the certificates that the kernel holds.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    seen = _read.labelled(raw)
    if seen.get("efi") == "no":
        none: Mapping[str, FactValue] = dict.fromkeys(_PROVIDES[2:], ())
        return {**none, "secure_boot.efi": False, "secure_boot.enabled": False}
    if seen.get("efi") != "yes":
        return _read.all_unknown(_PROVIDES, "the output does not say it")
    return {
        "secure_boot.efi": True,
        "secure_boot.enabled": _enabled(seen),
        "secure_boot.enrolled": _enrolled(raw, seen),
        "secure_boot.enrolled_serials": _serials(raw, seen),
        "secure_boot.kernel_keys": _kernel_keys(raw),
    }


def _serials(raw: RawOutput, seen: Mapping[str, str]) -> FactValue:
    if "mokutil" in seen:
        return Unknown("mokutil is not installed")
    lines = [line[7:] for line in _read.text(raw).splitlines() if line.startswith("serial ")]
    found = [(match[1] or match[2]).replace(":", "").lower() for line in lines if (match := _SERIAL.match(line))]
    return (
        tuple(dict.fromkeys(found))[:50]
        if found or "empty" in seen
        else Unknown("mokutil listed no keys (needs root?)")
    )


def _kernel_keys(raw: RawOutput) -> FactValue:
    """A certificate's description is its subject's name and a key id: `Debian Secure Boot CA: 6ccece7e...`."""
    names = [line[4:].rpartition(": ")[0][:120] for line in _read.text(raw).splitlines() if line.startswith("key ")]
    known = tuple(dict.fromkeys(name for name in names if name))[:100]
    return known or Unknown("/proc/keys shows no certificates (needs root)")


def _enabled(seen: Mapping[str, str]) -> FactValue:
    state = seen.get("state", "")
    if state == "SecureBoot enabled":
        return True
    if state.startswith("SecureBoot disabled") or "doesn't support Secure Boot" in state:
        return False
    if seen.get("variable") in ("0", "1"):
        return seen["variable"] == "1"
    return Unknown(
        f"mokutil said {state[:100]!r}" if state else "neither mokutil nor the firmware's variable could be read"
    )


def _enrolled(raw: RawOutput, seen: Mapping[str, str]) -> FactValue:
    if "mokutil" in seen:
        return Unknown("mokutil is not installed")
    subjects = [line[8:] for line in _read.text(raw).splitlines() if line.startswith("subject ")]
    names = [match[1].strip() if (match := _NAME.search(each)) else each.strip()[:120] for each in subjects]
    if names or "empty" in seen:
        return tuple(dict.fromkeys(names))[:50]
    return Unknown("mokutil listed no keys (needs root?)")


FACT = FactSpec("secure_boot", _COMMAND, 10, 16384, parse, _PROVIDES, whole_only=True)
