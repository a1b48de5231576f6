# Sourced by the module shims: the modules of a node are folders under its /sys, its users are held files and the persistence daemon.
modules="nvidia nvidia_uvm nvidia_modeset nvidia_drm"

say_fatal() { [ -n "${quiet-}" ] || echo "modprobe: FATAL: $1" >&2; }

known() { case " $modules " in *" $1 "*) true ;; *) false ;; esac }

# count NAME: how many use it. Processes and the daemon hold nvidia; the other modules hold it too.
count() {
    used=0
    if [ "$1" = nvidia ]; then
        for held in "$root"/loopback/held/*; do
            [ -e "$held" ] && [ -d "/proc/${held##*/}" ] && used=$((used + 1))
        done
        state=
        { read -r state < "$root/loopback/units/nvidia-persistenced"; } 2>/dev/null
        [ "$state" != active ] || used=$((used + 1))
        for other in nvidia_uvm nvidia_modeset; do
            [ ! -d "$root/sys/module/$other" ] || used=$((used + 1))
        done
    elif [ "$1" = nvidia_modeset ] && [ -d "$root/sys/module/nvidia_drm" ]; then
        used=1
    fi
    echo "$used"
}

users() { [ "$(count "$1")" -gt 0 ]; }

unload() {
    rm -rf "${root:?}/sys/module/$1"
    [ "$1" != nvidia ] || rm -rf "$root/proc/driver/nvidia" "$root/run/smi-settings" "$root/run/smi-mig"
}

# load NAME: with what it needs; false where the running kernel has no such module on disk.
load() {
    [ ! -d "$root/sys/module/$1" ] || return 0
    file=$root/lib/modules/$(cat "$root/loopback/kernel")/updates/dkms/nvidia.ko
    [ -r "$file" ] || return 1
    [ "$1" = nvidia ] || load nvidia || return 1
    [ "$1" != nvidia_drm ] || load nvidia_modeset || return 1
    version=$(sed -n 's/^version=//p' "$file")
    mkdir -p "$root/sys/module/$1/parameters"
    # A module has its version from the moment that it is there.
    echo "$version" > "$root/sys/module/$1/parameters/.version"
    mv "$root/sys/module/$1/parameters/.version" "$root/sys/module/$1/version"
    [ "$1" = nvidia ] || return 0
    flavour=
    ! grep -q '^license=Dual MIT/GPL' "$file" || flavour='Open '
    mkdir -p "$root/proc/driver/nvidia"
    {
        echo "NVRM version: NVIDIA UNIX ${flavour}Kernel Module for $(uname -m)  $version  Release Build  (dvs-builder@U22-I3-H04-01-3)"
        echo "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)"
    } > "$root/proc/driver/nvidia/version"
    echo 'ModifyDeviceFiles: 1
EnableMSI: 1
RmProfilingAdminOnly: 1
EnableGpuFirmware: 18
RegistryDwords: ""' > "$root/proc/driver/nvidia/params"
}
