"""What DKMS says of the NVIDIA module, and which module lies on disk for each kernel that can be booted.

The module of the running kernel is the source `module`'s. A kernel that came by an upgrade and for which nothing was built is what takes a
node's GPUs away at the next boot.
"""

from collections.abc import Iterable, Mapping

from muster.facts import _read, module
from muster.facts.captures import _dkms
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_COMMAND = r"""
if command -v dkms >/dev/null; then
  echo "dkms yes"
  dkms status | while read -r row; do
    case "$row" in nvidia*) echo "row $row" ;; esac
  done
else
  echo "dkms no"
fi
for image in "$MUSTER_ROOT"/boot/vmlinuz-*; do
  if [ ! -e "$image" ]; then continue; fi
  kernel=${image##*/vmlinuz-}
  if command -v modinfo >/dev/null; then
    echo "asked $kernel"
    modinfo -k "$kernel" nvidia | while read -r label value; do
      case "$label" in filename: | version: | license: | signer: | sig_key:) echo "on $kernel $label $value" ;; esac
    done
  else
    echo "unasked $kernel"
  fi
done
"""

_PROVIDES = (
    "dkms.present", "dkms[*].state", "kernel[*].nvidia.on_disk", "kernel[*].nvidia.version", "kernel[*].nvidia.flavour",
    "kernel[*].nvidia.signer", "kernel[*].nvidia.sig_key", "kernel[*].nvidia.dkms",
)  # fmt: skip

UNSIGNED = "none"
"""The signer of a module that carries no signature."""

MOST_KERNELS = 64


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`dkms.present`, the nvidia rows of `dkms status`, and per bootable kernel whether a module is on disk, which, and signed by whom.

    `kernel[<k>].nvidia.dkms` is `installed`, `built`, or `none` (no row for that kernel); it is left out where there is no DKMS.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    present = "dkms yes" in lines
    found: dict[str, FactValue] = {"dkms.present": present}
    if not present and "dkms no" not in lines:
        found["dkms.present"] = Unknown("the output does not say it")
    rows = [match for line in lines if line.startswith("row ") and (match := _dkms.row(line[4:]))][: _dkms.MOST_ROWS]
    states: dict[str, str] = {}
    for match in rows:
        found[f"dkms[{'/'.join(filter(None, match.group('module', 'version', 'kernel', 'arch')))}].state"] = match[
            "state"
        ]
        if match["kernel"] and states.get(match["kernel"]) != "installed":
            states[match["kernel"]] = match["state"]
    for kernel, said in _kernels(lines).items():
        found |= {f"kernel[{kernel}].nvidia.{name}": value for name, value in _module(said).items()}
        if present:
            found[f"kernel[{kernel}].nvidia.dkms"] = states.get(kernel, "none")
    return found


def _kernels(lines: Iterable[str]) -> Mapping[str, Mapping[str, str] | None]:
    """What modinfo said for each kernel; None where it was not there to be asked."""
    found: dict[str, dict[str, str] | None] = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        kernel, _, said = rest.partition(" ")
        if not kernel or "[" in kernel or "]" in kernel or "rescue" in kernel or len(kernel) > 120:
            continue
        if word == "asked" and len(found) < MOST_KERNELS:
            found.setdefault(kernel, {})
        elif word == "unasked" and len(found) < MOST_KERNELS:
            found.setdefault(kernel, None)
        elif word == "on":
            label, _, value = said.partition(": ")
            known = found.get(kernel)
            if known is not None:
                known.setdefault(label, value.strip())
    return found


def _module(said: Mapping[str, str] | None) -> Mapping[str, FactValue]:
    names = ("on_disk", "version", "flavour", "signer", "sig_key")
    if said is None:
        return dict.fromkeys(names, Unknown("modinfo is not installed"))
    if not said:
        return {"on_disk": False} | dict.fromkeys(
            names[1:], Unknown("there is no module nvidia on disk for this kernel")
        )
    return {
        "on_disk": True,
        "version": _read.text_or(said.get("version"), "the module on disk states no version"),
        "flavour": module.flavour_by_licence(said.get("license", "")),
        "signer": said.get("signer") or UNSIGNED,
        "sig_key": _read.text_or(said.get("sig_key", "").replace(":", "").lower()[:80], "modinfo names no key"),
    }


FACT = FactSpec("dkms", _COMMAND, 15, 65536, parse, _PROVIDES, whole_only=True)
