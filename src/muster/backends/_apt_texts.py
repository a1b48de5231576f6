"""The pieces of shell of which the apt backend makes its texts. They run nothing and know no policy; what is put together from them, and under
which promises, is `packages.apt`'s.
"""

import re
import shlex

from muster.model.policy import EditedFiles, Holds, Permission
from muster.model.stack import PackagePin

LOCK_WAIT_S = 600
"""How long apt waits for another holder of the dpkg lock. An unattended upgrade of a full desktop takes minutes; killing it breaks the node."""

ENVIRONMENT = """\
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 NEEDRESTART_MODE=l LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
export PATH
"""

OPTIONS = (
    f"-o DPkg::Lock::Timeout={LOCK_WAIT_S} "
    "-o APT::Install-Recommends=false -o APT::Get::Assume-Yes=true -o Dpkg::Use-Pty=0"
)

NO_SOURCES = "-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null"
"""Only what was kept counts: where a repository still has the same version, apt would fetch it from there. `--no-download` is no way to
forbid that: apt then refuses to take the files as well."""

POLICY_RC_D = """\
policy=$MUSTER_ROOT/usr/sbin/policy-rc.d
ours='# muster: no daemon starts during a driver change'
if [ ! -e "$policy" ]; then
  mkdir -p "${policy%/*}"
  printf '#!/bin/sh\\n%s\\nexit 101\\n' "$ours" >"$policy" && chmod 755 "$policy" || exit 1
fi
give_back_policy() { grep -qxF "$ours" "$policy" 2>/dev/null && rm -f "$policy"; }
trap give_back_policy EXIT
trap 'exit 143' TERM INT HUP
"""
"""invoke-rc.d asks this file; 101 forbids the start. One that the site put there is left alone. A leftover of a killed task is ours and goes."""


PATIENT = f"""\
patiently() {{
  tries=0
  while :; do
    said=$("$@" 2>&1)
    status=$?
    case $said in *"locked by another process"* | *"unable to lock"*) ;; *) break ;; esac
    tries=$((tries + 1))
    [ $tries -lt {LOCK_WAIT_S} ] || break
    sleep 1
  done
  [ -z "$said" ] || printf '%s\\n' "$said"
  return $status
}}
select_states() {{ # standard input: package and state
  wanted=$(cat)
  set_them() {{ printf '%s\\n' "$wanted" | dpkg --set-selections; }}
  said=$(patiently set_them) || {{
    echo "E: the holds could not be set: $said"
    return 1
  }}
}}
"""
"""dpkg itself does not wait for its lock, as apt does."""


EDITED = {
    EditedFiles.KEEP: "-o Dpkg::Options::=--force-confold -o Dpkg::Options::=--force-confdef",
    EditedFiles.REPLACE: "-o Dpkg::Options::=--force-confnew",
}

UNSIGNED = " ".join(
    f"-o {option}=@ANSWER@"
    for option in (
        "APT::Get::AllowUnauthenticated",
        "Acquire::AllowInsecureRepositories",
        "Acquire::AllowWeakRepositories",
        "Acquire::AllowDowngradeToInsecureRepositories",
    )
)
"""Said in each call: what the node's own apt is set to does not count."""


SOURCE = "etc/apt/sources.list.d/muster.list"
KEY = "etc/apt/keyrings/muster.asc"
NOUVEAU = "etc/modprobe.d/muster-nouveau.conf"
"""What a first installation puts on a node beside packages."""

NEW_INITRAMFS = """\
new_initramfs() { # nouveau is in the old one
  if command -v update-initramfs >/dev/null; then update-initramfs -u
  elif command -v dracut >/dev/null; then dracut --force
  fi
}
"""

NO_NOUVEAU = (
    NEW_INITRAMFS
    + f"""\
mkdir -p "$MUSTER_ROOT/{NOUVEAU.rpartition("/")[0]}" || exit 1
printf '%s\\n' '# of muster: the GPUs are for the nvidia module' 'blacklist nouveau' 'options nouveau modeset=0' \\
  >"$MUSTER_ROOT/{NOUVEAU}" || exit 1
[ ! -d "$MUSTER_ROOT/sys/module/nouveau" ] || modprobe -r nouveau 2>/dev/null || echo 'nouveau is in use and goes with the restart'
"""
)

UNLOADED = """\
for module in nvidia_peermem nvidia_uvm nvidia_drm nvidia_modeset nvidia; do
  [ ! -d "$MUSTER_ROOT/sys/module/$module" ] || modprobe -r "$module" || { echo "E: the module $module is held"; exit 1; }
done
"""


def brought_text(
    back: tuple[PackagePin, ...],
    keep: str,
    pins: tuple[PackagePin, ...],
    well: str,
    *,
    guard: str = "",
    hold: bool = False,
    then: str = "",
) -> str:
    """The text that brings exactly `back` from the folder `keep`, whatever lies there; names that are only in `pins` go."""
    new = gone_names(back, pins)
    return (
        keep_text(keep)
        + POLICY_RC_D
        + PATIENT
        + OWN
        + 'mkdir -p "$own/lists/partial" "$own/archives/partial" || exit 1\n'
        + guard
        + unhold_text(back)
        + f"own {OPTIONS} {NO_SOURCES} -q install {ANY_WAY} {files_text(back)} {leaving_text(back, pins)}\n"
        # Whatever apt says: a package that was cut off in mid-unpack has its old version for apt, and is not whole.
        + "patiently dpkg --configure -a\nset --\n"
        + "".join(still_there_text(name) for name in new)
        + f'[ $# = 0 ] || patiently dpkg {FORCED_REMOVAL} --remove "$@"\nset --\n'
        + "".join(needed_text(pin) + (damaged_text(pin) if hold else "") for pin in back)
        + "rc=0\n"
        # apt gives up on a set that a power cut left half moved ("unmet dependencies"); dpkg takes the same checked files as they are.
        + '[ $# = 0 ] || patiently dpkg --force-confold --force-confdef --force-downgrade -i "$@" || rc=$?\n'
        + "[ $rc = 0 ] && { patiently dpkg --configure -a || rc=$?; }\n"
        + "state=$keep/state\n"
        + purged_text(new)
        + leftovers_text(back, pins)
        + RESTORE_ETC
        + "while IFS=\"$(printf '\\t')\" read -r name _ want _; do\n"
        + '  [ "$want" = hold ] && printf "%s hold\\n" "$name"\n'
        + 'done <"$state/packages" | select_states || rc=1\n'
        + (f"{hold_text(back).rstrip()} || rc=1\n" if hold else "")
        + (then or AS_HELD_BEFORE)
        + "audit=$(dpkg --audit) || rc=1\n"
        + '[ -z "$audit" ] || { printf "%s\\n" "$audit"; rc=1; }\n'
        + "".join(is_back_text(pin) for pin in back)
        + f"[ $rc != 0 ] || echo {shlex.quote(well)}\n"
        + "exit $rc\n"
    )


def leftovers_text(back: tuple[PackagePin, ...], pins: tuple[PackagePin, ...]) -> str:
    """The lines that remove what a cut-off unpacking of `pins` laid down beside the files of `back`: dpkg had not yet written down that it is
    there, so nothing takes it away, and the loader would find two libraries. Only files that no package has, under a name of `back` with the
    other version in it.
    """
    others = {pin.name: _upstream(pin.version) for pin in pins}
    moves: dict[tuple[str, str], list[str]] = {}
    for pin in back:
        old, other = _upstream(pin.version), others.get(pin.name, "")
        if other and other != old and "." in old:
            moves.setdefault((old, other), []).append(pin.name)
    return "".join(
        f"dpkg-query -L {' '.join(map(shlex.quote, names))} 2>/dev/null | grep -F {shlex.quote(old)} | while read -r file; do\n"
        f"  left=$(printf '%s\\n' \"$file\" | sed {shlex.quote(f's/{re.escape(old)}/{other}/g')})\n"
        '  rm -f "$MUSTER_ROOT$left.dpkg-new"\n'
        '  [ -f "$MUSTER_ROOT$left" ] || [ -h "$MUSTER_ROOT$left" ] || continue\n'
        '  dpkg-query -S "$left" >/dev/null 2>&1 || rm -f "$MUSTER_ROOT$left"\n'
        "done\n"
        for (old, other), names in moves.items()
    )


def _upstream(version: str) -> str:
    """A version without its epoch and Debian's revision."""
    whole = version.rpartition(":")[2]
    return whole.rpartition("-")[0] or whole


def files_text(pins: tuple[PackagePin, ...]) -> str:
    return " ".join(f'"$keep"/{shlex.quote(pin.name)}_*.deb' for pin in pins)


def guard_text(pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...]) -> str:
    """Nothing but the stack may go or move by a repair. Where apt cannot say (what lies there is too broken for it), dpkg touches the named
    files alone."""
    goes = "|".join(gone_names(pins, now)) or "-"
    moves = "|".join(pin.name for pin in pins)
    return (
        f"would=$(own {OPTIONS} {NO_SOURCES} -s -q install {ANY_WAY} {files_text(pins)} {leaving_text(pins, now)} 2>/dev/null) || would=\n"
        f"""gone=$(printf '%s\\n' "$would" | sed -n 's/^Remv \\([^ ]*\\).*/\\1/p' | grep -vxE '{goes}' | tr '\\n' ' ')\n"""
        '[ -z "$gone" ] || { echo "E: the repair would remove packages: $gone"; exit 3; }\n'
        f"""gone=$(printf '%s\\n' "$would" | sed -n 's/^Inst \\([^ ]*\\) \\[.*/\\1/p' | grep -vxE '{moves}' | tr '\\n' ' ')\n"""
        '[ -z "$gone" ] || { echo "E: the repair would also move packages: $gone"; exit 3; }\n'
    )


KEPT = """\
unread= lost=
kept() { # NAME=VERSION: a file of that version that an earlier change left on the node
  for file in "$MUSTER_ROOT"/var/lib/muster/node/restore/*/"${1%%=*}"_*.deb "$MUSTER_ROOT/var/lib/muster/node/apt/archives/${1%%=*}"_*.deb; do
    [ -r "$file" ] && [ "$(dpkg-deb -f "$file" Version 2>/dev/null)" = "${1#*=}" ] && echo "$file" && return
  done
}
packable() { # NAME=VERSION: whole on the node, and so can be packed again
  [ "$(dpkg-query -W -f '${db:Status-Status} ${Version}' "${1%%=*}" 2>/dev/null)" = "installed ${1#*=}" ] && command -v dpkg-repack >/dev/null
}
"""


def gathered_text(pin: PackagePin) -> str:
    name, quoted = shlex.quote(pin.name), shlex.quote(str(pin))
    return (
        f"if ! ls {name}_*.deb >/dev/null 2>&1; then\n  file=$(kept {quoted})\n"
        f'  if [ -n "$file" ]; then cp "$file" .; elif own {OPTIONS} {AS_ROOT} -q download {quoted} 2>/dev/null; then :\n'
        f"  elif packable {quoted} && dpkg-repack {name} >/dev/null; then :; else echo 'E: {pin} cannot be had'; exit 4; fi\nfi\n"
    )


OWN = """\
own=$MUSTER_ROOT/var/lib/muster/node/apt
own() {
  apt-get $rules -o "Dir::State::lists=$own/lists" -o "Dir::Cache::archives=$own/archives" -o Dir::Cache::pkgcache= \\
    -o Dir::Cache::srcpkgcache= -o APT::Keep-Downloaded-Packages=true "$@"
}
"""
"""Lists and packages of a change lie apart from the node's own: between the fetch and the change may be days of drain, in which the node's
daily jobs renew its lists, clean its cache and hold the locks of both."""

KEPT_RESTORE_POINTS = 3
"""Restore points hold whole drivers, a hundred megabytes and more each; the newest few are enough to look into, and to go back by hand."""

OLD_RESTORE_POINTS = f"""\
ls -t "${{keep%/*}}" | tail -n +{KEPT_RESTORE_POINTS + 1} | while read -r old; do
  [ "$old" = "${{keep##*/}}" ] || rm -rf "${{keep%/*}}/$old"
done
"""

ANY_WAY = "--allow-downgrades --allow-change-held-packages"

AS_ROOT = "-o APT::Sandbox::User=root"
"""The folder of the way back is root's alone; apt would fetch as root all the same, and complain."""

EXCLUSION = "etc/apt/apt.conf.d/52muster-driver"
"""What keeps unattended-upgrades from the driver and the kernel. dpkg's holds do so too, but a package that is new to the set has none yet."""

KERNEL = """\
kernel_packages() { # with this state
  dpkg-query -W -f '${db:Status-Status} ${db:Status-Want} ${Package}\\n' 'linux-image*' 'linux-headers*' 'linux-modules*' 2>/dev/null |
    sed -n "s/^installed $1 //p"
}
"""


def kept_from_text(holds: Holds) -> str:
    """The lines that keep others from the driver and the kernel between rollouts, as the policy says. They leave `rc` 1 where that failed."""
    said = ""
    if holds.kernel:
        said += KERNEL + "names=$(kernel_packages install)\n"
        said += "[ -z \"$names\" ] || printf '%s hold\\n' $names | select_states || rc=1\n"
    if holds.automatic_upgrades is Permission.FORBIDDEN:
        patterns = (
            "nvidia",
            "libnvidia",
            "libcuda",
            "cuda-drivers",
            *(("linux-image", "linux-headers", "linux-modules") if holds.kernel else ()),
        )
        listed = " ".join(f'"{pattern}";' for pattern in patterns)
        said += (
            f'file=$MUSTER_ROOT/{EXCLUSION}\nmkdir -p "${{file%/*}}" && cat >"$file.new" <<\'END\' && mv "$file.new" "$file" || rc=1\n'
            f"// of muster: the driver and the kernel change in rollouts alone\nUnattended-Upgrade::Package-Blacklist {{ {listed} }};\nEND\n"
        )
    return said


AS_HELD_BEFORE = (
    KERNEL
    + f"""\
[ -e "$state/excluded" ] || rm -f "$MUSTER_ROOT/{EXCLUSION}"
for name in $(kernel_packages hold); do
  ! grep -q "^$name\t[^\t]*\tinstall\t" "$state/packages" || printf '%s install\\n' "$name"
done | select_states || rc=1
"""
)
"""The way back lifts the holds that the change set."""

FORCED_REMOVAL = "--force-depends --force-remove-reinstreq --force-hold"

RESTORE_ETC = """\
[ -d "$state/etc" ] && cp -a "$state/etc/." "$MUSTER_ROOT/etc/"
for left in "$MUSTER_ROOT"/etc/modprobe.d/*.dpkg-dist "$MUSTER_ROOT"/etc/modprobe.d/*.dpkg-new "$MUSTER_ROOT"/etc/modprobe.d/*.dpkg-old; do
  [ ! -e "$left" ] || [ -e "$state/etc/modprobe.d/${left##*/}" ] || rm -f "$left"
done
"""
"""Configuration as it was, without what the new packages laid beside a changed file."""

SCRATCH_LISTS = """\
scratch=${MUSTER_SCRATCH:-$(mktemp -d)} || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/lists/partial" "$scratch/archives/partial" || exit 1
private() {
  apt-get $rules -o "Dir::State::lists=$scratch/lists" -o "Dir::Cache=$scratch" \\
    -o "Dir::Cache::archives=$scratch/archives" -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"
}
"""
"""Package lists are read into a scratch folder, so that preflight changes nothing on the node, not even its lists."""

REFUSING = """\
refuse() { # status, what, apt's words
  # What stopped it before what it grumbled about on the way.
  said=$(printf '%s\\n' "$3" | sed -n 's/^E: //p' | head -n 1)
  echo "$2: ${said:-$(printf '%s\\n' "$3" | sed -n 's/^W: //p' | head -n 1)}"
  exit "$1"
}
err=$(private -q update 2>&1 >/dev/null) || refuse 3 "the repository cannot be read" "$err"
# A server that is away is only a warning to apt.
unread=$(printf '%s\\n' "$err" | sed -n 's/^W: \\(Failed to fetch .*\\)/E: \\1/p' | head -n 1)
gone=
"""

PRIVATE_LISTS = SCRATCH_LISTS + REFUSING


def simulate_text(what: str, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
    """What apt would do, held against what was planned: nothing else goes, and nothing else that is there moves."""
    goes = "|".join(gone_names(pins, back)) or "-"
    moves = "|".join(pin.name for pin in pins)
    return (
        f"err=$(private -s -q install {ANY_WAY} {quoted_text(pins)} {leaving_text(pins, back)} "
        f'2>&1 >"$scratch/out") || {{ [ -z "$unread" ] || refuse 3 "the repository cannot be read" "$unread"\n'
        f'  refuse 3 "{what} cannot be installed" "$err"; }}\n'
        f"""gone=$(sed -n 's/^Remv \\([^ ]*\\).*/\\1/p' "$scratch/out" | grep -vxE '{goes}' | tr '\\n' ' ')\n"""
        '[ -z "$gone" ] || { echo "the change would remove packages: $gone"; exit 3; }\n'
        f"""gone=$(sed -n 's/^Inst \\([^ ]*\\) \\[.*/\\1/p' "$scratch/out" | grep -vxE '{moves}' | tr '\\n' ' ')\n"""
        '[ -z "$gone" ] || { echo "the change would also move packages: $gone"; exit 3; }\n'
        "gone=\n"
    )


def gone_names(pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> tuple[str, ...]:
    """Names in `back` that are not in `pins`: a package that changes its name with the branch or the flavour leaves under the old one."""
    kept = {pin.name for pin in pins}
    return tuple(pin.name for pin in back if pin.name not in kept)


def leaving_text(pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
    return " ".join(shlex.quote(f"{name}-") for name in gone_names(pins, back))


def download_or_repack_text(pin: PackagePin) -> str:
    """One .deb of the way back: from the repository, else packed again from what is installed, which then is what lies on the disk."""
    name, quoted = shlex.quote(pin.name), shlex.quote(str(pin))
    return (
        f"  ls {name}_*.deb >/dev/null 2>&1 || own {OPTIONS} {AS_ROOT} -q download {quoted} 2>/dev/null || "
        f"dpkg-repack {name} >/dev/null || exit 4\n"
    )


REPACK_CAN = """\
repacked=
for pin in $gone; do
  have=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "${pin%%=*}" 2>/dev/null)
  if [ "$have" = "installed ${pin#*=}" ] && command -v dpkg-repack >/dev/null; then repacked="$repacked $pin"
  else lost="$lost $pin"; fi
done
[ -z "${lost-}" ] || {
  echo "no way back: the repository has lost$lost${lost:+; dpkg-repack could pack what is installed, if that package were on the node}"
  exit 4
}
"""
"""A package that the repository has lost can still be kept, as long as it is installed at that version."""


def still_there_text(name: str) -> str:
    quoted = shlex.quote(name)
    return (
        f"  case \"$(dpkg-query -W -f '${{db:Status-Status}}' {quoted} 2>/dev/null)\" in "
        f"'' | not-installed | config-files) ;; *) set -- \"$@\" {quoted} ;; esac\n"
    )


def purged_text(names: tuple[str, ...]) -> str:
    """Nothing of names that were not there before stays, not even their settings: those of before are put back from the restore point."""
    if not names:
        return ""
    quoted = " ".join(shlex.quote(name) for name in names)
    return f'for name in {quoted}; do\n  ! dpkg-query -W "$name" >/dev/null 2>&1 || patiently dpkg --purge "$name" || rc=1\ndone\n'


def is_back_text(pin: PackagePin) -> str:
    return (
        f"[ \"$(dpkg-query -W -f '${{db:Status-Status}} ${{Version}}' {shlex.quote(pin.name)} 2>/dev/null)\" = "
        f"{shlex.quote('installed ' + pin.version)} ] || {{ echo {shlex.quote(f'E: {pin} is not back')}; rc=1; }}\n"
    )


def needed_text(pin: PackagePin) -> str:
    name, version = shlex.quote(pin.name), shlex.quote(f"installed {pin.version}")
    return (
        f"  [ \"$(dpkg-query -W -f '${{db:Status-Status}} ${{Version}}' {name} 2>/dev/null)\" = {version} ] "
        f'|| set -- "$@" "$keep"/{name}_*.deb\n'
    )


def damaged_text(pin: PackagePin) -> str:
    """A package that dpkg calls whole and is not: files of it are gone or cut short, or its kernel module was not built. It is unpacked anew;
    configuration files are people's own, and no reason."""
    name, version = shlex.quote(pin.name), shlex.quote(pin.version.rpartition(":")[2].partition("-")[0])
    wrong = f'[ -n "$(dpkg -V {name} 2>/dev/null | grep -v "^[^ ]* c ")" ]'
    if "dkms" in pin.name:
        wrong = f'{{ {wrong} || [ "$(modinfo -F version nvidia 2>/dev/null)" != {version} ]; }}'
    return f'  case " $* " in *"/"{name}_*) ;; *) {wrong} && set -- "$@" "$keep"/{name}_*.deb ;; esac\n'


def keep_text(keep: str) -> str:
    return f'keep=$MUSTER_ROOT{shlex.quote(keep)}\nmkdir -p "$keep" && chmod 700 "$keep" || exit 1\n'


def asking_text(pins: tuple[PackagePin, ...], *, forbidden: bool) -> str:
    """Which of the fetched packages ask something while they are installed, by their own control data; the last words of the fetch."""
    end = 'echo "fetched and verified${asks:+; questions are answered by their own defaults:$asks}"\n'
    if forbidden:
        end = (
            '[ -z "$asks" ] || { echo "E: packages ask questions, which the policy forbids (packages.questions):$asks"; exit 5; }\n'
            "echo 'fetched and verified'\n"
        )
    return (
        f"asks=\nfor pin in {quoted_text(pins)}; do\n"
        '  for file in "$own/archives/${pin%%=*}"_*.deb; do\n'
        '    [ "$(dpkg-deb -f "$file" Version 2>/dev/null)" = "${pin#*=}" ] || continue\n'
        '    ! dpkg-deb --ctrl-tarfile "$file" | tar -tf - ./config >/dev/null 2>&1 || asks="$asks ${pin%%=*}"\n'
        "  done\ndone\n" + end
    )


def check_debs_text(back: tuple[PackagePin, ...]) -> str:
    """Each kept .deb is whole and is the version it should be, by its own control data."""
    return "".join(
        f'v=$(dpkg-deb -f "$keep"/{shlex.quote(pin.name)}_*.deb Version) && [ "$v" = {shlex.quote(pin.version)} ] '
        f'&& dpkg-deb --fsys-tarfile "$keep"/{shlex.quote(pin.name)}_*.deb >/dev/null '
        f'|| {{ echo "no way back: {pin} is not kept whole"; exit 4; }}\n'
        for pin in back
    )


def quoted_text(pins: tuple[PackagePin, ...]) -> str:
    return " ".join(shlex.quote(str(pin)) for pin in pins)


def unhold_text(pins: tuple[PackagePin, ...]) -> str:
    return "printf '%s install\\n' " + " ".join(shlex.quote(p.name) for p in pins) + " | select_states\n"


def hold_text(pins: tuple[PackagePin, ...]) -> str:
    return "printf '%s hold\\n' " + " ".join(shlex.quote(p.name) for p in pins) + " | select_states\n"
