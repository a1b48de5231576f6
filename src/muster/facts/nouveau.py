"""Can the free driver nouveau take the GPUs? Loaded now, kept out by settings, there to be loaded, and whether the initramfs knows.

Here the age of the initramfs is held against that of the settings; what it holds is the source `initramfs`.
"""

from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_COMMAND = r"""
R="$MUSTER_ROOT"
if [ -d "$R/sys/module/nouveau" ]; then echo "loaded yes"; else echo "loaded no"; fi
kernel=$(uname -r)
disk=no
for module in "$R/lib/modules/$kernel/kernel/drivers/gpu/drm/nouveau"/nouveau.ko*; do
  if [ -e "$module" ]; then disk=yes; fi
done
if [ -d "$R/lib/modules/$kernel" ]; then echo "disk $disk"; fi
image=''
for name in "initrd.img-$kernel" "initramfs-$kernel.img" "initrd-$kernel"; do
  if [ -e "$R/boot/$name" ]; then image="$R/boot/$name"; break; fi
done
if [ -r "$R/proc/cmdline" ]; then
  read -r words <"$R/proc/cmdline"
  for word in $words; do
    case "$word" in
      modprobe.blacklist=*nouveau* | rd.driver.blacklist=*nouveau* | module_blacklist=*nouveau* | nouveau.modeset=0) echo "parameter $word" ;;
    esac
  done
fi
grep -lsE '^[[:space:]]*(blacklist[[:space:]]+nouveau|install[[:space:]]+nouveau[[:space:]]+/(usr/)?bin/(false|true))' \
  "$R"/etc/modprobe.d/*.conf "$R"/run/modprobe.d/*.conf "$R"/usr/lib/modprobe.d/*.conf "$R"/lib/modprobe.d/*.conf |
while read -r file; do
  echo "file ${file#"$R"}"
  if [ -n "$image" ] && [ "$file" -nt "$image" ]; then echo "older $file"; fi
done
if [ -n "$image" ]; then echo "image yes"; fi
echo "asked yes"
"""

_PROVIDES = (
    "nouveau.loaded",
    "nouveau.on_disk",
    "nouveau.blacklisted",
    "nouveau.blacklisted_by",
    "nouveau.initramfs_older",
)


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`nouveau.blacklisted_by` names files and kernel parameters. `nouveau.initramfs_older`: made before those files were last changed."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    seen = _read.labelled(raw)
    words = [line.partition(" ") for line in _read.text(raw).splitlines()]
    by = tuple(dict.fromkeys(value.strip()[:200] for label, _, value in words if label in ("file", "parameter")))[:20]
    whole = seen.get("asked") == "yes"
    blind = Unknown("the output ends too early")
    older: FactValue = Unknown("the initramfs of the running kernel is not in /boot")
    if seen.get("image") == "yes":
        older = "older" in seen
    return {
        "nouveau.loaded": _yes(seen.get("loaded"), "the output does not say it"),
        "nouveau.on_disk": _yes(seen.get("disk"), "the running kernel has no folder of modules"),
        "nouveau.blacklisted": bool(by) if whole else blind,
        "nouveau.blacklisted_by": by if whole else blind,
        "nouveau.initramfs_older": older if whole else blind,
    }


def _yes(word: str | None, why: str) -> FactValue:
    return word == "yes" if word in ("yes", "no") else Unknown(why)


FACT = FactSpec("nouveau", _COMMAND, 5, 8192, parse, _PROVIDES, whole_only=True)
