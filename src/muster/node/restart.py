"""Texts that load the module on disk or restart the node. Pure; POSIX sh; every path starts with `$MUSTER_ROOT`.

Reload refuses rather than forces: services that hold the device for the driver itself are stopped in order, and started again in the opposite
one; what else holds it is named (exit `IN_USE`), never ended.
"""

SERVICES = (
    "slurmd", "gpud", "nvidia-gpu-exporter", "nvidia_gpu_exporter", "dcgm-exporter", "nvidia-dcgm-exporter", "nvidia-dcgm", "dcgm",
    "nvidia-imex", "nvidia-fabricmanager", "nvidia-persistenced",
)  # fmt: skip
"""Services that hold the device and may be stopped on a drained node, in the order in which they are: who reads the GPUs through another comes
before it. slurmd holds it where it counts GPUs by NVML; jobs do not end with it, and there are none. A display server is not among them: a
person may sit before it."""

IN_USE = 3
"""Exit status of `RELOAD` when something still holds the old module."""

DOWN = 4
"""Exit status of `RELOAD` when the module is loaded and a service that ran before does not run beside it."""

RELOAD = (
    """\
PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C
stopped= down=
for unit in @SERVICES@; do
  if systemctl is-active --quiet "$unit" 2>/dev/null; then
    systemctl stop "$unit" && stopped="$unit $stopped"
  fi
done
restart_units() { for unit in $stopped; do systemctl start "$unit" || down="$down $unit"; done; }
holders() {
  find "$MUSTER_ROOT"/proc/[0-9]*/fd -maxdepth 1 -lname '/dev/nvidia*' 2>/dev/null | sed 's|/fd/.*||' | sort -u | while read -r place; do
    read -r name 2>/dev/null <"$place/comm" && echo "$name (${place##*/})"
  done
}
for module in nvidia_peermem nvidia_uvm nvidia_drm nvidia_modeset nvidia; do
  [ -d "$MUSTER_ROOT/sys/module/$module" ] || continue
  if ! said=$(modprobe -r "$module" 2>&1); then
    held=$(holders | head -n 5 | tr '\\n' ' ')
    modprobe nvidia >/dev/null 2>&1
    restart_units
    printf '%s\\n' "$said${held:+; open in $held}"
    exit @IN_USE@
  fi
done
modprobe nvidia || { echo "modprobe nvidia failed"; exit 1; }
restart_units
[ -z "$down" ] || { echo "does not run beside the new module:$down"; exit @DOWN@; }
cat "$MUSTER_ROOT/sys/module/nvidia/version"
""".replace("@SERVICES@", " ".join(SERVICES))
    .replace("@IN_USE@", str(IN_USE))
    .replace("@DOWN@", str(DOWN))
)

REBOOT = """\
PATH=$PATH:/usr/sbin:/sbin
export PATH
sync
systemctl reboot >/dev/null 2>&1 || reboot || shutdown -r now
"""
