"""The node itself: boot, kernel, architecture, operating system, and what its root file system is."""

from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput

_COMMAND = r"""
echo "boot_id $(cat "$MUSTER_ROOT/proc/sys/kernel/random/boot_id")"
echo "kernel $(uname -r)"
echo "arch $(uname -m)"
sed -n 's/^ID=/os_id /p; s/^VERSION_ID=/os_version /p' "$MUSTER_ROOT/etc/os-release"
while read -r _ at kind _; do
  if [ "$at" = / ]; then root=$kind; fi
done <"$MUSTER_ROOT/proc/mounts"
echo "root_fs ${root-}"
"""

_PROVIDES = ("boot_id", "kernel.running", "arch", "os.id", "os.version", "root_fs.kind")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """The node's lasting values. A value that its file did not hold is Unknown."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    seen = _read.labelled(raw)

    def value(label: str, source: str) -> FactValue:
        return _read.text_or(seen.get(label, "").strip("\"'"), f"{source} could not be read")

    return {
        "boot_id": value("boot_id", "/proc/sys/kernel/random/boot_id"),
        "kernel.running": value("kernel", "uname -r"),
        "arch": value("arch", "uname -m"),
        "os.id": value("os_id", "/etc/os-release"),
        "os.version": value("os_version", "/etc/os-release"),
        "root_fs.kind": value("root_fs", "/proc/mounts"),
    }


FACT = FactSpec("system", _COMMAND, 5, 4096, parse, _PROVIDES)
