"""Texts that keep what a node was set to before its change, give it back after a reload or restart, and compare. Pure; POSIX sh.

A reload or a restart loses what is set at run time: persistence, power limit, compute mode, application clocks, and on most GPUs MIG and its
layout. Packages bring their own files, a unit that was disabled by hand must not come back enabled, and a CDI spec must not name libraries that
are gone. `save` writes it down under a folder
of the restore point; `give_back` sets what differs and then says what still does. What could not be read before is not compared.

ECC and MIG modes that need another restart to change are compared, never set: they outlive a restart by themselves.
"""

import shlex

DIFFERS = 5
"""Exit status of `give_back` when something is not as it was; each line that begins with `differs:` names one."""

_FIELDS = (
    "uuid", "persistence_mode", "power.limit", "compute_mode", "ecc.mode.current", "mig.mode.current",
    "clocks.applications.graphics", "clocks.applications.memory",
)  # fmt: skip

_PARTS = ("settings", "mig", "units", "edited", "loader", "images", "parameters", "cdi")

_LOOK = """\
PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C
# A driver that does not work says so in place of a GPU; that is no setting.
settings() { nvidia-smi --query-gpu=@FIELDS@ --format=csv,noheader,nounits 2>/dev/null | sed -n '/^GPU-/s/, /|/gp'; }
# GPU, profile and place of each MIG instance, as `mig -cgi` takes them again.
layout() {
  nvidia-smi mig -lgi 2>/dev/null |
    sed -n 's/^| *\\([0-9][0-9]*\\) *MIG [^ ]* *\\([0-9][0-9]*\\) *[0-9][0-9]* *\\([0-9][0-9]*\\):[0-9].*/\\1 \\2:\\3/p'
}
units() {
  systemctl list-unit-files --no-legend --no-pager --type=service 'nvidia*' 'nv-*' 'dcgm*' 'slurmd*' 'kubelet*' 2>/dev/null |
    while read -r unit state _; do case $state in enabled | disabled | masked) echo "$unit $state" ;; esac; done
}
# rpm knows the digest of every file that it laid down; asked are the packages of these few files alone.
rpm_shipped() { # file
  command -v rpm >/dev/null && command -v sha256sum >/dev/null || return 1
  digest=$(sha256sum <"$1") own=${1#"$MUSTER_ROOT"}
  rpm --root "${MUSTER_ROOT:-/}" -qf --qf '[%{FILENAMES} %{FILEDIGESTS}\\n]' "$own" 2>/dev/null | grep -qxF "$own ${digest%% *}"
}
# Settings that a person wrote or changed: no package has a file of this content under this name.
edited() {
  command -v md5sum >/dev/null || return 0
  : >"$1/shipped" && : >"$1/files"
  if command -v dpkg-query >/dev/null; then
    listed() { dpkg-query --admindir="$MUSTER_ROOT/var/lib/dpkg" -W -f '${Conffiles}\\n' "$@" 2>/dev/null; }
    listed >"$1/shipped"
    listed 'nvidia*' 'libnvidia*' 'libcuda*' 'cuda-drivers*' 'datacenter-gpu-manager*' | sed -n 's,^ \\(/[^ ]*\\) .*,\\1,p' >"$1/files"
  fi
  for file in "$MUSTER_ROOT"/etc/modprobe.d/*.conf "$MUSTER_ROOT"/etc/nvidia/* "$MUSTER_ROOT"/etc/modules-load.d/*.conf; do
    case $file in *.dpkg-old | *.dpkg-dist | *.dpkg-new | *.rpmnew | *.rpmsave | *.rpmorig) ;; *) echo "${file#"$MUSTER_ROOT"}" ;; esac
  done >>"$1/files"
  sort -u "$1/files" | while read -r name; do
    [ -f "$MUSTER_ROOT$name" ] || continue
    sum=$(md5sum <"$MUSTER_ROOT$name")
    grep -qF " $name ${sum%% *}" "$1/shipped" || rpm_shipped "$MUSTER_ROOT$name" || echo "$name ${sum%% *}"
  done
}
# A CDI spec is stale when it names a library of the driver that is not there: containers would not start.
specs() {
  for file in "$MUSTER_ROOT"/etc/cdi/*.yaml "$MUSTER_ROOT"/etc/cdi/*.json "$MUSTER_ROOT"/run/cdi/*.yaml "$MUSTER_ROOT"/run/cdi/*.json; do
    [ -f "$file" ] || continue
    is=whole
    for library in $(grep -oE '/[^" ]*/lib(cuda|nvidia)[^" /]*\\.so\\.[0-9.]*[0-9]' "$file" | sort -u); do
      [ -e "$MUSTER_ROOT$library" ] || is=stale
    done
    echo "${file#"$MUSTER_ROOT"} $is"
  done
}
loader() { sed -n 's/^saved_entry=./&/p' "$MUSTER_ROOT"/boot/grub/grubenv "$MUSTER_ROOT"/boot/grub2/grubenv 2>/dev/null; }
images() { for file in "$MUSTER_ROOT"/boot/initrd.img-* "$MUSTER_ROOT"/boot/initramfs-*; do [ ! -s "$file" ] || echo "${file##*/}"; done; }
parameters() {
  for file in "$MUSTER_ROOT"/sys/module/nvidia/parameters/*; do [ ! -r "$file" ] || echo "${file##*/} $(cat "$file" 2>/dev/null)"; done
}
look_at_all() { # folder
  mkdir -p "$1" || return 1
  settings >"$1/settings"; layout >"$1/mig"; units >"$1/units"; edited "$1" >"$1/edited"; loader >"$1/loader"; images >"$1/images"
  parameters >"$1/parameters"; specs >"$1/cdi"
}
"""

_SAVE = """\
before=$MUSTER_ROOT@KEEP@/before
rm -rf "$before" "$before.new"
look_at_all "$before.new" && mv "$before.new" "$before" && sync || { echo 'what the node is set to could not be written down'; exit 1; }
"""

_GIVE_BACK = """\
before=$MUSTER_ROOT@KEEP@/before
[ -d "$before" ] || { echo 'there is no record of what the node was set to'; exit 0; }
now=$(mktemp -d) || exit 1
trap 'rm -rf "$now"' EXIT
set_one() { # GPU, option, value, what for people
  nvidia-smi -i "$1" "$2" "$3" </dev/null >"$now/said" 2>&1 || echo "could not set $4 of $1 to $3: $(tail -n 1 "$now/said")"
}
IFS='|'
settings >"$now/settings"
while read -r gpu mode limit compute _ _ graphics memory; do
  now_of=$(grep -F "$gpu|" "$now/settings") || continue
  set -- $now_of
  [ "$mode" = "$2" ] || set_one "$gpu" -pm "$(case $mode in Enabled) echo 1 ;; *) echo 0 ;; esac)" persistence
  [ "$compute" = "$4" ] || set_one "$gpu" -c "$(echo "$compute" | tr '[:lower:]' '[:upper:]')" 'the compute mode'
  case $limit in [0-9]*) [ "$limit" = "$3" ] || set_one "$gpu" -pl "$limit" 'the power limit' ;; esac
  case $graphics,$memory in [0-9]*,[0-9]*) [ "$graphics,$memory" = "$7,$8" ] || set_one "$gpu" -ac "$memory,$graphics" 'the clocks' ;; esac
done <"$before/settings"
unset IFS
if [ -s "$before/mig" ] && [ "$(layout)" != "$(cat "$before/mig")" ]; then
  for gpu in $(cut -d' ' -f1 "$before/mig" | sort -un); do
    places=$(sed -n "s/^$gpu //p" "$before/mig" | tr '\\n' ',')
    nvidia-smi mig -i "$gpu" -cgi "${places%,}" -C >"$now/said" 2>&1 || echo "could not lay out GPU $gpu again: $(tail -n 1 "$now/said")"
  done
fi
# Specs that the change made stale are made anew, by the toolkit or by its own unit.
specs | while read -r file is; do
  [ "$is" = stale ] && grep -qxF "$file whole" "$before/cdi" 2>/dev/null || continue
  if command -v nvidia-ctk >/dev/null; then
    nvidia-ctk cdi generate --output="$MUSTER_ROOT$file" >"$now/said" 2>&1 || echo "could not make $file anew: $(tail -n 1 "$now/said")"
  else
    systemctl restart nvidia-cdi-refresh.service 2>/dev/null
  fi
done
# NAME=VALUE: written down for the next load of the module, which the change was. Files that a person edited are compared by themselves.
asked() {
  sed -n 's/^options[[:space:]]*nvidia[[:space:]]\\(.*\\)/ \\1 /p' "$MUSTER_ROOT"/etc/modprobe.d/*.conf 2>/dev/null |
    grep -qF -- " $1 "
}
look_at_all "$now" || exit 1
rc=0
# What was there and is now otherwise; what came new with the packages is not held against them.
for part in @PARTS@; do
  [ -f "$before/$part" ] || continue # written by an earlier release
  while IFS= read -r line; do
    grep -qxF -- "$line" "$now/$part" && continue
    case $part in
      units) systemctl cat "${line%% *}" >/dev/null 2>&1 || continue ;;
      # Replaced because the policy says so: dpkg kept it beside, so nothing is lost.
      edited) [ "$(md5sum <"$MUSTER_ROOT${line%% *}.dpkg-old" 2>/dev/null)" != "${line##* }  -" ] || continue ;;
      cdi) case $line in *' stale') continue ;; esac ;;
      parameters)
        value=$(sed -n "s/^${line%% *} //p" "$now/$part")
        grep -q "^${line%% *} " "$now/$part" && ! asked "${line%% *}=$value" || continue ;;
    esac
    key=${line%%[| ]*}
    printf '%s\\n' "differs: $part: was $line, is $(grep -F -- "$key" "$now/$part" | head -n 1)"
    rc=@DIFFERS@
  done <"$before/$part"
done
[ $rc != 0 ] || echo 'what the node was set to is given back'
exit $rc
"""


def save(keep: str) -> str:
    """The text that writes down under `keep` what the node is set to. It changes nothing else, and goes on where it ends well."""
    return _LOOK.replace("@FIELDS@", ",".join(_FIELDS)) + _SAVE.replace("@KEEP@", shlex.quote(keep))


def give_back(keep: str, *, loader: bool = True) -> str:
    """The text that sets again what differs from what `save` wrote down, and exits with `DIFFERS` when something still does.

    `loader` false: what the boot loader remembers is being changed on purpose, and is seen to elsewhere (`boot`).
    """
    parts = " ".join(part for part in _PARTS if loader or part != "loader")
    text = _GIVE_BACK.replace("@KEEP@", shlex.quote(keep)).replace("@DIFFERS@", str(DIFFERS)).replace("@PARTS@", parts)
    return _LOOK.replace("@FIELDS@", ",".join(_FIELDS)) + text
