"""apt and dpkg: the texts that fetch, change and mend a node's packages. Runs nothing; a Transport does.

The rules of the design hold in every text: exact `name=version` for the whole set, wait for the dpkg lock and never kill its holder, ask
nothing, keep changed configuration files, no needrestart, no daemon started by a package while the old module is loaded, holds lifted for
the change and set again after it.
"""

import shlex
from collections.abc import Mapping

from muster.backends._apt_texts import (
    ANY_WAY,
    AS_HELD_BEFORE,
    AS_ROOT,
    EDITED,
    ENVIRONMENT,
    EXCLUSION,
    FORCED_REMOVAL,
    KEPT,
    KEY,
    NEW_INITRAMFS,
    NO_NOUVEAU,
    NOUVEAU,
    OLD_RESTORE_POINTS,
    OPTIONS,
    OWN,
    PATIENT,
    POLICY_RC_D,
    PRIVATE_LISTS,
    REFUSING,
    REPACK_CAN,
    SCRATCH_LISTS,
    SOURCE,
    UNLOADED,
    UNSIGNED,
    asking_text,
    brought_text,
    check_debs_text,
    download_or_repack_text,
    gathered_text,
    gone_names,
    guard_text,
    hold_text,
    keep_text,
    kept_from_text,
    leaving_text,
    quoted_text,
    simulate_text,
    unhold_text,
)
from muster.model.fact import NodeFacts
from muster.model.policy import Holds, Packages, Permission
from muster.model.stack import BROKEN_STATES, PackagePin
from muster.ports import PackageManager


class Apt:
    """`ports.PackageManager` for Debian and Ubuntu; `ports.PackageRepairs` and `ports.RuledPackages` too."""

    name = "apt"

    def __init__(self, rules: Packages | None = None, holds: Holds | None = None, key: str = "") -> None:
        self._rules = rules or Packages()
        self._key = key
        self._holds = holds
        self._kept_from = kept_from_text(holds) if holds is not None else ""

    def under(self, rules: Packages, holds: Holds, key: str = "") -> PackageManager:
        return Apt(rules, holds, key)

    @property
    def _begin(self) -> str:
        """What each text begins with."""
        answer = "true" if self._rules.unsigned is Permission.ALLOWED else "false"
        return f"{ENVIRONMENT}rules='{EDITED[self._rules.edited_files]} {UNSIGNED.replace('@ANSWER@', answer)}'\n"

    def serves(self, facts: NodeFacts) -> bool:
        return facts.text("packages.manager") != "rpm" and bool(facts.members("package"))

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

    def spelled(self, driver: str, pins: tuple[PackagePin, ...], known: Mapping[str, str]) -> tuple[PackagePin, ...]:
        """As they are: a set's revisions are data, and packages that keep their names get `version_text`."""
        return pins

    def preflight(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
        return (
            self._begin
            + PRIVATE_LISTS
            + simulate_text("the new driver", pins, back)
            # Asked for all at once; one by one only to name those that are gone.
            + f"if ! private download --print-uris {quoted_text(back)} >/dev/null 2>&1; then\n"
            + f"  for pin in {quoted_text(back)}; do\n"
            + '    private download --print-uris "$pin" >/dev/null 2>&1 || gone="$gone $pin"\n'
            + "  done\nfi\n"
            + REPACK_CAN
            + 'echo "the change and the way back are complete${repacked:+; lost by the repository and packed again from the node:$repacked}"\n'
        )

    def fetch(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...], keep: str) -> str:
        return (
            self._begin
            + keep_text(keep)
            + OWN
            + OLD_RESTORE_POINTS
            # What another change left is of no use, and a half-read list least of all. Packages that are whole are taken again.
            + 'rm -rf "$own/lists" && mkdir -p "$own/lists/partial" "$own/archives/partial" || exit 1\n'
            + f"own {OPTIONS} -q update >/dev/null || {{ echo 'apt-get update failed'; exit 1; }}\n"
            + f"own {OPTIONS} -q install --download-only {ANY_WAY} {quoted_text(pins)} {leaving_text(pins, back)} || exit 1\n"
            + f'cd "$keep" || exit 1\nif ! own {OPTIONS} {AS_ROOT} -q download {quoted_text(back)}; then\n'
            + "".join(download_or_repack_text(pin) for pin in back)
            + "fi\n"
            + check_debs_text(back)
            + asking_text(pins, forbidden=self._rules.questions is Permission.FORBIDDEN)
        )

    def save(self, back: tuple[PackagePin, ...], keep: str) -> str:
        return (
            self._begin
            + keep_text(keep)
            + "state=$keep/state.new\nmkdir -p \"$state\" || exit 1\n"
            + "dpkg-query -W -f '${binary:Package}\\t${Version}\\t${db:Status-Want}\\t${db:Status-Status}\\n' "
            + ">\"$state/packages\" || exit 1\n"
            + 'for d in etc/modprobe.d etc/nvidia etc/cdi; do\n'
            + '  [ -d "$MUSTER_ROOT/$d" ] && { mkdir -p "$state/$d" && cp -a "$MUSTER_ROOT/$d/." "$state/$d/" || exit 1; }\n'
            + "done\n"
            + 'cat "$MUSTER_ROOT/proc/sys/kernel/random/boot_id" >"$state/boot_id" || exit 1\n'
            + f'[ ! -e "$MUSTER_ROOT/{EXCLUSION}" ] || : >"$state/excluded"\n'
            + 'rm -rf "$keep/state" && mv "$state" "$keep/state" && sync || exit 1\n'
            + check_debs_text(back)
            + 'echo "restore point written and checked"\n'
        )  # fmt: skip

    def install(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
        return (
            self._begin
            + POLICY_RC_D
            + PATIENT
            + unhold_text((*pins, *(pin for pin in back if pin.name in gone_names(pins, back))))
            + OWN
            + f"own {OPTIONS} -q install --no-download {ANY_WAY} {quoted_text(pins)} {leaving_text(pins, back)}\n"
            + "rc=$?\n"
            + hold_text(pins)
            + "[ $? = 0 ] || [ $rc != 0 ] || rc=1\n"
            + self._kept_from
            + "exit $rc\n"
        )

    def restore(self, back: tuple[PackagePin, ...], keep: str, pins: tuple[PackagePin, ...]) -> str:
        return self._begin + brought_text(back, keep, pins, "the packages of before are back")

    def repair_preflight(self, pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...]) -> str:
        return (
            self._begin
            + SCRATCH_LISTS
            + "err=$(private -q update 2>&1 >/dev/null) || unread=$(printf '%s\\n' \"$err\" | sed -n 's/^E: //p' | head -n 1)\n"
            + KEPT
            + f"for pin in {quoted_text(pins)}; do\n"
            + '  private download --print-uris "$pin" >/dev/null 2>&1 || [ -n "$(kept "$pin")" ] || packable "$pin" || lost="$lost $pin"\n'
            + "done\n"
            + '[ -z "$lost" ] || {\n'
            + '  echo "cannot be had, neither from the repository${unread:+ ($unread)} nor from what was kept here:$lost"\n  exit 4\n}\n'
            + f'echo "all {len(pins)} packages can be had"\n'
        )

    def gather(self, pins: tuple[PackagePin, ...], keep: str) -> str:
        return (
            self._begin
            + keep_text(keep)
            + OWN
            + 'mkdir -p "$own/lists/partial" "$own/archives/partial" && cd "$keep" || exit 1\n'
            # Without the repository it goes on with what lies on the node; what cannot be had is named below.
            + f"own {OPTIONS} -q update >/dev/null || :\n"
            + KEPT
            + "".join(gathered_text(pin) for pin in pins)
            + check_debs_text(pins)
            + 'echo "gathered and verified"\n'
        )

    def repair(self, pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...], keep: str) -> str:
        return self._begin + brought_text(
            pins, keep, now, f"one whole stack: {len(pins)} packages", guard=guard_text(pins, now), hold=True
        )

    def hold(self, pins: tuple[PackagePin, ...]) -> str:
        return (
            self._begin
            + PATIENT
            + "rc=0\n"
            + f"{hold_text(pins).rstrip()} || rc=1\n"
            + self._kept_from
            + "[ $rc != 0 ] || echo 'held'\nexit $rc\n"
        )

    def holds_tell(self) -> tuple[str, ...]:
        if self._holds is None:
            return ()
        exclusion = f"unattended-upgrades keeps away from driver and kernel (/{EXCLUSION})"
        return (
            *(("the kernel's packages are held",) if self._holds.kernel else ()),
            *((exclusion,) if self._holds.automatic_upgrades is Permission.FORBIDDEN else ()),
        )

    def tells(self) -> tuple[str, ...]:
        source = self._rules.repository
        return (
            *(
                (f"the source {source.source} (/{SOURCE}){', signed by the key of the policy' if self._key else ''}",)
                if source
                else ()
            ),
            f"nouveau out of the module loader (/{NOUVEAU}) and of the initramfs",
        )

    def first_preflight(self, pins: tuple[PackagePin, ...]) -> str:
        return (
            self._begin
            + SCRATCH_LISTS
            + self._sources("$scratch")
            + REFUSING
            + simulate_text("the driver", pins, ())
            + 'echo "the driver and what it needs can be had"\n'
        )

    def first_fetch(self, pins: tuple[PackagePin, ...], keep: str) -> str:
        return (
            self._begin
            + keep_text(keep)
            + OWN
            + 'rm -rf "$own/lists" && mkdir -p "$own/lists/partial" "$own/archives/partial" || exit 1\n'
            + self._sources("$own")
            + f"own {OPTIONS} -q update >/dev/null || {{ echo 'apt-get update failed'; exit 1; }}\n"
            + f"own {OPTIONS} -q install --download-only {quoted_text(pins)} || exit 1\n"
            + asking_text(pins, forbidden=self._rules.questions is Permission.FORBIDDEN)
        )

    def first_install(self, pins: tuple[PackagePin, ...]) -> str:
        return (
            self._begin
            + POLICY_RC_D
            + PATIENT
            + OWN
            + self._sources("$own")
            + self._own_source()
            + NO_NOUVEAU
            + f"own {OPTIONS} -q install --no-download {quoted_text(pins)}\n"
            + "rc=$?\n"
            + hold_text(pins)
            + "[ $? = 0 ] || [ $rc != 0 ] || rc=1\n"
            + self._kept_from
            + "[ $rc != 0 ] || { new_initramfs || rc=1; }\n"
            + "exit $rc\n"
        )

    def take_away(self, pins: tuple[PackagePin, ...], keep: str) -> str:
        return (
            self._begin
            + keep_text(keep)
            + POLICY_RC_D
            + PATIENT
            + OWN
            + UNLOADED
            + "state=$keep/state rc=0\n"
            # Whatever came with the driver goes with it: what was there before is written down.
            + "new=$(dpkg-query -W -f '${binary:Package}\\n' | while read -r name; do\n"
            + '  cut -f1 "$state/packages" | grep -qxF "$name" || echo "$name"\ndone)\n'
            + f"[ -z \"$new\" ] || {{ printf '%s install\\n' $new | select_states; own {OPTIONS} -q purge $new; }}\n"
            + 'set --\nfor name in $new; do ! dpkg-query -W "$name" >/dev/null 2>&1 || set -- "$@" "$name"; done\n'
            + f'[ $# = 0 ] || patiently dpkg {FORCED_REMOVAL} --purge "$@" || rc=1\n'
            + f'rm -f "$MUSTER_ROOT/{SOURCE}" "$MUSTER_ROOT/{KEY}" "$MUSTER_ROOT/{NOUVEAU}"\n'
            + AS_HELD_BEFORE
            + NEW_INITRAMFS
            + "new_initramfs || rc=1\n"
            + "audit=$(dpkg --audit) || rc=1\n"
            + '[ -z "$audit" ] || { printf "%s\\n" "$audit"; rc=1; }\n'
            + "[ $rc != 0 ] || echo 'the driver is taken away again'\nexit $rc\n"
        )

    def _sources(self, folder: str) -> str:
        """The lines that make apt look into the policy's repository beside the node's own, by files under `folder` alone."""
        source = self._rules.repository
        if source is None:
            return ""
        said = f'rm -rf "{folder}/sources" && mkdir -p "{folder}/sources" || exit 1\n'
        said += f'cp -a "$MUSTER_ROOT/etc/apt/sources.list.d/." "{folder}/sources/" 2>/dev/null\n'
        said += f'rules="$rules -o Dir::Etc::SourceParts={folder}/sources"\n'
        return said + self._source_in(f"{folder}/sources/muster.list", f"{folder}/sources.asc")

    def _own_source(self) -> str:
        """The lines that add the policy's repository to the node's own for good."""
        if self._rules.repository is None:
            return ""
        said = (
            f'mkdir -p "$MUSTER_ROOT/{SOURCE.rpartition("/")[0]}" "$MUSTER_ROOT/{KEY.rpartition("/")[0]}" || exit 1\n'
        )
        return said + self._source_in(f"$MUSTER_ROOT/{SOURCE}", f"$MUSTER_ROOT/{KEY}")

    def _source_in(self, listed: str, key: str) -> str:
        source = self._rules.repository
        assert source is not None, "asked only where the policy names one"
        kind, _, rest = source.source.partition(" ")
        if not self._key:
            return f"printf '%s\\n' {shlex.quote(source.source)} >\"{listed}\" || exit 1\n"
        return (
            f'cat >"{key}" <<\'KEY_END\' && chmod 644 "{key}" || exit 1\n{self._key.rstrip()}\nKEY_END\n'
            f'printf \'%s [signed-by=%s] %s\\n\' {kind} "{key}" {shlex.quote(rest)} >"{listed}" || exit 1\n'
        )


BACKEND: PackageManager = Apt()
