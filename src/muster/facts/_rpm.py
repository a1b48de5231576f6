"""Packages of the driver stack and the kernel as rpm has them, and what holds them: versionlock of dnf and yum, excludes, zypper's locks. Pure.

rpm takes a package whose own script failed for installed; a change by Muster keeps a list of those (name, version, time of installation), and as
long as that very installation is there the package counts as half-configured. The enabled stream of a module is a package under dnf's own name
for it, `@nvidia-driver`, with the stream as its version.

To list the packages costs rpm half a second of CPU, so the list is kept in the node's scratch folder for as long as rpm's database is the same.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from muster.model.fact import FactValue

COMMAND = r"""
echo "rpm yes"
PLACE="$MUSTER_ROOT/run/muster"
for place in "${XDG_RUNTIME_DIR:-}/muster" "$MUSTER_ROOT/tmp/muster-$(id -u)"; do
  if [ -O "$PLACE" ] && [ -w "$PLACE" ]; then break; fi
  PLACE=$place
done
listed() {
  rpm --root "${MUSTER_ROOT:-/}" -qa --qf '%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\n' |
    grep -E 'nvidia|^cuda|^libcuda|^libnccl|^libcudnn|^nvlsm|^libnv|^datacenter-gpu-manager|^dkms|^kernel|^dnf-automatic|^dnf\b|^yum\b'
}
set --
for folder in usr/lib/sysimage/rpm var/lib/rpm; do
  for file in rpmdb.sqlite rpmdb.sqlite-wal Packages Packages.db; do
    # A log without content comes and goes with every reader.
    if [ -s "$MUSTER_ROOT/$folder/$file" ]; then set -- "$@" "$MUSTER_ROOT/$folder/$file"; fi
  done
done
key=''
if [ $# -gt 0 ]; then key=$(stat -L -c '%s.%Y' "$@"); fi
kept='' old=''
if [ -O "$PLACE" ] && [ -w "$PLACE" ] && [ ! -L "$PLACE" ]; then kept="$PLACE/rpm"; { read -r old <"$kept"; } 2>/dev/null; fi
key="key $(echo $key)"
if [ "$key" = "key " ]; then echo "nothing yes"
elif [ -z "$kept" ]; then listed
else
  if [ "$old" != "$key" ]; then { echo "$key"; listed; } >"$kept.new.$$" && mv "$kept.new.$$" "$kept"; fi
  cat "$kept"
fi
E="$MUSTER_ROOT/etc"
if [ -e "$E/dnf/plugins/versionlock.conf" ] || [ -e "$E/yum/pluginconf.d/versionlock.conf" ]; then echo "plugin yes"; fi
set --
for file in "$E/dnf/plugins/versionlock.list" "$E/yum/pluginconf.d/versionlock.list"; do
  if [ -r "$file" ]; then sed -n 's/^\([^#[:space:]]\{1,\}\).*/lock \1/p' "$file"; fi
done
if [ -r "$E/dnf/versionlock.toml" ]; then sed -n 's/^name[[:space:]]*=[[:space:]]*"\([^"]*\)".*/held \1/p' "$E/dnf/versionlock.toml"; fi
for file in "$E"/dnf/modules.d/*nvidia*.module; do
  if [ -r "$file" ]; then
    awk -F' *= *' '{ its[$1] = $2 } END { if (its["state"] == "enabled") print "stream " its["name"] " " its["stream"] }' "$file"
  fi
done
file="$MUSTER_ROOT/var/lib/muster/node/scriptlets"
if [ -s "$file" ] && [ -r "$file" ]; then
  while read -r name version since; do
    if [ "$(rpm --root "${MUSTER_ROOT:-/}" -q --qf '%{INSTALLTIME}' "$name")" = "$since" ]; then echo "script $name $version"; fi
  done <"$file"
fi
if [ -r "$E/zypp/locks" ]; then sed -n 's/^solvable_name:[[:space:]]*/held /p' "$E/zypp/locks"; fi
for file in "$E/dnf/dnf.conf" "$E/yum.conf"; do
  if [ -r "$file" ]; then sed -n 's/^exclude\(pkgs\)\{0,1\}[[:space:]]*=[[:space:]]*/held /p' "$file"; fi
done
echo "asked yes"
"""

_ROW = re.compile(
    r"([A-Za-z0-9][\w+.-]{0,120})\t((?:\d{1,4}:)?([\w.+~^]{1,80})-([\w.+~^]{1,80}))\t(\w{1,20})", re.ASCII
)
_STREAM = re.compile(r"stream ([\w.+-]{1,80}) ([\w.+-]{1,80})", re.ASCII)
_FOREIGN = re.compile(r"i[3-6]86")
MOST_LOCKS = 300
_MOST_CHARS = 200


def packages(lines: Iterable[str]) -> Mapping[str, FactValue]:
    """Each package's version (with epoch and release), state and hold. Of several versions of one name the later ones have theirs in the key;
    a 32-bit one beside the node's own has its architecture there."""
    told = tuple(lines)
    has_plugin = "plugin yes" in told
    locks = (
        [line[5:] for line in told if line.startswith("lock ")] if has_plugin else []
    )  # a list that nobody reads holds nothing
    held = [word for line in told if line.startswith("held ") for word in re.split(r"[,\s]+", line[5:]) if word]
    patterns = [each for each in (*locks, *held) if not each.startswith("!") and len(each) <= _MOST_CHARS][:MOST_LOCKS]
    unscripted = {line[7:] for line in told if line.startswith("script ")}
    found: dict[str, FactValue] = {}
    for match in filter(None, map(_STREAM.fullmatch, told)):
        found |= {
            f"package[@{match[1]}].version": match[2],
            f"package[@{match[1]}].state": "installed",
            f"package[@{match[1]}].hold": True,
        }
    for match in filter(None, map(_ROW.fullmatch, told)):
        name, version, plain, release, arch = match.groups()
        own = f"{name}.{arch}" if _FOREIGN.fullmatch(arch) else name
        key = own if f"package[{own}].version" not in found else f"{name}@{version}.{arch}"
        found[f"package[{key}].version"] = version
        found[f"package[{key}].state"] = "half-configured" if f"{name} {version}" in unscripted else "installed"
        found[f"package[{key}].hold"] = _is_held(name, version, f"{plain}-{release}", arch, patterns)
    return found


def _is_held(name: str, version: str, plain: str, arch: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern is this very package, in one of the forms that dnf, yum and zypper write."""
    epoch = version.partition(":")[0] if ":" in version else "0"
    forms = (
        name, f"{name}.{arch}", f"{name}-{plain}", f"{name}-{plain}.{arch}", f"{name}-{epoch}:{plain}", f"{name}-{epoch}:{plain}.{arch}",
        f"{epoch}:{name}-{plain}", f"{epoch}:{name}-{plain}.{arch}",
    )  # fmt: skip
    return any(fnmatchcase(form, pattern) for pattern in patterns for form in forms)
