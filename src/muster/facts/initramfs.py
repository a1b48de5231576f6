"""What the initramfs of each bootable kernel holds: nvidia modules, of which version, and nouveau. It is what the next boot loads first.

To list an initramfs it has to be unpacked, which costs a second of CPU. So it is done once for each image, by a process of the lowest
priority that outlives the look, and what it found is kept in the node's scratch folder under the image's size and time. The first look waits a
few seconds for it; what is not there by then is Unknown, and the next look has it.
"""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

# An image is several archives one after another: uncompressed ones (microcode, firmware, on Ubuntu the modules), and a compressed one at the
# end. A cpio header stands before each name, and in it the size: a module that is compressed itself is told by it from the one on disk.
_LIST = r"""
ulimit -t 120
modules='(070701[0-9A-Fa-f]{104})?[A-Za-z0-9_./+~-]*/(nvidia[a-z_-]*|nouveau)\.ko(\.[a-z0-9]+)?|version=[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,3})?'
names() { grep -aoE "$modules" | head -n 200; }
zeros() { # file, offset: how many zero bytes are there
  od -An -v -tx1 -j "$2" -N 8192 "$1" |
    awk '{ for (i = 1; i <= NF; i++) if ($i != "00") { over = 1; exit } else n++ } END { print n + 0 }'
}
unpacked() { # file: the names in it
  size=$(($(wc -c <"$1"))) offset=0 turns=0
  while [ "$offset" -lt "$size" ] && [ "$turns" -lt 40 ]; do
    turns=$((turns + 1))
    offset=$((offset + $(zeros "$1" "$offset")))
    magic=$(od -An -v -tx1 -j "$offset" -N 6 "$1" | tr -d ' \n')
    case $magic in
      '') break ;;
      0000*) continue ;;
      30373037303[12])
        length=$(tail -c +$((offset + 1)) "$1" | grep -abo -m 1 'TRAILER!!!' | head -n 1)
        length=${length%%:*}
        if [ -z "$length" ]; then echo "why an archive in it has no end"; return; fi
        tail -c +$((offset + 1)) "$1" | head -c "$length" | names
        offset=$(((offset + length + 14) / 4 * 4))
        continue ;;
      28b52ffd*) tool='zstd -dcq' ;;
      1f8b*) tool='gzip -dcq' ;;
      fd377a585a00) tool='xz -dcq' ;;
      02214c18* | 04224d18*) tool='lz4 -dcq' ;;
      425a68*) tool='bzip2 -dcq' ;;
      5d0000*) tool='xz -dcq --format=lzma' ;;
      *) echo "why it is packed in an unknown way ($magic)"; return ;;
    esac
    if ! command -v "${tool%% *}" >/dev/null; then echo "why ${tool%% *} is not installed"; return; fi
    tail -c +$((offset + 1)) "$1" | $tool | names
    break
  done
  echo "listed yes"
}
for job; do # kernel;key;image
  kernel=${job%%;*} image=${job##*;}
  {
    echo "key ${job%;*}"
    unpacked "$image"
    for file in $(find "$ROOT/lib/modules/$kernel" \( -name 'nvidia.ko*' -o -name 'nvidia-current.ko*' \) -type f); do
      echo "disk $(($(wc -c <"$file"))) $(modinfo -F version "$file")"
    done
    echo "end"
  } >"$PLACE/$kernel.new" 2>/dev/null && mv "$PLACE/$kernel.new" "$PLACE/$kernel"
done
"""

_COMMAND = r"""
LIST='@LIST@'
ROOT="$MUSTER_ROOT" PLACE="$MUSTER_ROOT/run/muster"
for place in "${XDG_RUNTIME_DIR:-}/muster" "$MUSTER_ROOT/tmp/muster-$(id -u)"; do
  if [ -O "$PLACE" ] && [ -w "$PLACE" ]; then break; fi
  PLACE=$place
done
if [ -O "$PLACE" ] && [ -w "$PLACE" ] && [ ! -L "$PLACE" ]; then PLACE="$PLACE/initramfs"; mkdir -p -m 700 "$PLACE"; else PLACE=''; fi
export ROOT PLACE
set --
for image in "$ROOT"/boot/initrd.img-* "$ROOT"/boot/initramfs-*.img "$ROOT"/boot/initrd-*; do
  kernel=${image##*/}
  kernel=${kernel#initrd.img-} kernel=${kernel#initramfs-} kernel=${kernel#initrd-} kernel=${kernel%.img}
  if [ ! -e "$image" ] || [ ! -e "$ROOT/boot/vmlinuz-$kernel" ]; then continue; fi
  case "$kernel" in *rescue* | *\;* | *' '*) continue ;; esac
  if [ -r "$image" ]; then set -- "$@" "$image"; else echo "shut $kernel"; fi
done
told() { # kernel;key;image: prints what is known of it; false where nothing is
  { read -r line <"$PLACE/${1%%;*}"; } 2>/dev/null || return 1
  if [ "$line" != "key ${1%;*}" ]; then return 1; fi
  while read -r line; do echo "in ${1%%;*} $line"; done <"$PLACE/${1%%;*}"
}
todo=''
if [ $# -gt 0 ]; then
  todo=$(stat -L -c '%s.%Y.%i;%n' "$@" | while IFS=';' read -r key image; do
    kernel=${image##*/}
    kernel=${kernel#initrd.img-} kernel=${kernel#initramfs-} kernel=${kernel#initrd-} kernel=${kernel%.img}
    echo "$kernel;$key;$image"
  done)
fi
set -- $todo
for job; do echo "image ${job%%;*}"; done
rest=''
for job; do
  if ! told "$job"; then rest="$rest $job"; fi
done
if [ -n "$rest" ] && [ -z "$PLACE" ]; then echo "scratch none"; fi
if [ -n "$rest" ] && [ -n "$PLACE" ]; then
  set --
  if command -v setsid >/dev/null; then set -- setsid; fi
  set -- "$@" nice -n 19
  if command -v flock >/dev/null; then set -- "$@" flock -n "$PLACE/.lock"; fi
  ("$@" sh -c "$LIST" muster-initramfs $rest </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- &)
  tries=0
  while [ -n "$rest" ] && [ "$tries" -lt @WAIT@ ]; do
    if [ "$tries" -lt 5 ]; then sleep 0.2; else sleep 1; fi
    tries=$((tries + 1)) still=''
    for job in $rest; do
      if ! told "$job"; then still="$still $job"; fi
    done
    rest=$still
  done
fi
echo "asked yes"
"""

WAIT_S = 6
"""How long the first look waits for the list: most images are unpacked in less."""

_PROVIDES = ("initramfs.images", "kernel[*].initramfs.modules", "kernel[*].initramfs.nvidia")

MOST_KERNELS = 64
_KERNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,119}")
_NAME = re.compile(r"(070701[0-9A-Fa-f]{104})?\S{0,300}?/((?:nvidia[a-z_-]{0,40})|nouveau)\.ko(\.[a-z0-9]{1,8})?")
_VERSION = re.compile(r"version=(\d{3}\.\d{1,3}(?:\.\d{1,3})?)")
_DISK = re.compile(r"disk (\d{1,12}) (\d{3}\.\d{1,3}(?:\.\d{1,3})?)")
_SIZE = slice(54, 62)
"""Where a cpio header (newc) has the size of the file, in hexadecimal digits: after the magic and six fields of eight."""
_ITSELF = ("nvidia", "nvidia-current")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`initramfs.images`: the kernels that have one. Of each: which modules of the two drivers it holds, and the version of the nvidia one, by
    the module itself, or where that is compressed, by the module on disk of the very same size.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    if "asked yes" not in lines:
        return _read.all_unknown(_PROVIDES, "the output ends too early")
    images: dict[str, list[str]] = {}
    shut = set()
    for line in lines:
        word, _, rest = line.partition(" ")
        kernel, _, said = rest.partition(" ")
        if word in ("image", "shut") and _KERNEL.fullmatch(rest) and len(images) < MOST_KERNELS:
            images.setdefault(rest, [])
            shut |= {rest} if word == "shut" else set()
        elif word == "in" and kernel in images:
            images[kernel].append(said)
    found: dict[str, FactValue] = {"initramfs.images": tuple(sorted(images))}
    for kernel, said_of in images.items():
        found |= {
            f"kernel[{kernel}].initramfs.{name}": value
            for name, value in _content(said_of, is_shut=kernel in shut).items()
        }
    if "scratch none" in lines:
        blind = Unknown("it takes a scratch folder to list it (needs root)")
        found |= {path: blind for path, value in found.items() if isinstance(value, Unknown)}
    return found


def _content(said: list[str], *, is_shut: bool) -> Mapping[str, FactValue]:
    why = next((line[4:200] for line in said if line.startswith("why ")), "")
    if is_shut:
        why = "the initramfs may not be read (needs root)"
    elif not said:
        why = "it is being listed; collect again"
    elif "listed yes" not in said and not why:
        why = "it could not be listed to its end"
    if why:
        return dict.fromkeys(("modules", "nvidia"), Unknown(why))
    names: dict[str, None] = {}
    size = version = ""
    for line in said:
        module, plain = _NAME.fullmatch(line), _VERSION.fullmatch(line)
        if module:
            names["nvidia" if module[2] in _ITSELF else module[2]] = None
        if module and module[2] in _ITSELF:
            size = module[1][_SIZE] if module[1] and module[3] else ""
        elif plain and "nvidia" in names:
            version = version or plain[1]
    return {"modules": tuple(sorted(names)), "nvidia": _nvidia(names, version, size, said)}


def _nvidia(names: Mapping[str, None], version: str, size: str, said: list[str]) -> FactValue:
    if "nvidia" not in names:
        return Unknown("it holds no module nvidia")
    if version:
        return version
    on_disk = [match for line in said if (match := _DISK.fullmatch(line))]
    alike = {match[2] for match in on_disk if size and int(match[1]) == int(size, 16)}
    if len(alike) == 1:
        return alike.pop()
    return Unknown(
        "its module nvidia is compressed, and of another size than the one on disk"
        if on_disk
        else "its module is compressed"
    )


FACT = FactSpec(
    "initramfs",
    _COMMAND.replace("@LIST@", _LIST.replace("'", "'\\''")).replace("@WAIT@", str(5 + WAIT_S - 1)),
    10,
    32768,
    parse,
    _PROVIDES,
    whole_only=True,
)
