"""What dnf did to the driver and the kernel, by its own logs: `dnf.rpm.log` has each package, `dnf.log` the command. Pure.

dnf 4 as on RHEL 8 and 9 and their like. It does not log who asked, and dnf-automatic logs no command at all. dnf 5, yum and zypper are not read.
"""

import re
from collections.abc import Iterable, Iterator

from muster.model.frozen import dataclass

LOGS = ("dnf.log.1", "dnf.log", "dnf.rpm.log.1", "dnf.rpm.log")

COMMAND = r"""
program='
FNR == 1 { file = FILENAME; sub(/^.*\/log\//, "", file) }
file ~ /^dnf\.log/ {
  if ($3 == "---" && $4 == "logging") { s++; began[s] = $1; ran[s] = "" }
  else if ($3 == "Command:") ran[s] = substr($0, index($0, "Command:") + 9, 300)
  next
}
$3 ~ /^[A-Z][a-z]*:$/ && $4 ~ touched {
  r = rows++ % 200
  row[r] = "rpm\t" file ":" FNR "\t" $1 "\t" substr($3, 1, length($3) - 1) "\t" $4; time[r] = $1
}
END {
  for (i = (rows > 200 ? rows - 200 : 0); i < rows; i++) {
    r = i % 200
    for (k = s; k > 0 && began[k] > time[r]; k--);
    print row[r] "\t" (k > 0 ? began[k] : "") "\t" (k > 0 ? ran[k] : "")
  }
}'
set --
for log in @LOGS@; do
  file="$MUSTER_ROOT/var/log/$log"
  if [ -r "$file" ]; then echo "read $log"; set -- "$@" "$file"
  elif [ -e "$file" ]; then echo "unreadable $log"; fi
done
if [ $# -gt 0 ]; then awk -v touched='nvidia|cuda|nvlsm|datacenter-gpu-manager|^kernel' "$program" "$@"; fi
""".replace("@LOGS@", " ".join(LOGS))

_NEVRA = re.compile(r"([A-Za-z0-9][\w+.-]{0,120})-((?:\d{1,4}:)?[\w.+~^]{1,80}-[\w.+~^]{1,80})\.(\w{1,20})", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)([+-]\d{4}|Z)")
_PLACE = re.compile(r"dnf\.rpm\.log(?:\.1)?:\d{1,9}")
_NEW = ("Installed", "Upgrade", "Downgrade", "Reinstall")
_OLD = ("Upgraded", "Downgraded", "Reinstalled", "Erase", "Obsoleted", "Obsolete", "Removed")
_NONE = "<none>"
MOST_PACKAGES = 40


@dataclass(frozen=True, slots=True)
class Done:
    """One run of dnf. `packages`: `NAME OLD -> NEW`."""

    at: str
    zone: str
    by: str
    command: str
    packages: tuple[str, ...]
    line: str


@dataclass(frozen=True, slots=True)
class _Row:
    place: str
    at: str
    zone: str
    action: str
    name: str
    version: str
    arch: str
    session: str
    command: str


def runs(lines: Iterable[str]) -> Iterator[Done]:
    """The runs of dnf that touched the driver or the kernel, in the order of the log."""
    groups: dict[tuple[str, str], list[_Row]] = {}
    for row in filter(None, map(_row, lines)):
        # Lines of one session are one run; where dnf.log does not reach back so far, those of one minute.
        groups.setdefault((row.session or row.at[:16], row.command), []).append(row)
    for rows in groups.values():
        first = rows[0]
        packages = tuple(_changes(rows))[:MOST_PACKAGES]
        if packages:
            line = f"{first.place}: {first.action}: {first.name}-{first.version}.{first.arch}"
            yield Done(first.at, first.zone, _by(first), first.command, packages, line)


def _row(line: str) -> _Row | None:
    cells = line.split("\t")
    if len(cells) != 7 or cells[0] != "rpm" or not _PLACE.fullmatch(cells[1]):
        return None
    time, package = _TIME.fullmatch(cells[2]), _NEVRA.fullmatch(cells[4])
    if time is None or package is None or cells[3] not in (*_NEW, *_OLD):
        return None
    at, zone = f"{time[1]} {time[2]}", time[3].replace("Z", "+0000")
    return _Row(cells[1], at, zone, cells[3], package[1], package[2], package[3], cells[5], cells[6].strip())


def _changes(rows: Iterable[_Row]) -> Iterator[str]:
    """Each package once: what it was, and what it became. A kernel that is installed beside another one was not there before."""
    old: dict[tuple[str, str], str] = {}
    new: dict[tuple[str, str, str], str] = {}
    for row in rows:
        if row.action in _OLD:
            old.setdefault((row.name, row.arch), row.version)
        else:
            new.setdefault((row.name, row.arch, row.action), row.version)
    for (name, arch, action), version in new.items():
        was = _NONE if action == "Installed" else old.pop((name, arch), "?")
        yield f"{name} {was} -> {version}"
    for (name, _), version in old.items():
        yield f"{name} {version} -> {_NONE}"


def _by(row: _Row) -> str:
    if not row.session:
        return "dnf, by whom is not logged"
    if not row.command:
        return "dnf without a command line, as dnf-automatic runs it"
    return "dnf-automatic" if "dnf-automatic" in row.command else "root"
