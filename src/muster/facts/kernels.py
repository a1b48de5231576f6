"""The kernels that can be booted, which of them comes next, and whether modules can be built for each.

Whether the next boot still has a driver is decided here long before it happens. The next kernel is told only where the boot loader's own
files say it; nothing is guessed from version numbers.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown
from muster.model.frozen import dataclass

# Read by the shell itself where it can be: no process for each kernel.
_COMMAND = r"""
for image in "$MUSTER_ROOT"/boot/vmlinuz-*; do
  if [ ! -e "$image" ]; then continue; fi
  kernel=${image##*/vmlinuz-} headers=no
  if [ -e "$MUSTER_ROOT/lib/modules/$kernel/build/." ]; then headers=yes; fi
  echo "kernel $kernel $headers"
done
if [ ! -d "$MUSTER_ROOT/boot" ]; then echo "boot absent"; fi
for folder in grub grub2; do
  menu="$MUSTER_ROOT/boot/$folder/grub.cfg" saved="$MUSTER_ROOT/boot/$folder/grubenv"
  if [ -r "$saved" ]; then sed -n 's/^\(saved_entry\|next_entry\)=/\1 /p' "$saved"; fi
  if [ -r "$menu" ]; then
    echo "menu $folder"
    sed -n -e 's/^[[:space:]]*set default=/| default /p' \
      -e '/^[[:space:]]*\(menuentry \|submenu \|linux\(efi\|16\)\{0,1\}[[:space:]]\|}\)/s/^[[:space:]]*/| /p' "$menu"
    break
  elif [ -e "$menu" ]; then echo "menu unreadable"; fi
done
"""

_PROVIDES = ("kernel.bootable", "kernel.next_boot", "kernel[*].headers")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,119}")
_TITLE = re.compile(r"(?:menuentry|submenu) (?:'([^']{0,300})'|\"([^\"]{0,300})\")")
_ID = re.compile(r"(?:\$\{?menuentry_id_option\}?|--id) '([^']{1,300})'")
_LINUX = re.compile(r"linux(?:efi|16)?\s+\S{0,200}/?vmlinuz-(\S{1,120})")
MOST_LINES = 2000
MOST_KERNELS = 64


@dataclass(slots=True)
class _Entry:
    """One entry of a boot menu; a submenu has entries, a menu entry has a kernel (empty: it boots something else)."""

    title: str
    identity: str
    kernel: str = ""
    submenu: bool = False
    entries: list["_Entry"] = field(default_factory=list)


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`kernel.bootable` (rescue images left out), `kernel[<k>].headers`, and `kernel.next_boot` or why that cannot be told."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()[:MOST_LINES]
    rows = [line.split(" ") for line in lines if line.startswith("kernel ")]
    kernels = {r[1]: r[2] == "yes" for r in rows if len(r) == 3 and _NAME.fullmatch(r[1]) and "rescue" not in r[1]}
    kept = sorted(kernels)[:MOST_KERNELS]
    found: dict[str, FactValue] = {f"kernel[{kernel}].headers": kernels[kernel] for kernel in kept}
    found["kernel.bootable"] = Unknown("there is no /boot") if "boot absent" in lines else tuple(kept)
    found["kernel.next_boot"] = _next(lines, kept)
    return found


def _next(lines: list[str], kernels: list[str]) -> FactValue:
    if not kernels:
        return Unknown("no kernel lies in /boot")
    if len(kernels) == 1:
        return kernels[0]
    seen = _read.labelled(RawOutput(0, "\n".join(line for line in lines if line[:2] != "| ").encode()))
    # A boot loader specification entry is named after its kernel.
    for word in (seen.get("next_entry"), seen.get("saved_entry")):
        named = [kernel for kernel in kernels if word and word.endswith(f"-{kernel}")]
        if len(named) == 1:
            return named[0]
    if seen.get("menu") == "unreadable":
        return Unknown("the boot menu may not be read (needs root)")
    if "menu" not in seen:
        return Unknown("there is no boot menu of GRUB")
    menu = [line[2:] for line in lines if line.startswith("| ")]
    wish = seen.get("next_entry") or _default(menu, seen.get("saved_entry", ""))
    entry = _chosen(_tree(line for line in menu if not line.startswith("default ")), wish)
    if entry is None:
        return Unknown(f"the boot menu has no entry {wish[:80]!r}")
    if entry.kernel in kernels:
        return entry.kernel
    return Unknown(f"the boot menu's entry {entry.title[:80]!r} boots no kernel in /boot")


def _default(menu: list[str], saved: str) -> str:
    """The entry that the menu starts with. The last plain assignment counts, as in GRUB; `saved` stands for what was saved."""
    words = [line.removeprefix("default ").strip("\"'") for line in menu if line.startswith("default ")]
    if any("saved_entry" in word for word in words) and saved:
        return saved
    plain = [word for word in words if "$" not in word]
    return plain[-1] if plain else "0"


def _tree(lines: Iterable[str]) -> list[_Entry]:
    top = _Entry("", "", submenu=True)
    path = [top]
    for line in lines:
        title, linux = _TITLE.match(line), _LINUX.match(line)
        if title:
            identity = _ID.search(line[:1000])
            words = title[1] or title[2] or ""
            entry = _Entry(words, identity[1] if identity else words, submenu=line.startswith("submenu"))
            path[-1].entries.append(entry)
            path.append(entry)
        elif linux and not path[-1].kernel:
            path[-1].kernel = linux[1]
        elif line.startswith("}") and len(path) > 1:
            path.pop()
    return top.entries


def _chosen(entries: list[_Entry], wish: str) -> _Entry | None:
    """The entry that `wish` names: positions, ids or titles, `>` between a submenu and its entry. A submenu stands for its first entry."""
    entry: _Entry | None = None
    for word in wish.split(">")[:8]:
        if word.isascii() and word.isdigit() and len(word) < 5:
            entry = entries[int(word)] if int(word) < len(entries) else None
        else:
            entry = next((each for each in entries if word and word in (each.identity, each.title)), None)
        if entry is None:
            return None
        entries = entry.entries
    while entry is not None and entry.submenu:
        entry = entry.entries[0] if entry.entries else None
    return entry


FACT = FactSpec("kernels", _COMMAND, 5, 65536, parse, _PROVIDES, whole_only=True)
