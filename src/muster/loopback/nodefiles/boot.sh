#!/bin/sh
# What a restart does to a node: a new boot id, an empty /run, and the module that is on disk now.
root=${MUSTER_ROOT:?}
. "$root/loopback/modules.sh"
rm -rf "$root/run" "$root/sys/module" "$root/proc/driver/nvidia" "$root/loopback/held" "$root/loopback/reboot"
mkdir -p "$root/run/lock" "$root/sys/module" "$root/loopback/held"
cat /proc/sys/kernel/random/uuid > "$root/proc/sys/kernel/random/boot_id"
date +%s > "$root/loopback/booted_at"
echo "1.00 1.00" > "$root/proc/uptime"
rm -f "$root"/loopback/units/*.masked
echo inactive > "$root/loopback/units/nvidia-persistenced"
load nvidia_uvm && load nvidia_drm && systemctl --quiet start nvidia-persistenced 2>/dev/null
exit 0
