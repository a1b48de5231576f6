"""The parameters of the nvidia module: those it was loaded with, and those that modprobe would give it at the next load. Pure."""

import re
from collections.abc import Iterable, Mapping

MOST = 200

COMMAND = r"""
set --
if [ -r "$MUSTER_ROOT/proc/driver/nvidia/params" ]; then set -- "$MUSTER_ROOT/proc/driver/nvidia/params"; echo "parameters yes"; fi
seen=' '
for folder in etc run usr/lib lib; do
  for file in "$MUSTER_ROOT/$folder"/modprobe.d/*.conf; do
    case "$seen" in *" ${file##*/} "*) continue ;; esac
    if [ -r "$file" ]; then set -- "$@" "$file"; seen="$seen${file##*/} "; fi
  done
done
if [ $# -gt 0 ]; then
  sed -n -e 's/^\([A-Za-z0-9_]\{1,\}\): /parameter \1=/p' \
    -e 's/^[[:space:]]*options[[:space:]]\{1,\}nvidia\(-current\)\{0,1\}\(-open\)\{0,1\}[[:space:]]\{1,\}/options /p' "$@"
fi
echo "options asked"
"""
"""A file of the same name in an earlier folder takes the place of a later one, as in modprobe."""

_PAIR = re.compile(r"(?:NVreg_)?([A-Za-z0-9_]{1,80})=(\S{0,200}|\".{0,200}\")")
_WORD = re.compile(r'[A-Za-z0-9_]{1,90}=(?:"[^"]{0,200}"|[^\s"]{0,200})')
_OTHER_NAMES = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
"""An option of modprobe -> the name under which /proc/driver/nvidia/params shows it, where it is another one."""


def parameters(lines: Iterable[str]) -> Mapping[str, str]:
    """Name -> value as loaded, without NVreg_."""
    return dict([_split(line[10:]) for line in lines if line.startswith("parameter ") and "=" in line][:MOST])


def options(lines: Iterable[str]) -> Mapping[str, str]:
    """Name as modprobe has it -> value, the last of each."""
    words = [word for line in lines if line.startswith("options ") for word in _WORD.findall(line[8:2000])]
    return dict([_split(word) for word in words if "=" in word][:MOST])


def differences(loaded: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[str, ...]:
    """`NAME LOADED -> NEXT` of each option that the loaded module shows with another value. What it does not show cannot be compared."""
    found = []
    for name, value in wanted.items():
        plain = name.removeprefix("NVreg_")
        now = loaded.get(_OTHER_NAMES.get(plain, plain))
        if name.startswith("NVreg_") and now is not None and _number(now) != _number(value):
            found.append(f"{name} {now or '(empty)'} -> {value or '(empty)'}")
    return tuple(sorted(found))


def _split(pair: str) -> tuple[str, str]:
    name, _, value = pair.partition("=")
    return name.strip()[:90], value.strip().strip('"')[:200]


def _number(text: str) -> int | str:
    """A number as the kernel reads it (0x.. hexadecimal, 0.. octal); another text as it is."""
    bare = text.lower()
    if re.fullmatch(r"0x[0-9a-f]{1,16}", bare):
        return int(bare, 16)
    if re.fullmatch(r"0[0-7]{1,21}", bare):
        return int(bare, 8)
    return int(bare) if re.fullmatch(r"[0-9]{1,20}", bare) else text
