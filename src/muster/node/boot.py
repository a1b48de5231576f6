"""Texts that choose the kernel of the next boot, once, and make it the default only when it has proved itself. Pure; POSIX sh; GRUB.

A new kernel may hang before anything of ours runs. So the old kernel stays the default while the change lasts, the new one is booted once
(`next_entry`, which GRUB itself clears before it hands over), and a panic restarts the machine: it then comes up on the old kernel by itself.
What is changed for that is one file of our own in /etc/default/grub.d and GRUB's environment block; `settle` takes both back.

GRUB cannot write its block on every file system; there the new kernel would be booted for ever, so `before` refuses.
"""

import shlex

NOT_POSSIBLE = 3
"""Exit status when the boot loader cannot do what is asked; the last line says why."""

PANIC_RESTART_S = 10
"""How long a kernel that panicked on its first boot stands still. Its last words are on the console by then, and nobody waits for a reason."""

_TOOLS = """\
PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C
grub=$MUSTER_ROOT/boot/grub menu=$MUSTER_ROOT/boot/grub/grub.cfg block=$MUSTER_ROOT/boot/grub/grubenv
ours=$MUSTER_ROOT/etc/default/grub.d/zz-muster.cfg
cannot() { echo "$1"; exit @NOT_POSSIBLE@; }
entry_of() { # kernel: how the menu names its plain entry, with the submenu that it is in
  awk -v kernel="$1" '
    function id(line,    part) {
      if (split(line, part, /menuentry_id_option\\}?'\\''? '\\''/) < 2) return ""
      sub(/'\\''.*/, "", part[2])
      return part[2]
    }
    /^submenu / { sub_id = id($0) }
    /^[ \\t]*menuentry / {
      name = id($0)
      if (index(name, "gnulinux-" kernel "-advanced-") == 1) { print ($0 ~ /^[ \\t]/ && sub_id != "" ? sub_id ">" : "") name; exit }
    }' "$menu" 2>/dev/null
}
in_block() { grub-editenv "$block" list 2>/dev/null | sed -n "s/^$1=//p"; }
first_kernel() { sed -n 's|^[[:space:]]*linux[[:space:]]\\{1,\\}[^ ]*/vmlinuz-\\([^ ]*\\).*|\\1|p' "$menu" | head -n 1; }
site_default() { # what GRUB_DEFAULT says without us
  ( for file in "$MUSTER_ROOT"/etc/default/grub "$MUSTER_ROOT"/etc/default/grub.d/*.cfg; do
      [ "$file" = "$ours" ] || [ ! -r "$file" ] || . "$file"
    done >/dev/null 2>&1
    echo "${GRUB_DEFAULT:-0}" )
}
default_is() { grub-set-default --boot-directory="$MUSTER_ROOT/boot" "$1"; }
new_menu() { said=$(update-grub 2>&1) || cannot "update-grub failed: $(printf '%s\\n' "$said" | tail -n 1)"; }
""".replace("@NOT_POSSIBLE@", str(NOT_POSSIBLE))

_BEFORE = """\
for program in grub-reboot grub-set-default grub-editenv grub-probe update-grub awk; do
  command -v $program >/dev/null || cannot "a kernel is booted once through GRUB, and $program is not on this node"
done
[ -r "$menu" ] && [ -w "$block" ] || cannot "a kernel is booted once through GRUB, and $menu or its environment block is not there"
under=$(grub-probe --target=abstraction "$grub" 2>/dev/null) kind=$(grub-probe --target=fs "$grub" 2>/dev/null)
for_ever='the new kernel would be booted again and again'
case $under in *lvm* | *mdraid* | *crypt* | *luks*) cannot "GRUB cannot write its environment block on $under: $for_ever" ;; esac
case $kind in ext2 | xfs | fat) ;; *) cannot "GRUB cannot write its environment block on ${kind:-this file system}: $for_ever" ;; esac
[ -n "$(entry_of $old)" ] || cannot "GRUB's menu has no entry for the running kernel $old: there would be no way back to it"
[ ! -e "$MUSTER_ROOT/lib/modules/$new" ] || [ -n "$(entry_of $new)" ] || [ ! -e "$MUSTER_ROOT/boot/vmlinuz-$new" ] ||
  cannot "$new is installed and has no entry in GRUB's menu: run update-grub"
need=0
for image in "$MUSTER_ROOT/boot/initrd.img-$old" "$MUSTER_ROOT/boot/vmlinuz-$old"; do
  [ ! -f "$image" ] || need=$((need + $(wc -c <"$image") / 1024 * 2))
done
set -- $(df -Pk "$MUSTER_ROOT/boot" 2>/dev/null | sed -n 2p)
[ -z "${4-}" ] || [ "$4" -ge "$need" ] || cannot "/boot has $4 KiB free, a further kernel needs $need KiB"
"""

# The file comes last: an update-grub that is cut short leaves the menu of before, and the block names an entry that is in both.
_HOLD = """\
[ "$(uname -r)" = $old ] || [ -e "$ours" ] || cannot "$(uname -r) runs, not $old"
entry=$(entry_of $old)
[ -n "$entry" ] || cannot "GRUB's menu has no entry for $old"
kept=$MUSTER_ROOT$keep/boot
[ -e "$kept" ] || { mkdir -p "${kept%/*}" && in_block saved_entry >"$kept.new" && mv "$kept.new" "$kept" || exit 1; }
default_is "$entry" && [ "$(in_block saved_entry)" = "$entry" ] || cannot "GRUB's environment block cannot be written"
mkdir -p "${ours%/*}" && cat >"$ours.new" <<'END' && mv "$ours.new" "$ours" || exit 1
# of muster, while the kernel is being changed: the old one stays the default, and a new one that panics restarts
GRUB_DEFAULT=saved
GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX panic=@PANIC@"
END
new_menu
sync
""".replace("@PANIC@", str(PANIC_RESTART_S))

_ONCE = """\
entry=$(entry_of $new)
[ -n "$entry" ] || cannot "GRUB's menu has no entry for $new"
[ -s "$MUSTER_ROOT/boot/initrd.img-$new" ] || cannot "there is no initramfs for $new"
grub-reboot --boot-directory="$MUSTER_ROOT/boot" "$entry" && [ "$(in_block next_entry)" = "$entry" ] ||
  cannot "GRUB's environment block cannot be written"
sync
"""

_SETTLE = """\
[ -e "$ours" ] || [ -e "$MUSTER_ROOT$keep/boot" ] || { echo 'the boot loader was not touched'; exit 0; }
[ "$(uname -r)" = $stay ] || cannot "$(uname -r) runs, not $stay: the boot loader is left as it is, and boots the kernel of before"
rm -f "$ours"
new_menu
entry=$(entry_of $stay)
[ -n "$entry" ] || cannot "GRUB's menu has no entry for $stay"
grub-editenv "$block" unset next_entry
default=$(site_default)
if [ "$default" = saved ]; then
  default_is "$entry" || exit 1
elif [ "$default" = 0 ] && [ "$(first_kernel)" = $stay ]; then
  grub-editenv "$block" unset saved_entry
  before=$(cat "$MUSTER_ROOT$keep/boot" 2>/dev/null)
  [ -z "$before" ] || default_is "$before"
else
  # What the site wrote down would boot another kernel than the one that was validated.
  why='# of muster: the kernel that was validated is not the first of the menu'
  mkdir -p "${ours%/*}" && printf '%s\\n' "$why" 'GRUB_DEFAULT=saved' >"$ours" || exit 1
  default_is "$entry" || exit 1
  new_menu
fi
rm -f "$MUSTER_ROOT$keep/boot"
sync
echo "$stay is what the node boots"
"""


def before(old: str, new: str) -> str:
    """Asked before the lease, read-only: can GRUB here boot `new` once and fall back to `old` by itself, and is there room for both?"""
    return _told(old=old, new=new) + _TOOLS + _BEFORE


def hold(old: str, keep: str) -> str:
    """Make `old`, the running kernel, the default until `settle`, whatever kernels are installed meanwhile."""
    return _told(old=old, keep=keep) + _TOOLS + _HOLD


def once(new: str) -> str:
    """Let the next boot, and only that, be of `new`."""
    return _told(new=new) + _TOOLS + _ONCE


def settle(stay: str, keep: str) -> str:
    """Take back what `hold` did and see that `stay`, which must be running, is the default. Does nothing where `hold` did nothing."""
    return _told(stay=stay, keep=keep) + _TOOLS + _SETTLE


def _told(**words: str) -> str:
    return "".join(f"{name}={shlex.quote(word)}\n" for name, word in words.items())
