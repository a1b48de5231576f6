"""dnf and rpm: the texts that fetch, change and mend a node's packages. Runs nothing; a Transport does.

The rules are those of `ports.PackageManager`: exact versions for the whole set in one transaction (up, down, or under new names), signatures
always checked, wait for rpm's lock and never kill its holder, no daemon restarted while the old module is loaded, version locks set anew after
the change. A module stream is a pin like any other, under dnf's own name for it: `@nvidia-driver=580-open`.

Going back rests on the kept files alone: dnf takes them in one transaction, and what a power cut left half-way is laid down again by rpm.
Neither `dnf history undo` (it wants the repository) nor `rpm --rebuilddb` (it can lose packages) is ever used. dnf 5 is refused, not tried.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.backends._dnf_sh import (
    ASK,
    CANNOT,
    COMMON,
    DAEMONS,
    DAMAGED,
    FITS,
    KEPT,
    KERNEL_LOCKS,
    LAY_DOWN,
    LOCK_WAIT_S,
    LOCKS,
    LOOK_WAIT_S,
    NO_WAY_BACK,
    READABLE,
    RESTORE_ETC,
    SCRATCH,
    SCRIPTLETS,
    SIGNED,
    SPACE,
    STREAMS,
    WAIT,
    WOULD,
)
from muster.model.fact import NodeFacts
from muster.model.policy import Holds, Packages
from muster.model.stack import BROKEN_STATES, PackagePin
from muster.ports import PackageManager

KEPT_RESTORE_POINTS = 3
"""Restore points hold whole drivers, hundreds of megabytes each; the newest few are enough to look into, and to go back by hand."""

_SEVERAL = re.compile(r"kernel(-.*)?")
"""Packages of which rpm keeps several versions side by side; two versions of any other are a transaction that was cut off."""

_VERSION = re.compile(r"(?:(\d+):)?([^:-]+)-([^:-]+)")
_FOREIGN = re.compile(r"\.i[3-6]86$")


class Dnf:
    """`ports.PackageManager` for RHEL and its like, and Amazon Linux; `PackageRepairs`, `PackageHolds` and `RuledPackages` too."""

    name = "dnf"

    def __init__(self, holds: Holds | None = None) -> None:
        self._kernel = KERNEL_LOCKS if holds is not None and holds.kernel else ""

    def under(self, rules: Packages, holds: Holds, key: str = "") -> PackageManager:
        """Of the rules none changes these texts: rpm asks nothing and keeps edited files, and a signature is always wanted."""
        return Dnf(holds)

    def serves(self, facts: NodeFacts) -> bool:
        return facts.text("packages.manager") == "rpm" and bool(facts.members("package"))

    def installed(self, facts: NodeFacts) -> Mapping[str, str]:
        broken = self.broken(facts)
        found: dict[str, str] = {}
        for key in facts.members("package"):
            version = facts.text(f"package[{key}].version")
            if version and not _second(key) and key not in broken:
                found[key] = version
        return found

    def broken(self, facts: NodeFacts) -> tuple[str, ...]:
        """A package whose own script failed, and one of which a cut transaction left two versions."""
        found: dict[str, None] = {}
        for key in facts.members("package"):
            name = key.partition("@")[0] if _second(key) else key
            doubled = _second(key) and not _SEVERAL.fullmatch(name)
            if doubled or facts.text(f"package[{key}].state") in BROKEN_STATES:
                found[name] = None
        return tuple(found)

    def version_text(self, driver: str, known: Mapping[str, str]) -> str:
        """The epoch and the release (`3:`, `-1.el9`) that most of the installed packages have; a site build's own release is taken as given."""
        epoch, release = _usual(known.values())
        return _spelled(driver, epoch, release)

    def spelled(self, driver: str, pins: tuple[PackagePin, ...], known: Mapping[str, str]) -> tuple[PackagePin, ...]:
        """Each package keeps its own epoch and release: the fabric manager, say, has neither the driver's epoch nor `.el9`."""
        usual = _usual(known.values())
        return tuple(
            pin if _is_stream(pin) else replace(pin, version=_spelled(driver, *_form(known.get(pin.name, ""), usual)))
            for pin in pins
        )

    def preflight(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
        return (
            COMMON
            + FITS
            + READABLE
            + WAIT
            + f"wait_for_rpm {LOOK_WAIT_S}\n"
            + ASK
            + SCRATCH
            + _offered(pins, back)
            + _simulate(pins, back)
            + SPACE
            + "note=\n"
            + '[ -n "$lock_plugin" ] || note="; there is no versionlock plugin: nothing will hold the packages"\n'
            + 'echo "the change and the way back are complete$note"\n'
        )

    def fetch(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...], keep: str) -> str:
        return (
            COMMON
            + READABLE
            + _keep(keep)
            + _OLD_RESTORE_POINTS
            + ASK
            + SIGNED
            + 'rm -rf "$own/new" && mkdir -p "$own/new" || exit 1\n'
            + "got() { # what, then the arguments of dnf\n"
            + '  what=$1; shift\n  ask_dnf "$@" -y >"$own/said" 2>&1 || {\n'
            + '    echo "E: $what cannot be fetched: $(reason "$own/said")"\n'
            + f"    exit {CANNOT}\n  }}\n}}\n"
            + _hot(pins)
            + f"got 'the new driver' install --refresh $hot --downloadonly --downloaddir=\"$own/new\" {_specs(pins)}\n"
            + f"got 'the way back' reinstall --downloadonly --downloaddir=\"$keep\" {_specs(back)}\n"
            + 'rm -rf "$own"/cache/*/packages\n'
            + _check_new(pins)
            + _check_kept(back)
            + 'echo "fetched and verified"\n'
        )

    def save(self, back: tuple[PackagePin, ...], keep: str) -> str:
        return (
            COMMON
            + _keep(keep)
            + SIGNED
            + LOCKS
            + "state=$keep/state.new\n"
            + 'rm -rf "$state" && mkdir -p "$state" || exit 1\n'
            + 'rpm -qa --qf "$form" | plain >"$state/packages" && [ -s "$state/packages" ] || exit 1\n'
            + "for d in etc/modprobe.d etc/nvidia etc/cdi; do\n"
            + '  [ -d "$MUSTER_ROOT/$d" ] && { mkdir -p "$state/$d" && cp -a "$MUSTER_ROOT/$d/." "$state/$d/" || exit 1; }\n'
            + 'done\nmkdir -p "$state/etc/dnf/modules.d"\n'
            + "".join(
                f'file={_stream_file(pin)}\n[ ! -e "$MUSTER_ROOT/$file" ] || cp -a "$MUSTER_ROOT/$file" "$state/$file" || exit 1\n'
                for pin in back
                if _is_stream(pin)
            )
            + '[ -z "$list" ] || [ ! -e "$MUSTER_ROOT$list" ] || cp -a "$MUSTER_ROOT$list" "$state/locks" || exit 1\n'
            + 'cat "$MUSTER_ROOT/proc/sys/kernel/random/boot_id" >"$state/boot_id" || exit 1\n'
            + 'rm -rf "$keep/state" && mv "$state" "$keep/state" && sync || exit 1\n'
            + _check_kept(back)
            + 'echo "restore point written and checked"\n'
        )

    def install(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
        gone = _gone(pins, back)
        return (
            COMMON
            + READABLE
            + WAIT
            + ASK
            + STREAMS
            + SCRIPTLETS
            + LOCKS
            + 'mkdir -p "$own/new" || exit 1\n'
            + f"wait_for_rpm {LOCK_WAIT_S}\n"
            + "".join(f"to_stream {_module(pin)} {shlex.quote(pin.version)} || exit 1\n" for pin in pins if _is_stream(pin))
            + "unlike() {\n" + _unlike(pins, gone, "is not installed as wanted", "is still installed") + "}\n"
            + ': >"$own/said"\nrc=0\n'
            + "if ! unlike >/dev/null; then\n"
            + _transaction("--disablerepo='*'", gone, '"$own"/new/*.rpm')
            + 'rc=$?\ncat "$own/said"\nfi\n'
            + 'scriptlets "$own/said" || failing=1\n'
            + '[ $rc = 0 ] || echo "E: $(reason "$own/said")"\n'
            + '[ -z "${failing-}" ] || rc=1\n'
            + DAEMONS
            + "[ $rc != 0 ] || unlike || rc=1\n"
            + f"[ $rc != 0 ] || printf '%s\\n' {_locks(pins)} | relock {_names(pins, back)} || rc=1\n"
            + self._kernel
            + "exit $rc\n"
        )  # fmt: skip

    def restore(self, back: tuple[PackagePin, ...], keep: str, pins: tuple[PackagePin, ...]) -> str:
        # The streams of before come back with the rest of the configuration, and first.
        locks = f'locked {_names(pins, back)} "$state/locks" | relock {_names(pins, back)} || rc=1\n'
        return _brought(back, keep, pins, "the packages of before are back", first=RESTORE_ETC, locks=locks)

    def hold(self, pins: tuple[PackagePin, ...]) -> str:
        return (
            COMMON
            + READABLE
            + LOCKS
            + '[ -n "$list" ] || { echo "E: there is no versionlock plugin on this node, and nothing else holds packages"; exit 1; }\n'
            + f"rc=0\nprintf '%s\\n' {_locks(pins)} | relock {_names(pins)} || rc=1\n"
            + self._kernel
            + "[ $rc != 0 ] || echo 'held'\nexit $rc\n"
        )

    def holds_tell(self) -> tuple[str, ...]:
        also = ("dnf-automatic heeds the same locks",)
        return (
            (("the kernel's packages are locked at the versions that are installed", *also)) if self._kernel else also
        )

    def repair_preflight(self, pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...]) -> str:
        return (
            COMMON
            + FITS
            + READABLE
            + ASK
            + SCRATCH
            + SIGNED
            + KEPT
            + _listed(pins)
            + "lost=\n"
            + f"for pin in {_exact(pins)}; do\n"
            + '  grep -qF " $pin " "$scratch/offers" || [ -n "$(kept "$pin")" ] || lost="$lost $pin"\ndone\n'
            + f'[ -z "$lost" ] || refuse {NO_WAY_BACK} '
            + '"cannot be had, neither from the repository${unread:+ ($unread)} nor from what was kept here:$lost"\n'
            + f'echo "all {len(_packages(pins))} packages can be had"\n'
        )

    def gather(self, pins: tuple[PackagePin, ...], keep: str) -> str:
        return (
            COMMON
            + READABLE
            + _keep(keep)
            + ASK
            + SIGNED
            + KEPT
            + 'mkdir -p "$own" || exit 1\nset --\n'
            + "".join(
                f"file=$(kept {shlex.quote(f'{_bare(pin.name)}={_plain(pin.version)}')})\n"
                f'if [ -n "$file" ]; then [ "${{file%/*}}" = "$keep" ] || cp "$file" "$keep/" || exit 1; else set -- "$@" {_specs((pin,))}; fi\n'
                for pin in _packages(pins)
            )
            + "if [ $# != 0 ]; then\n"
            + '  ask_dnf download "$@" -y --refresh --setopt=\'*.module_hotfixes=1\' --arch "$(uname -m)" --arch noarch --destdir="$keep" \\\n'
            + '    >"$own/said" 2>&1 || { echo "E: cannot be had: $* ($(reason "$own/said"))"; '
            + f"exit {NO_WAY_BACK}; }}\nfi\n"
            + _check_kept(pins)
            + 'echo "gathered and verified"\n'
        )

    def repair(self, pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...], keep: str) -> str:
        streams = "".join(
            f"to_stream {_module(pin)} {shlex.quote(pin.version)} || exit 1\n" for pin in pins if _is_stream(pin)
        )
        locks = f"printf '%s\\n' {_locks(pins)} | relock {_names(pins, now)} || rc=1\n"
        well = f"one whole stack: {len(_packages(pins))} packages"
        return _brought(pins, keep, now, well, first=WOULD + _guard(pins, now) + STREAMS + streams, locks=locks)


def _brought(
    back: tuple[PackagePin, ...], keep: str, pins: tuple[PackagePin, ...], well: str, *, first: str, locks: str
) -> str:
    """The text that brings exactly `back` from the folder `keep`, whatever lies there; names that are only in `pins` go."""
    new = _gone(back, pins)
    names = " ".join(shlex.quote(pin.name) for pin in _packages(back))
    return (
        COMMON
        + READABLE
        + _keep(keep)
        + WAIT
        + ASK
        + SIGNED
        + SCRIPTLETS
        + LOCKS
        + _check_kept(back)
        + 'mkdir -p "$own" || exit 1\n: >"$own/said"\nstate=$keep/state\n'
        + f"wait_for_rpm {LOCK_WAIT_S}\n"
        + first
        + "unlike() {\n" + _unlike(back, new, "is not back", "is still there") + "}\n"
        + "if ! unlike >/dev/null; then\n"
        + _transaction(_ALONE, new, '"$keep"/*.rpm')
        + 'cat "$own/said"\nfi\n'
        + f"set --\nfor name in {names}; do\n" + DAMAGED + "done\n"
        + LAY_DOWN
        + "".join(_removed(name) for name in new)
        + "rc=0\n"
        + 'scriptlets "$own/said" || rc=1\n'
        + RESTORE_ETC
        + locks
        + DAEMONS
        + "unlike || rc=1\n"
        + f"[ $rc != 0 ] || echo {shlex.quote(well)}\n"
        + "exit $rc\n"
    )  # fmt: skip


_ALONE = "--noplugins --disablerepo='*'"
"""What is kept is enough: no repository is asked, and no plugin that would ask one."""

_OLD_RESTORE_POINTS = f"""\
ls -t "${{keep%/*}}" | tail -n +{KEPT_RESTORE_POINTS + 1} | while read -r old; do
  [ "$old" = "${{keep##*/}}" ] || rm -rf "${{keep%/*}}/$old"
done
"""


def _transaction(options: str, gone: tuple[str, ...], wanted: str) -> str:
    """One transaction of dnf that brings `wanted` and takes away `gone`; leaves dnf's words in `$own/said` and its exit status."""
    if not gone:
        return f'ask_dnf install {wanted} -y {options} >"$own/said" 2>&1\n'
    return (
        _script(gone, wanted, "$own")
        # dnf's shell passes over an argument that it does not find: nothing is done where one is missing.
        + f'ask_dnf shell "$own/script" --assumeno {options} >"$own/said" 2>&1\n'
        + "if grep -qE '^Error|^No match for argument' \"$own/said\"; then false\n"
        + f'else ask_dnf shell "$own/script" -y {options} >"$own/said" 2>&1; fi\n'
    )


def _script(gone: tuple[str, ...], wanted: str, place: str) -> str:
    """What leaves and what comes, for `dnf shell`: it makes them one transaction at its end. What is not installed is not asked to leave."""
    return (
        f'echo install {wanted} >"{place}/script"\n'
        f"for name in {' '.join(map(shlex.quote, gone))}; do\n"
        f'  ! rpm -q "$name" >/dev/null 2>&1 || echo "remove $name" >>"{place}/script"\n'
        "done\n"
    )


def _listed(pins: tuple[PackagePin, ...]) -> str:
    """One question for all versions of all names, answered in `$scratch/offers`; what could not be read is in `$unread`."""
    names = " ".join(shlex.quote(name) for name in dict.fromkeys(_bare(pin.name) for pin in _packages(pins)))
    asked = "%{name}=%{epoch}:%{version}-%{release} %{arch} %{downloadsize} %{reponame}"
    return (
        f"unread=\nprivate repoquery -q -y --setopt='*.module_hotfixes=1' --available --qf {shlex.quote(asked)} {names} "
        '>"$scratch/listed" 2>"$scratch/said" || unread=$(reason "$scratch/said")\n'
        'found=$(unread)\n[ -z "$found" ] || unread=$found\n'
        'sed \'s/=0:/=/; s/^/ /\' "$scratch/listed" >"$scratch/offers"\n'
    )


def _offered(pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
    """What of the new driver is not there, what of the old one is lost, and how much is to be fetched."""
    return (
        _listed((*pins, *back)) + "lost=\n"
        f"for pin in {_exact(pins)}; do\n"
        '  grep -qF " $pin " "$scratch/offers" || lost="$lost $pin"\ndone\n'
        '[ -z "$lost" ] || {\n'
        f'  [ -z "$unread" ] || refuse {CANNOT} "the repository cannot be read: $unread"\n'
        "  set -- $lost\n"
        '  like=$(grep -F " ${1%-*}-" "$scratch/offers" | sed "s/^[^=]*=\\([^ ]*\\) .*/\\1/" | sort -u | head -n 3 | tr "\\n" " ")\n'
        f'  refuse {CANNOT} "the new driver cannot be installed: no repository has$lost${{like:+; of that version there is $like}}"\n'
        "}\n"
        f"for pin in {_exact(back)}; do\n"
        '  grep -qF " $pin " "$scratch/offers" || lost="$lost $pin"\ndone\n'
        f'[ -z "$lost" ] || refuse {NO_WAY_BACK} "no way back: the repository has lost$lost${{unread:+ ($unread)}}"\n'
        'need=$(awk -v wanted=" $(echo ' + _exact((*pins, *back)) + ") \" '\n"
        '  index(wanted, " " $1 " ") && !seen[$1 " " $2]++ { sum += $3 } END { printf "%d", sum / 1024 * 1.1 + 1024 }\' "$scratch/offers")\n'
        + _hot_here(pins)
    )


def _simulate(pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
    """What dnf would do, by its own log, held against what was planned: nothing else goes, and nothing else that is there moves."""
    gone = _gone(pins, back)
    ask = 'shell "$scratch/script"' if gone else f"install {_specs(pins)}"
    return (
        WOULD
        + (_script(gone, _specs(pins), "$scratch") if gone else "")
        + f'private {ask} --assumeno -C $hot >"$scratch/said" 2>&1\nrc=$?\n'
        + "if grep -qE '^(Error|No match for argument)' \"$scratch/said\" ||\n"
        + "  { [ $rc != 0 ] && ! grep -qx 'Operation aborted.' \"$scratch/said\"; }; then\n"
        + f'  refuse {CANNOT} "the new driver cannot be installed: $(reason "$scratch/said")"\nfi\n'
        + "grep -q 'Starting dependency resolution' \"$scratch/dnf.log\" ||\n"
        + f'  refuse {CANNOT} "what dnf would do cannot be told: it wrote no log"\n'
        + f'more=$(would "$scratch/dnf.log" {_patterns(pins, gone)})\n'
        + f'[ -z "$more" ] || refuse {CANNOT} "the change would $more"\n'
    )


def _patterns(pins: tuple[PackagePin, ...], gone: tuple[str, ...]) -> str:
    """The names that may go, and those that may move, as two arguments."""
    goes = "|".join(map(re.escape, gone)) or "-"
    moves = "|".join(re.escape(_bare(pin.name)) for pin in _packages(pins)) or "-"
    return f"{shlex.quote(goes)} {shlex.quote(moves)}"


def _guard(pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...]) -> str:
    """Nothing but the stack may go or move by a repair. Where dnf cannot say (what lies there is too broken for it), rpm touches the named
    packages alone."""
    gone = _gone(pins, now)
    wanted = '"$keep"/*.rpm'
    ask = 'shell "$own/script"' if gone else f"install {wanted}"
    return (
        'rm -rf "$own/would" && mkdir -p "$own/would" || exit 1\n'
        + (_script(gone, wanted, "$own") if gone else "")
        + f'ask_dnf {ask} --assumeno {_ALONE} --setopt=logdir="$own/would" --setopt=logfilelevel=9 >"$own/said" 2>&1\n'
        + f'more=$(would "$own/would/dnf.log" {_patterns(pins, gone)})\n'
        + f'[ -z "$more" ] || {{ echo "E: the repair would $more"; exit {CANNOT}; }}\n'
    )


def _hot_here(pins: tuple[PackagePin, ...]) -> str:
    """Before its stream is enabled, the packages of a stream are seen only in a repository that is asked to pass over streams."""
    if not any(map(_is_stream, pins)):
        return "hot=\n"
    return (
        f'hot=$(awk -v wanted=" $(echo {_exact(pins)}) " \'index(wanted, " " $1 " ") && !seen[$4]++ '
        '{ print "--setopt=" $4 ".module_hotfixes=1" }\' "$scratch/offers")\n'
    )


def _hot(pins: tuple[PackagePin, ...]) -> str:
    if not any(map(_is_stream, pins)):
        return "hot=\n"
    return (
        "hot=$(ask_dnf repoquery -q -y --setopt='*.module_hotfixes=1' --available "
        f"--qf '%{{reponame}}' {_specs(pins)} 2>/dev/null | sort -u | sed 's/.*/--setopt=&.module_hotfixes=1/')\n"
    )


def _unlike(wanted: tuple[PackagePin, ...], gone: tuple[str, ...], missing: str, left: str) -> str:
    """The body of a function that names what is not as wanted, and fails then."""
    names = " ".join(shlex.quote(pin.name) for pin in _packages(wanted))
    lines = "\n".join(sorted({f"{_bare(pin.name)}={_plain(pin.version)}" for pin in _packages(wanted)}))
    text = (
        f"wanted={shlex.quote(lines)} bad=0\n"
        f"now=$(there {names})\n"
        '[ "$now" = "$wanted" ] || {\n'
        '  for one in $wanted; do\n    printf "%s\\n" "$now" | grep -qxF "$one" || echo "E: $one ' + missing + '"\n  done\n'
        '  for one in $now; do\n    printf "%s\\n" "$wanted" | grep -qxF "$one" || echo "E: $one is there beside it"\n  done\n'
        "  bad=1\n}\n"
    )  # fmt: skip
    for name in gone:
        quoted = shlex.quote(name)
        text += f"! rpm -q {quoted} >/dev/null 2>&1 || {{ echo E: {quoted} {shlex.quote(left)}; bad=1; }}\n"
    return text + "return $bad\n"


def _removed(name: str) -> str:
    quoted = shlex.quote(name)
    return f'! rpm -q {quoted} >/dev/null 2>&1 || rpm -e --nodeps {quoted} >>"$own/said" 2>&1\n'


def _check_new(pins: tuple[PackagePin, ...]) -> str:
    """Every package of the change lies fetched, whole and signed, or is installed at its version already."""
    names = " ".join(shlex.quote(pin.name) for pin in _packages(pins))
    return (
        'set -- "$own"/new/*.rpm\n[ -e "$1" ] || set --\n'
        f'[ $# = 0 ] || check_files "$@" || {{ echo "E: not to be trusted: $bad"; exit {CANNOT}; }}\n'
        f'{{ [ $# = 0 ] || rpm -qp --qf "$form" "$@" 2>/dev/null | plain; there {names}; }} >"$own/fetched"\n'
        f"for pin in {_exact(pins)}; do\n"
        f'  grep -qxF "$pin" "$own/fetched" || {{ echo "E: $pin was not fetched"; exit {CANNOT}; }}\ndone\n'
    )


def _check_kept(back: tuple[PackagePin, ...]) -> str:
    """Each kept file is whole and signed, and together they are the versions they should be, by their own headers."""
    return (
        f'check_files "$keep"/*.rpm || {{ echo "E: no way back: not kept whole: $bad"; exit {NO_WAY_BACK}; }}\n'
        'rpm -qp --qf "$form" "$keep"/*.rpm 2>/dev/null | plain >"$keep/kept"\n'
        f"for pin in {_exact(back)}; do\n"
        f'  grep -qxF "$pin" "$keep/kept" || {{ echo "E: no way back: $pin is not kept"; exit {NO_WAY_BACK}; }}\ndone\n'
    )


def _keep(keep: str) -> str:
    return f'keep=$MUSTER_ROOT{shlex.quote(keep)}\nmkdir -p "$keep" && chmod 700 "$keep" || exit 1\n'


def _gone(pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> tuple[str, ...]:
    """Names in `back` that are not in `pins`: a package that changes its name with the branch or the flavour leaves under the old one."""
    kept = {pin.name for pin in pins}
    return tuple(pin.name for pin in _packages(back) if pin.name not in kept)


def _is_stream(pin: PackagePin) -> bool:
    return pin.name.startswith("@")


def _module(pin: PackagePin) -> str:
    return shlex.quote(pin.name.removeprefix("@"))


def _packages(pins: Iterable[PackagePin]) -> tuple[PackagePin, ...]:
    """Without the streams."""
    return tuple(pin for pin in pins if not _is_stream(pin))


def _second(key: str) -> bool:
    """Whether a package's key in the facts is that of a further version beside another."""
    return "@" in key[1:]


def _bare(name: str) -> str:
    """The name without a foreign architecture."""
    return _FOREIGN.sub("", name)


def _plain(version: str) -> str:
    """rpm takes a missing epoch for 0."""
    return version.removeprefix("0:")


def _exact(pins: tuple[PackagePin, ...]) -> str:
    """Each package as `NAME=VERSION`, once."""
    found = dict.fromkeys(f"{_bare(pin.name)}={_plain(pin.version)}" for pin in _packages(pins))
    return " ".join(shlex.quote(each) for each in found)


def _specs(pins: tuple[PackagePin, ...]) -> str:
    """Each package as dnf is asked for it: `NAME-EPOCH:VERSION-RELEASE`, with the architecture where it is not the node's own."""
    specs = []
    for pin in _packages(pins):
        foreign = _FOREIGN.search(pin.name)
        specs.append(shlex.quote(f"{_bare(pin.name)}-{pin.version}{foreign[0] if foreign else ''}"))
    return " ".join(specs)


def _locks(pins: tuple[PackagePin, ...]) -> str:
    """The line of the lock list for each package; the list knows no architecture."""
    lines = {
        f"{_bare(pin.name)}-{pin.version if ':' in pin.version else '0:' + pin.version}.*" for pin in _packages(pins)
    }
    return " ".join(shlex.quote(line) for line in sorted(lines))


def _names(*sets: tuple[PackagePin, ...]) -> str:
    """All their names, as one argument."""
    return shlex.quote(" ".join(dict.fromkeys(_bare(pin.name) for pins in sets for pin in _packages(pins))))


def _stream_file(pin: PackagePin) -> str:
    return f"etc/dnf/modules.d/{_module(pin)}.module"


def _usual(versions: Iterable[str]) -> tuple[str, str]:
    """The epoch (`3:` or nothing) and the release that most versions have; `-1` where there is none to go by."""
    counted = Counter(_form(version, None) for version in sorted(versions) if _VERSION.fullmatch(version))
    return counted.most_common(1)[0][0] if counted else ("", "1")


def _form(version: str, otherwise: tuple[str, str] | None) -> tuple[str, str]:
    found = _VERSION.fullmatch(version)
    if found is None:
        return otherwise or ("", "1")
    return (f"{found[1]}:" if found[1] else "", found[3])


def _spelled(driver: str, epoch: str, release: str) -> str:
    return f"{epoch}{driver}" if "-" in driver else f"{epoch}{driver}-{release}"


BACKEND: PackageManager = Dnf()
