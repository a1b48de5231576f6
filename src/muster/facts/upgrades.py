"""Whether the node upgrades itself: the settings of apt's periodic run and of dnf-automatic, and their timers.

Read from files: `apt-config` and `systemctl` cost more than they tell here. What already happened is the source `transactions`.
"""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_COMMAND = r"""
E="$MUSTER_ROOT/etc"
if [ -d "$E/apt" ]; then
  echo "apt yes"
  if [ -e "$MUSTER_ROOT/usr/bin/unattended-upgrade" ]; then echo "unattended yes"; else echo "unattended no"; fi
  cat "$E"/apt/apt.conf "$E"/apt/apt.conf.d/* | sed -n 's/^[[:space:]]*APT::Periodic::\([A-Za-z-]*\)[[:space:]]*"\([^"]*\)".*/periodic \1 \2/p'
fi
if [ -r "$E/dnf/automatic.conf" ]; then
  echo "dnf yes"
  sed -n 's/^[[:space:]]*apply_updates[[:space:]]*=[[:space:]]*/dnf_apply /p' "$E/dnf/automatic.conf"
elif [ -d "$E/dnf" ]; then echo "dnf yes"; fi
for timer in apt-daily apt-daily-upgrade dnf-automatic dnf-automatic-install; do
  state=absent
  for folder in etc run usr/lib lib; do
    unit="$MUSTER_ROOT/$folder/systemd/system/$timer.timer"
    if [ -c "$unit" ]; then state=masked; break; elif [ -e "$unit" ]; then state=disabled; fi
  done
  if [ "$state" = disabled ] && [ -L "$E/systemd/system/timers.target.wants/$timer.timer" ]; then state=enabled; fi
  echo "timer $timer $state"
done
"""

_TIMERS = {
    "apt-daily": "apt_daily", "apt-daily-upgrade": "apt_daily_upgrade",
    "dnf-automatic": "dnf_automatic", "dnf-automatic-install": "dnf_automatic_install",
}  # fmt: skip
_PERIODIC = {
    "Unattended-Upgrade": "unattended_upgrade",
    "Update-Package-Lists": "update_package_lists",
    "Enable": "enable",
}
_PROVIDES = (
    "upgrades.automatic", "upgrades.unattended_installed", "upgrades.dnf_apply",
    *(f"upgrades.{name}" for name in _PERIODIC.values()), *(f"upgrades.timer.{name}" for name in _TIMERS.values()),
)  # fmt: skip

_SETTING = re.compile(r"periodic ([A-Za-z-]{1,60}) (.{0,60})")
_TIMER = re.compile(r"timer ([a-z-]{1,40}) (absent|disabled|enabled|masked)")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """The settings (a later file overrides an earlier one, as in apt), the timers' states, and `upgrades.automatic` put together from them.

    A timer is `enabled`, `disabled`, `masked` or `absent`. A setting that no file has is left out: apt's own default is off.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    found: dict[str, FactValue] = {}
    for line in lines:
        setting, timer = _SETTING.fullmatch(line), _TIMER.fullmatch(line)
        if setting and setting[1] in _PERIODIC:
            found[f"upgrades.{_PERIODIC[setting[1]]}"] = setting[2]
        elif timer and timer[1] in _TIMERS:
            found[f"upgrades.timer.{_TIMERS[timer[1]]}"] = timer[2]
        elif line.startswith("dnf_apply "):
            found["upgrades.dnf_apply"] = line[10:].strip()[:20]
    if "apt yes" in lines:
        found["upgrades.unattended_installed"] = "unattended yes" in lines
    found["upgrades.automatic"] = _automatic(lines, found)
    return found


def _automatic(lines: list[str], found: Mapping[str, FactValue]) -> FactValue:
    apt, dnf = "apt yes" in lines, "dnf yes" in lines
    if not apt and not dnf:
        return Unknown("neither apt's nor dnf's settings are there")
    if not any(path.startswith("upgrades.timer.") for path in found):
        return Unknown("the timers were not told")
    by_apt = (
        apt
        and found.get("upgrades.unattended_installed") is True
        and found.get("upgrades.unattended_upgrade", "0") != "0"
        and found.get("upgrades.enable", "1") != "0"
        and found.get("upgrades.timer.apt_daily_upgrade") != "masked"
    )
    applies = found.get("upgrades.dnf_apply") in ("yes", "true", "1", "True")
    by_dnf = (applies and found.get("upgrades.timer.dnf_automatic") == "enabled") or (
        found.get("upgrades.timer.dnf_automatic_install") == "enabled"
    )
    return by_apt or (dnf and by_dnf)


FACT = FactSpec("upgrades", _COMMAND, 5, 16384, parse, _PROVIDES, whole_only=True)
