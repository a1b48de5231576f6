"""Texts that load the module on disk or restart the node. Pure; POSIX sh; every path starts with `$MUSTER_ROOT`.

Reload refuses rather than forces: a module that something holds is reported (exit `IN_USE`), never pulled away.
"""

IN_USE = 3
"""Exit status of `RELOAD` when something still holds the old module."""

RELOAD = """\
PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C
stopped=
for unit in nvidia-persistenced nvidia-dcgm nvidia-fabricmanager; do
  if systemctl is-active --quiet "$unit" 2>/dev/null; then
    systemctl stop "$unit" && stopped="$stopped $unit"
  fi
done
restart_units() { for unit in $stopped; do systemctl start "$unit"; done; }
for module in nvidia_peermem nvidia_uvm nvidia_drm nvidia_modeset nvidia; do
  [ -d "$MUSTER_ROOT/sys/module/$module" ] || continue
  if ! said=$(modprobe -r "$module" 2>&1); then
    modprobe nvidia >/dev/null 2>&1
    restart_units
    printf '%s\\n' "$said"
    exit 3
  fi
done
modprobe nvidia || { echo "modprobe nvidia failed"; exit 1; }
restart_units
cat "$MUSTER_ROOT/sys/module/nvidia/version"
"""

REBOOT = """\
PATH=$PATH:/usr/sbin:/sbin
export PATH
sync
systemctl reboot >/dev/null 2>&1 || reboot || shutdown -r now
"""
