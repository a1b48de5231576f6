"""apt and dpkg: the texts that fetch, change and mend a node's packages. Runs nothing; a Transport does.

The rules of the design hold in every text: exact `name=version` for the whole set, wait for the dpkg lock and never kill its holder, ask
nothing, keep changed configuration files, no needrestart, no daemon started by a package while the old module is loaded, holds lifted for
the change and set again after it.
"""

import shlex
from collections.abc import Mapping

from muster.model.fact import NodeFacts
from muster.model.stack import BROKEN_STATES, PackagePin
from muster.ports import PackageManager

LOCK_WAIT_S = 600
"""How long apt waits for another holder of the dpkg lock. An unattended upgrade of a full desktop takes minutes; killing it breaks the node."""

_ENVIRONMENT = """\
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 NEEDRESTART_MODE=l LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
export PATH
"""

_OPTIONS = (
    f"-o DPkg::Lock::Timeout={LOCK_WAIT_S} -o Dpkg::Options::=--force-confold -o Dpkg::Options::=--force-confdef "
    "-o APT::Install-Recommends=false -o APT::Get::Assume-Yes=true -o Dpkg::Use-Pty=0"
)

_NO_SOURCES = "-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null"
"""Only what was kept counts: where a repository still has the same version, apt would fetch it from there. `--no-download` is no way to
forbid that: apt then refuses to take the files as well."""

_POLICY_RC_D = """\
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


_PATIENT = f"""\
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


class Apt:
    """`ports.PackageManager` for Debian and Ubuntu."""

    name = "apt"

    def serves(self, facts: NodeFacts) -> bool:
        return bool(facts.members("package"))

    def installed(self, facts: NodeFacts) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in facts.members("package"):
            version = facts.text(f"package[{name}].version")
            if version and facts.text(f"package[{name}].state") == "installed":
                found[name] = version
        return found

    def broken(self, facts: NodeFacts) -> tuple[str, ...]:
        return tuple(n for n in facts.members("package") if facts.text(f"package[{n}].state") in BROKEN_STATES)

    def version_text(self, driver: str, known: Mapping[str, str]) -> str:
        """The Debian revision of what is installed (`-1`, `-0ubuntu1`) is kept; a site build's own revision is taken as given."""
        if "-" in driver:
            return driver
        revisions = sorted({version.rpartition("-")[2] for version in known.values() if "-" in version})
        return f"{driver}-{revisions[-1]}" if revisions else f"{driver}-1"

    def preflight(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
        return (
            _ENVIRONMENT
            + _PRIVATE_LISTS
            + _simulate("the new driver", pins, back)
            # Asked for all at once; one by one only to name those that are gone.
            + f"if ! private download --print-uris {_quoted(back)} >/dev/null 2>&1; then\n"
            + f"  for pin in {_quoted(back)}; do\n"
            + '    private download --print-uris "$pin" >/dev/null 2>&1 || gone="$gone $pin"\n'
            + "  done\nfi\n"
            + _REPACK_CAN
            + 'echo "the change and the way back are complete${repacked:+; lost by the repository and packed again from the node:$repacked}"\n'
        )

    def fetch(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...], keep: str) -> str:
        return (
            _ENVIRONMENT
            + _keep(keep)
            + _OWN
            + _OLD_RESTORE_POINTS
            # What another change left is of no use, and a half-read list least of all. Packages that are whole are taken again.
            + 'rm -rf "$own/lists" && mkdir -p "$own/lists/partial" "$own/archives/partial" || exit 1\n'
            + f"own {_OPTIONS} -q update >/dev/null || {{ echo 'apt-get update failed'; exit 1; }}\n"
            + f"own {_OPTIONS} -q install --download-only {_ANY_WAY} {_quoted(pins)} {_leaving(pins, back)} || exit 1\n"
            + f'cd "$keep" || exit 1\nif ! own {_OPTIONS} {_AS_ROOT} -q download {_quoted(back)}; then\n'
            + "".join(_download_or_repack(pin) for pin in back)
            + "fi\n"
            + _check_debs(back)
            + 'echo "fetched and verified"\n'
        )

    def save(self, back: tuple[PackagePin, ...], keep: str) -> str:
        return (
            _ENVIRONMENT
            + _keep(keep)
            + "state=$keep/state.new\nmkdir -p \"$state\" || exit 1\n"
            + "dpkg-query -W -f '${binary:Package}\\t${Version}\\t${db:Status-Want}\\t${db:Status-Status}\\n' "
            + ">\"$state/packages\" || exit 1\n"
            + 'for d in etc/modprobe.d etc/nvidia etc/cdi; do\n'
            + '  [ -d "$MUSTER_ROOT/$d" ] && { mkdir -p "$state/$d" && cp -a "$MUSTER_ROOT/$d/." "$state/$d/" || exit 1; }\n'
            + "done\n"
            + 'cat "$MUSTER_ROOT/proc/sys/kernel/random/boot_id" >"$state/boot_id" || exit 1\n'
            + 'rm -rf "$keep/state" && mv "$state" "$keep/state" && sync || exit 1\n'
            + _check_debs(back)
            + 'echo "restore point written and checked"\n'
        )  # fmt: skip

    def install(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
        return (
            _ENVIRONMENT
            + _POLICY_RC_D
            + _PATIENT
            + _unhold((*pins, *(pin for pin in back if pin.name in _gone(pins, back))))
            + _OWN
            + f"own {_OPTIONS} -q install --no-download {_ANY_WAY} {_quoted(pins)} {_leaving(pins, back)}\n"
            + "rc=$?\n"
            + _hold(pins)
            + "[ $? = 0 ] || [ $rc != 0 ] || rc=1\n"
            + "exit $rc\n"
        )

    def restore(self, back: tuple[PackagePin, ...], keep: str, pins: tuple[PackagePin, ...]) -> str:
        return _brought(back, keep, pins, "the packages of before are back")

    def repair_preflight(self, pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...]) -> str:
        return (
            _ENVIRONMENT
            + _SCRATCH_LISTS
            + "err=$(private -q update 2>&1 >/dev/null) || unread=$(printf '%s\\n' \"$err\" | sed -n 's/^E: //p' | head -n 1)\n"
            + _KEPT
            + f"for pin in {_quoted(pins)}; do\n"
            + '  private download --print-uris "$pin" >/dev/null 2>&1 || [ -n "$(kept "$pin")" ] || packable "$pin" || lost="$lost $pin"\n'
            + "done\n"
            + '[ -z "$lost" ] || {\n'
            + '  echo "cannot be had, neither from the repository${unread:+ ($unread)} nor from what was kept here:$lost"\n  exit 4\n}\n'
            + f'echo "all {len(pins)} packages can be had"\n'
        )

    def gather(self, pins: tuple[PackagePin, ...], keep: str) -> str:
        return (
            _ENVIRONMENT
            + _keep(keep)
            + _OWN
            + 'mkdir -p "$own/lists/partial" "$own/archives/partial" && cd "$keep" || exit 1\n'
            # Without the repository it goes on with what lies on the node; what cannot be had is named below.
            + f"own {_OPTIONS} -q update >/dev/null || :\n"
            + _KEPT
            + "".join(_gathered(pin) for pin in pins)
            + _check_debs(pins)
            + 'echo "gathered and verified"\n'
        )

    def repair(self, pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...], keep: str) -> str:
        return _brought(pins, keep, now, f"one whole stack: {len(pins)} packages", guard=_guard(pins, now), hold=True)


def _brought(
    back: tuple[PackagePin, ...],
    keep: str,
    pins: tuple[PackagePin, ...],
    well: str,
    *,
    guard: str = "",
    hold: bool = False,
) -> str:
    """The text that brings exactly `back` from the folder `keep`, whatever lies there; names that are only in `pins` go."""
    new = _gone(back, pins)
    return (
        _ENVIRONMENT
        + _keep(keep)
        + _POLICY_RC_D
        + _PATIENT
        + _OWN
        + 'mkdir -p "$own/lists/partial" "$own/archives/partial" || exit 1\n'
        + guard
        + _unhold(back)
        + f"own {_OPTIONS} {_NO_SOURCES} -q install {_ANY_WAY} {_files(back)} {_leaving(back, pins)}\n"
        # Whatever apt says: a package that was cut off in mid-unpack has its old version for apt, and is not whole.
        + "patiently dpkg --configure -a\nset --\n"
        + "".join(_still_there(name) for name in new)
        + f'[ $# = 0 ] || patiently dpkg {_FORCED_REMOVAL} --remove "$@"\nset --\n'
        + "".join(_needed(pin) + (_damaged(pin) if hold else "") for pin in back)
        + "rc=0\n"
        # apt gives up on a set that a power cut left half moved ("unmet dependencies"); dpkg takes the same checked files as they are.
        + '[ $# = 0 ] || patiently dpkg --force-confold --force-confdef --force-downgrade -i "$@" || rc=$?\n'
        + "[ $rc = 0 ] && { patiently dpkg --configure -a || rc=$?; }\n"
        + "state=$keep/state\n"
        + _purged(new)
        + _RESTORE_ETC
        + "while IFS=\"$(printf '\\t')\" read -r name _ want _; do\n"
        + '  [ "$want" = hold ] && printf "%s hold\\n" "$name"\n'
        + 'done <"$state/packages" | select_states || rc=1\n'
        + (f"{_hold(back).rstrip()} || rc=1\n" if hold else "")
        + "audit=$(dpkg --audit) || rc=1\n"
        + '[ -z "$audit" ] || { printf "%s\\n" "$audit"; rc=1; }\n'
        + "".join(_is_back(pin) for pin in back)
        + f"[ $rc != 0 ] || echo {shlex.quote(well)}\n"
        + "exit $rc\n"
    )


def _files(pins: tuple[PackagePin, ...]) -> str:
    return " ".join(f'"$keep"/{shlex.quote(pin.name)}_*.deb' for pin in pins)


def _guard(pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...]) -> str:
    """Nothing but the stack may go or move by a repair. Where apt cannot say (what lies there is too broken for it), dpkg touches the named
    files alone."""
    goes = "|".join(_gone(pins, now)) or "-"
    moves = "|".join(pin.name for pin in pins)
    return (
        f"would=$(own {_OPTIONS} {_NO_SOURCES} -s -q install {_ANY_WAY} {_files(pins)} {_leaving(pins, now)} 2>/dev/null) || would=\n"
        f"""gone=$(printf '%s\\n' "$would" | sed -n 's/^Remv \\([^ ]*\\).*/\\1/p' | grep -vxE '{goes}' | tr '\\n' ' ')\n"""
        '[ -z "$gone" ] || { echo "E: the repair would remove packages: $gone"; exit 3; }\n'
        f"""gone=$(printf '%s\\n' "$would" | sed -n 's/^Inst \\([^ ]*\\) \\[.*/\\1/p' | grep -vxE '{moves}' | tr '\\n' ' ')\n"""
        '[ -z "$gone" ] || { echo "E: the repair would also move packages: $gone"; exit 3; }\n'
    )


_KEPT = """\
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


def _gathered(pin: PackagePin) -> str:
    name, quoted = shlex.quote(pin.name), shlex.quote(str(pin))
    return (
        f"if ! ls {name}_*.deb >/dev/null 2>&1; then\n  file=$(kept {quoted})\n"
        f'  if [ -n "$file" ]; then cp "$file" .; elif own {_OPTIONS} {_AS_ROOT} -q download {quoted} 2>/dev/null; then :\n'
        f"  elif packable {quoted} && dpkg-repack {name} >/dev/null; then :; else echo 'E: {pin} cannot be had'; exit 4; fi\nfi\n"
    )


_OWN = """\
own=$MUSTER_ROOT/var/lib/muster/node/apt
own() {
  apt-get -o "Dir::State::lists=$own/lists" -o "Dir::Cache::archives=$own/archives" -o Dir::Cache::pkgcache= \\
    -o Dir::Cache::srcpkgcache= -o APT::Keep-Downloaded-Packages=true "$@"
}
"""
"""Lists and packages of a change lie apart from the node's own: between the fetch and the change may be days of drain, in which the node's
daily jobs renew its lists, clean its cache and hold the locks of both."""

KEPT_RESTORE_POINTS = 3
"""Restore points hold whole drivers, a hundred megabytes and more each; the newest few are enough to look into, and to go back by hand."""

_OLD_RESTORE_POINTS = f"""\
ls -t "${{keep%/*}}" | tail -n +{KEPT_RESTORE_POINTS + 1} | while read -r old; do
  [ "$old" = "${{keep##*/}}" ] || rm -rf "${{keep%/*}}/$old"
done
"""

_ANY_WAY = "--allow-downgrades --allow-change-held-packages"

_AS_ROOT = "-o APT::Sandbox::User=root"
"""The folder of the way back is root's alone; apt would fetch as root all the same, and complain."""

_FORCED_REMOVAL = "--force-depends --force-remove-reinstreq --force-hold"

_RESTORE_ETC = """\
[ -d "$state/etc" ] && cp -a "$state/etc/." "$MUSTER_ROOT/etc/"
for left in "$MUSTER_ROOT"/etc/modprobe.d/*.dpkg-dist "$MUSTER_ROOT"/etc/modprobe.d/*.dpkg-new; do
  [ ! -e "$left" ] || [ -e "$state/etc/modprobe.d/${left##*/}" ] || rm -f "$left"
done
"""
"""Configuration as it was, without what the new packages laid beside a changed file."""

_SCRATCH_LISTS = """\
scratch=${MUSTER_SCRATCH:-$(mktemp -d)} || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/lists/partial" "$scratch/archives/partial" || exit 1
private() {
  apt-get -o "Dir::State::lists=$scratch/lists" -o "Dir::Cache=$scratch" -o "Dir::Cache::archives=$scratch/archives" -o Debug::NoLocking=1 "$@"
}
"""
"""Package lists are read into a scratch folder, so that preflight changes nothing on the node, not even its lists."""

_PRIVATE_LISTS = (
    _SCRATCH_LISTS
    + """\
refuse() { # status, what, apt's words
  echo "$2: $(printf '%s\\n' "$3" | sed -n 's/^[EW]: //p' | head -n 1)"
  exit "$1"
}
err=$(private -q update 2>&1 >/dev/null) || refuse 3 "the repository cannot be read" "$err"
# A server that is away is only a warning to apt.
unread=$(printf '%s\\n' "$err" | sed -n 's/^W: \\(Failed to fetch .*\\)/E: \\1/p' | head -n 1)
gone=
"""
)


def _simulate(what: str, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
    """What apt would do, held against what was planned: nothing else goes, and nothing else that is there moves."""
    goes = "|".join(_gone(pins, back)) or "-"
    moves = "|".join(pin.name for pin in pins)
    return (
        f"err=$(private -s -q install {_ANY_WAY} {_quoted(pins)} {_leaving(pins, back)} "
        f'2>&1 >"$scratch/out") || {{ [ -z "$unread" ] || refuse 3 "the repository cannot be read" "$unread"\n'
        f'  refuse 3 "{what} cannot be installed" "$err"; }}\n'
        f"""gone=$(sed -n 's/^Remv \\([^ ]*\\).*/\\1/p' "$scratch/out" | grep -vxE '{goes}' | tr '\\n' ' ')\n"""
        '[ -z "$gone" ] || { echo "the change would remove packages: $gone"; exit 3; }\n'
        f"""gone=$(sed -n 's/^Inst \\([^ ]*\\) \\[.*/\\1/p' "$scratch/out" | grep -vxE '{moves}' | tr '\\n' ' ')\n"""
        '[ -z "$gone" ] || { echo "the change would also move packages: $gone"; exit 3; }\n'
        "gone=\n"
    )


def _gone(pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> tuple[str, ...]:
    """Names in `back` that are not in `pins`: a package that changes its name with the branch or the flavour leaves under the old one."""
    kept = {pin.name for pin in pins}
    return tuple(pin.name for pin in back if pin.name not in kept)


def _leaving(pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
    return " ".join(shlex.quote(f"{name}-") for name in _gone(pins, back))


def _download_or_repack(pin: PackagePin) -> str:
    """One .deb of the way back: from the repository, else packed again from what is installed, which then is what lies on the disk."""
    name, quoted = shlex.quote(pin.name), shlex.quote(str(pin))
    return (
        f"  ls {name}_*.deb >/dev/null 2>&1 || own {_OPTIONS} {_AS_ROOT} -q download {quoted} 2>/dev/null || "
        f"dpkg-repack {name} >/dev/null || exit 4\n"
    )


_REPACK_CAN = """\
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


def _still_there(name: str) -> str:
    quoted = shlex.quote(name)
    return (
        f"  case \"$(dpkg-query -W -f '${{db:Status-Status}}' {quoted} 2>/dev/null)\" in "
        f"'' | not-installed | config-files) ;; *) set -- \"$@\" {quoted} ;; esac\n"
    )


def _purged(names: tuple[str, ...]) -> str:
    """Nothing of names that were not there before stays, not even their settings: those of before are put back from the restore point."""
    if not names:
        return ""
    quoted = " ".join(shlex.quote(name) for name in names)
    return f'for name in {quoted}; do\n  ! dpkg-query -W "$name" >/dev/null 2>&1 || patiently dpkg --purge "$name" || rc=1\ndone\n'


def _is_back(pin: PackagePin) -> str:
    return (
        f"[ \"$(dpkg-query -W -f '${{db:Status-Status}} ${{Version}}' {shlex.quote(pin.name)} 2>/dev/null)\" = "
        f"{shlex.quote('installed ' + pin.version)} ] || {{ echo {shlex.quote(f'E: {pin} is not back')}; rc=1; }}\n"
    )


def _needed(pin: PackagePin) -> str:
    name, version = shlex.quote(pin.name), shlex.quote(f"installed {pin.version}")
    return (
        f"  [ \"$(dpkg-query -W -f '${{db:Status-Status}} ${{Version}}' {name} 2>/dev/null)\" = {version} ] "
        f'|| set -- "$@" "$keep"/{name}_*.deb\n'
    )


def _damaged(pin: PackagePin) -> str:
    """A package that dpkg calls whole and is not: files of it are gone or cut short, or its kernel module was not built. It is unpacked anew;
    configuration files are people's own, and no reason."""
    name, version = shlex.quote(pin.name), shlex.quote(pin.version.rpartition(":")[2].partition("-")[0])
    wrong = f'[ -n "$(dpkg -V {name} 2>/dev/null | grep -v "^[^ ]* c ")" ]'
    if "dkms" in pin.name:
        wrong = f'{{ {wrong} || [ "$(modinfo -F version nvidia 2>/dev/null)" != {version} ]; }}'
    return f'  case " $* " in *"/"{name}_*) ;; *) {wrong} && set -- "$@" "$keep"/{name}_*.deb ;; esac\n'


def _keep(keep: str) -> str:
    return f'keep=$MUSTER_ROOT{shlex.quote(keep)}\nmkdir -p "$keep" && chmod 700 "$keep" || exit 1\n'


def _check_debs(back: tuple[PackagePin, ...]) -> str:
    """Each kept .deb is whole and is the version it should be, by its own control data."""
    return "".join(
        f'v=$(dpkg-deb -f "$keep"/{shlex.quote(pin.name)}_*.deb Version) && [ "$v" = {shlex.quote(pin.version)} ] '
        f'&& dpkg-deb --fsys-tarfile "$keep"/{shlex.quote(pin.name)}_*.deb >/dev/null '
        f'|| {{ echo "no way back: {pin} is not kept whole"; exit 4; }}\n'
        for pin in back
    )


def _quoted(pins: tuple[PackagePin, ...]) -> str:
    return " ".join(shlex.quote(str(pin)) for pin in pins)


def _unhold(pins: tuple[PackagePin, ...]) -> str:
    return "printf '%s install\\n' " + " ".join(shlex.quote(p.name) for p in pins) + " | select_states\n"


def _hold(pins: tuple[PackagePin, ...]) -> str:
    return "printf '%s hold\\n' " + " ".join(shlex.quote(p.name) for p in pins) + " | select_states\n"


BACKEND: PackageManager = Apt()
