"""Will the node come up again? Texts asked before anything is touched, and once more before a restart. Pure; POSIX sh; they change nothing.

What dkms calls success is not always one: without headers it builds nothing, without an enrolled key it leaves the module unsigned, and both
show only at the next load. A restart into that costs a node its GPUs; the question costs a second.
"""

import shlex

NOT_READY = 3
"""Exit status when the node would not come up with a driver; the last line says why."""

TOO_OFTEN = 4
"""Exit status when Muster restarted the node too often within a day: a person looks first."""

RESTARTS_A_DAY = 2
"""One restart for the change, one for its way back. A third within a day means that something is wrong which a restart does not mend."""

_TOOLS = """\
PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C
not_ready() { echo "$1"; exit @NOT_READY@; }
restarts() { # how many within the last day
  since=$(($(date +%s) - 86400)) count=0 list=$MUSTER_ROOT/var/lib/muster/node/restarts
  if [ -r "$list" ]; then
    while read -r at; do
      case $at in '' | *[!0-9]*) ;; *) [ "$at" -lt "$since" ] || count=$((count + 1)) ;; esac
    done <"$list"
  fi
  echo "$count"
}
too_often() {
  [ "$(restarts)" -lt "$1" ] && return
  echo "Muster restarted this node $(restarts) times within a day: look at it before a further one"
  exit @TOO_OFTEN@
}
""".replace("@NOT_READY@", str(NOT_READY)).replace("@TOO_OFTEN@", str(TOO_OFTEN))

_BEFORE = """\
kernel=$(uname -r)
if [ @BUILDS@ = yes ] && [ -d "$MUSTER_ROOT/lib/modules/$kernel" ]; then
  [ -e "$MUSTER_ROOT/lib/modules/$kernel/build/." ] ||
    not_ready "the headers of the running kernel $kernel are missing: no module can be built for it"
  for image in "$MUSTER_ROOT"/boot/vmlinuz-*; do
    other=${image##*/vmlinuz-}
    case $other in '*' | *rescue*) continue ;; esac
    [ -e "$MUSTER_ROOT/lib/modules/$other/build/." ] ||
      not_ready "the headers of $other, which the node can boot, are missing: booted it would have no GPUs"
  done
  if [ -x "$MUSTER_ROOT/usr/sbin/dkms" ]; then
    command -v gcc >/dev/null || command -v cc >/dev/null || not_ready 'no compiler is installed: dkms cannot build the module'
  fi
fi
case $(mokutil --sb-state 2>/dev/null) in
  *'SecureBoot enabled'*)
    enrolled=no
    for key in "$MUSTER_ROOT"/var/lib/shim-signed/mok/MOK.der "$MUSTER_ROOT"/var/lib/dkms/mok.pub; do
      [ -r "$key" ] || continue
      case $(mokutil --test-key "$key" 2>&1) in *'already enrolled'*) enrolled=yes ;; esac
    done
    [ $enrolled = yes ] || not_ready 'secure boot is on, and no key that dkms signs with is enrolled: the module would be rejected' ;;
esac
# A new initramfs is written beside the old one.
need=0
for image in "$MUSTER_ROOT"/boot/initrd.img-"$kernel" "$MUSTER_ROOT"/boot/initramfs-"$kernel".img; do
  [ ! -f "$image" ] || need=$(($(wc -c <"$image") / 1024 * 3 / 2))
done
free_kib() { set -- $(df -Pk "$1" 2>/dev/null | sed -n 2p); echo "${4-}"; }
free=$(free_kib "$MUSTER_ROOT/boot")
[ -z "$free" ] || [ "$free" -ge "$need" ] || not_ready "/boot has $free KiB free, a new initramfs needs $need KiB"
free=$(free_kib "$MUSTER_ROOT/var")
[ -z "$free" ] || [ "$free" -ge @VAR_KIB@ ] || not_ready "/var has $free KiB free; the change needs @VAR_KIB@ KiB to be begun with"
"""

VAR_FLOOR_KIB = 65536
"""What /var must have for the task records, the lists and dpkg's own files; apt itself counts the packages when it fetches them."""

_WILL_LOAD = """\
kernel=@KERNEL@
[ -n "$kernel" ] || kernel=$(uname -r)
version=$(modinfo -k "$kernel" -F version nvidia 2>/dev/null) ||
  not_ready "there is no module nvidia on disk for $kernel: a restart would lose the GPUs"
[ "$version" = @DRIVER@ ] || not_ready "the module on disk for $kernel is $version, not @DRIVER@"
magic=$(modinfo -k "$kernel" -F vermagic nvidia 2>/dev/null)
[ -z "$magic" ] || [ "${magic%% *}" = "$kernel" ] || not_ready "the module on disk was built for ${magic%% *}"
case $(mokutil --sb-state 2>/dev/null) in
  *'SecureBoot enabled'*)
    [ -n "$(modinfo -k "$kernel" -F signer nvidia 2>/dev/null)" ] ||
      not_ready "secure boot is on, and the module for $kernel is not signed: it would be rejected" ;;
esac
# What other modules need of the driver (nvidia-peermem, nvidia-fs, gdrdrv) they must find in the new one, by name and by version of the symbol.
# Only those that are loaded now count: one that this node never loads is no loss. On the way back nothing is asked: it was so before.
symbols=$MUSTER_ROOT/lib/modules/$kernel/build/Module.symvers
if [ @BACK@ = no ] && [ -r "$symbols" ] && command -v depmod >/dev/null; then
  depmod -b "${MUSTER_ROOT:-/}" -n -e -E "$symbols" "$kernel" 2>&1 >/dev/null |
    sed -n 's|^depmod: WARNING: .*/\\([^/]*\\)\\.ko[.a-z]* \\(.*\\)|\\1 \\2|p' | while read -r module wrong; do
      [ ! -d "$MUSTER_ROOT/sys/module/$(echo "$module" | tr - _)" ] || case $module in
        nvidia* | gdrdrv) not_ready "on $kernel the module $module would not load beside the new driver: $wrong" ;;
      esac
    done || exit $?
fi
for image in "$MUSTER_ROOT/boot/initrd.img-$kernel" "$MUSTER_ROOT/boot/initramfs-$kernel.img"; do
  [ ! -e "$image" ] || [ -s "$image" ] || not_ready "${image##*/} is empty: the node would not boot"
done
"""

_COUNTED = """\
mkdir -p "$MUSTER_ROOT/var/lib/muster/node" && date +%s >>"$MUSTER_ROOT/var/lib/muster/node/restarts"
"""


def before(packages: tuple[str, ...], *, restarts: bool) -> str:
    """Asked before the lease: can a module be built and loaded here, is there room, and (`restarts`) may the node be restarted today."""
    builds = "yes" if any("dkms" in name for name in packages) else "no"
    text = _BEFORE.replace("@BUILDS@", builds).replace("@VAR_KIB@", str(VAR_FLOOR_KIB))
    return _TOOLS + (f"too_often {RESTARTS_A_DAY}\n" if restarts else "") + text


def before_restart(driver: str, *, back: bool, kernel: str = "") -> str:
    """Asked and counted immediately before a restart that is to load `driver` on `kernel` (the running one where none is named); the way back
    has one restart more.
    """
    text = _WILL_LOAD.replace("@DRIVER@", shlex.quote(driver)).replace("@KERNEL@", shlex.quote(kernel))
    text = text.replace("@BACK@", "yes" if back else "no")
    return _TOOLS + f"too_often {RESTARTS_A_DAY + (1 if back else 0)}\n" + text + _COUNTED
