"""What the node's own package lists offer of the driver's packages: whether a version is there whole, and whether today's can be had again.

Lists are as old as the last `apt-get update` on the node; the repository itself is asked by preflight, before anything is touched. It reads the
lists as files: apt's own tools cost most of a second of CPU beside a training run.
"""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput

# The largest lists of the distributions hold no driver; unpacking one costs half a second of CPU.
# Of the installed packages only those with a driver's version are looked for; lists that name none are passed over by grep, which is quick.
# The answer is turned round on the node, from versions by package to missing packages by version: a hundredth of the size.
_COMMAND = r"""
if [ ! -d "$MUSTER_ROOT/var/lib/apt/lists" ]; then echo "lists none"; exit; fi
if ! command -v dpkg-query >/dev/null || ! command -v awk >/dev/null; then echo "lists unasked"; exit; fi
read_list() {
  case "$1" in
    *.lz4 | *.gz | *.xz | *.zst | *.bz2) "$MUSTER_ROOT/usr/lib/apt/apt-helper" cat-file "$1" ;;
    *) if grep -q '^Package: \(lib\)\{0,1\}\(nvidia\|cuda\)' "$1"; then cat "$1"; fi ;;
  esac
}
{
  dpkg-query --admindir="$MUSTER_ROOT/var/lib/dpkg" -W -f '${db:Status-Status} ${Package} ${Version}\n' 'nvidia*' 'libnvidia*' 'libcuda*' \
    'cuda-drivers*' 'firmware-nvidia*' 'libnvcuvid*' 'libnvoptix*' 'libxnvctrl*' 'xserver-xorg-video-nvidia*'
  for list in "$MUSTER_ROOT"/var/lib/apt/lists/*_Packages*; do
    case "$list" in *.debian.org_*_main_binary-* | *.ubuntu.com_*_main_binary-* | *.ubuntu.com_*_universe_*) echo "list read"; continue ;; esac
    if [ -r "$list" ]; then echo "list read"; read_list "$list"; fi
  done
} | awk '
  $1 == "installed" && NF == 3 && $3 ~ /^([0-9]+:)?[0-9][0-9][0-9]\.[0-9]/ { want[$2] = 1; next }
  $0 == "list read" { some = 1; next }
  $1 == "Package:" { name = ($2 in want) ? $2 : ""; next }
  $1 == "Version:" && name != "" { have[name, $2] = 1; versions[$2] = 1 }
  END {
    print "lists " (some ? "yes" : "none")
    for (version in versions) {
      line = "offer " version
      for (name in want) if (!((name, version) in have)) line = line " " name
      print line
    }
    print "asked yes"
  }'
"""

_PROVIDES = ("repository.lists", "repository[*].missing")

_VERSION = re.compile(r"[0-9A-Za-z.+:~-]{1,80}")
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{1,80}")
MOST_VERSIONS = 600


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`repository.lists`: whether there are package lists; `repository[<version>].missing`: which of the driver's packages lack a version."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    if "lists none" in lines:
        return {"repository.lists": False}
    if "lists yes" not in lines or "asked yes" not in lines:
        unasked = "dpkg-query or awk is not installed" if "lists unasked" in lines else "the output ends too early"
        return _read.all_unknown(_PROVIDES, unasked)
    found: dict[str, FactValue] = {"repository.lists": True}
    for line in lines:
        word, _, rest = line.partition(" ")
        version, *names = rest.split(" ")
        if word == "offer" and _VERSION.fullmatch(version) and len(found) <= MOST_VERSIONS:
            found[f"repository[{version}].missing"] = tuple(sorted(name for name in names if _NAME.fullmatch(name)))
    return found


FACT = FactSpec("repository", _COMMAND, 15, 65536, parse, _PROVIDES, whole_only=True)
