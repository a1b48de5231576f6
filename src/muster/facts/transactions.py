"""Who changed the driver or the kernel, from what to what, and when: the package manager's own logs.

This is what turns "the library is newer than the module" into a cause. Only transactions that touched such packages are sent, the newest
ones, each with its place in the log: apt's and dpkg's, and dnf's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from muster.facts import _dnf, _read
from muster.model.fact import FactSpec, FactValue, RawOutput
from muster.model.frozen import dataclass

MOST = 20
"""How many transactions are kept: a node that upgrades itself nightly touches the driver a few times a month."""

# One awk for all logs. Of each package list only the driver's and the kernel's own entries are passed on: a release upgrade has thousands.
_COMMAND = (
    r"""
program='
function flush(   n) {
  if (body != "") { n = count++; kept[n] = "apt\t" file ":" place "\t" start "\t" end "\t" command "\t" by "\t" body }
  body = ""; command = ""; by = ""; end = ""
}
FNR == 1 { file = label != "" ? label : FILENAME; sub(/^.*\/log\//, "", file) }
file ~ /^apt\// {
  if ($1 == "Start-Date:") { flush(); start = $2 " " $3 }
  else if ($1 == "End-Date:") { end = $2 " " $3; flush() }
  else if ($1 == "Commandline:") command = substr($0, 14, 300)
  else if ($1 == "Requested-By:") by = substr($0, 15, 80)
  else if ($1 ~ /^(Install|Reinstall|Upgrade|Downgrade|Remove|Purge):$/) {
    many = split(substr($0, length($1) + 2), part, /\), /)
    for (i = 1; i <= many; i++) if (part[i] ~ touched && length(body) < 4000) {
      if (body == "") place = FNR
      sub(/\)$/, "", part[i]); body = body $1 part[i] ");"
    }
  }
  next
}
file == "dpkg.log" && $3 ~ /^(install|upgrade|remove|purge)$/ && $4 ~ touched {
  d = dcount++; direct[d % 60] = "dpkg\t" file ":" FNR "\t" $1 " " $2 "\t" $3 "\t" $4 "\t" $5 "\t" $6
  next
}
file ~ /^unattended/ && $0 ~ touched { u = ucount++; said[u % 5] = "said\t" file ":" FNR "\t" substr($0, 1, 300) }
END {
  flush()
  for (i = (count > most ? count - most : 0); i < count; i++) print kept[i]
  for (i = (dcount > 60 ? dcount - 60 : 0); i < dcount; i++) print direct[i % 60]
  for (i = (ucount > 5 ? ucount - 5 : 0); i < ucount; i++) print said[i % 5]
}'
touched='nvidia|cuda|nvlsm|linux-image|linux-modules|datacenter-gpu-manager'
echo "zone $(date +%z)"
set --
for log in apt/history.log dpkg.log unattended-upgrades/unattended-upgrades.log; do
  file="$MUSTER_ROOT/var/log/$log"
  if [ -r "$file" ]; then echo "read $log"; set -- "$@" "$file"
  elif [ -e "$file" ]; then echo "unreadable $log"
  else echo "absent $log"; fi
done
if ! command -v awk >/dev/null; then echo "awk missing"; exit; fi
if [ -r "$MUSTER_ROOT/var/log/apt/history.log.1.gz" ]; then
  gzip -dc "$MUSTER_ROOT/var/log/apt/history.log.1.gz" | awk -v most=@MOST@ -v touched="$touched" -v label=apt/history.log.1.gz "$program"
fi
if [ $# -gt 0 ]; then awk -v most=@MOST@ -v touched="$touched" -v label= "$program" "$@"; fi
""".replace("@MOST@", str(MOST))
    + _dnf.COMMAND
)

_FIELDS = ("at", "by", "command", "packages", "line")
_PROVIDES = ("transactions.logs", "transactions.newest", *(f"transaction[*].{field}" for field in _FIELDS))

_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_ENTRY = re.compile(
    r"(Install|Reinstall|Upgrade|Downgrade|Remove|Purge):\s*([a-z0-9][a-z0-9+.-]{0,120})(?::[a-z0-9-]{1,20})? \(([^()]{0,300})\)"
)
_NAME = re.compile(r"([a-z0-9][a-z0-9+.-]{0,120})(?::[a-z0-9-]{1,20})?")
_PLACE = re.compile(r"[a-z0-9./-]{1,80}:\d{1,9}")
_UNATTENDED = re.compile(r"(?:\S{0,80}python3?\S{0,10} )?(?:/\S{0,80}/)?unattended-upgrades?(?: |$)")
"""The program itself; not somebody who installs the package of that name."""

_NONE = "<none>"


@dataclass(frozen=True, slots=True)
class _Transaction:
    at: str
    end: str
    by: str
    command: str
    packages: tuple[str, ...]
    line: str
    zone: str = ""


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`transaction[<time>]`: `packages` (`NAME OLD -> NEW`), `by`, `command`, and `line` (LOG:NUMBER: and what stands there).

    Times are the node's own local ones with its offset. What dpkg did without apt is a transaction too. `transactions.newest` is the key of
    the last one, empty where no log knows of any; `transactions.logs` are the logs that could be read.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    logs = tuple(line[5:] for line in lines if line.startswith("read "))
    obstacle = _obstacle(lines, logs)
    if obstacle:
        return _read.all_unknown(_PROVIDES, obstacle)
    zone = next((line[5:] for line in lines if re.fullmatch(r"zone [+-]\d{4}", line)), "")
    rows = [line.split("\t") for line in lines if "\t" in line]
    by_apt = [each for row in rows if (each := _apt(row))]
    spans = [(each.at, each.end or each.at) for each in by_apt]
    direct = _grouped(row for row in rows if _is_direct(row) and not any(a <= row[2] <= b for a, b in spans))
    found: dict[str, FactValue] = {"transactions.logs": logs}
    newest = ""
    by_dnf = [_Transaction(o.at, "", o.by, o.command, o.packages, o.line, o.zone) for o in _dnf.runs(lines)]
    for each in sorted((*by_apt, *direct, *by_dnf), key=lambda one: one.at)[-MOST:]:
        newest = _key(each.at, found)
        values: tuple[FactValue, ...] = (
            f"{each.at} {each.zone or zone}".rstrip(),
            each.by,
            each.command,
            each.packages,
            each.line,
        )
        found |= {f"transaction[{newest}].{name}": value for name, value in zip(_FIELDS, values, strict=True)}
    return found | {"transactions.newest": newest}


def _obstacle(lines: list[str], logs: tuple[str, ...]) -> str | None:
    if "awk missing" in lines:
        return "awk is not installed"
    if logs:
        return None
    shut = [line[11:] for line in lines if line.startswith("unreadable ")]
    return f"{', '.join(shut)[:200]} may not be read (needs root)" if shut else "there is no log of a package manager"


def _key(at: str, found: Mapping[str, FactValue]) -> str:
    stem = at.replace(" ", "T")
    keys = (stem, *(f"{stem}/{number}" for number in range(2, MOST + 1)))
    return next(key for key in keys if f"transaction[{key}].at" not in found)


def _apt(row: list[str]) -> _Transaction | None:
    if len(row) != 7 or row[0] != "apt" or not _PLACE.fullmatch(row[1]) or not _TIME.fullmatch(row[2]):
        return None
    entries = list(_ENTRY.finditer(row[6]))
    if not entries:
        return None
    end = row[3] if _TIME.fullmatch(row[3]) else ""
    who = "unattended-upgrades" if _UNATTENDED.match(row[4]) else row[5].strip() or "root"
    first = f"{entries[0][1]}: {entries[0][2]} ({entries[0][3]})"
    packages = tuple(_change(each[1], each[2], each[3]) for each in entries[:40])
    return _Transaction(row[2], end, who, row[4].strip(), packages, f"{row[1]}: {first}")


def _change(action: str, name: str, inside: str) -> str:
    versions = [part for part in inside.split(", ") if part and part != "automatic"]
    if action in ("Upgrade", "Downgrade") and len(versions) == 2:
        return f"{name} {versions[0]} -> {versions[1]}"
    one = versions[0] if versions else "?"
    return f"{name} {one} -> {_NONE}" if action in ("Remove", "Purge") else f"{name} {_NONE} -> {one}"


def _is_direct(row: list[str]) -> bool:
    if len(row) != 7 or row[0] != "dpkg":
        return False
    return bool(_PLACE.fullmatch(row[1]) and _TIME.fullmatch(row[2]) and _NAME.fullmatch(row[4]))


def _grouped(rows: Iterable[list[str]]) -> Iterator[_Transaction]:
    """Lines of dpkg.log outside every run of apt; those of one minute are one transaction."""
    groups: dict[str, list[list[str]]] = {}
    for row in rows:
        groups.setdefault(row[2][:16], []).append(row)
    for group in groups.values():
        packages = tuple(f"{row[4].partition(':')[0]} {row[5]} -> {row[6]}" for row in group)
        first = group[0]
        line = f"{first[1]}: {first[3]} {first[4]} {first[5]} {first[6]}"
        yield _Transaction(first[2], group[-1][2], "dpkg, not through apt", "", packages[:40], line)


FACT = FactSpec("transactions", _COMMAND, 10, 131072, parse, _PROVIDES, whole_only=True)
