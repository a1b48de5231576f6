"""What containers are given: the container toolkit, and the CDI specs, which name the driver's files with the version in the name.

A spec that was not made anew after a driver change names files that are gone, or that belong to another driver.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown
from muster.model.frozen import dataclass

_COMMAND = r"""
if command -v nvidia-ctk >/dev/null; then echo "ctk $(nvidia-ctk --version | head -n 1)"; else echo "ctk none"; fi
runtime=run
if [ ! -d "$MUSTER_ROOT/run/cdi" ]; then runtime=var/run; fi
set --
for spec in "$MUSTER_ROOT"/etc/cdi/* "$MUSTER_ROOT/$runtime"/cdi/*; do
  case "$spec" in *.yaml | *.json) ;; *) continue ;; esac
  if [ -r "$spec" ]; then
    echo "spec ${spec#"$MUSTER_ROOT"}"
    set -- "$@" "$spec"
  elif [ -e "$spec" ]; then echo "unreadable ${spec#"$MUSTER_ROOT"}"; fi
done
if [ $# -gt 0 ]; then
  grep -HoE 'lib(cuda|nvidia-ml)\.so\.[0-9]+\.[0-9]+(\.[0-9]+)?|"?kind"?: *"?[^" ,]+|"?name"?: *"?[^" ,{}]+' "$@" |
    awk -v root="$MUSTER_ROOT" 'length($0) < 600 && !seen[$0]++ && n++ < 1500 { print "in " substr($0, length(root) + 1) }'
fi
echo "asked yes"
"""

_PROVIDES = (
    "container.toolkit", "container.toolkit_version", "container.cdi_specs", "cdi[*].drivers", "cdi[*].devices",
)  # fmt: skip

_CTK = re.compile(r"ctk .{0,80}?version:? v?(\d+\.\d+[\w.~+-]{0,40})")
_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d{1,5}\.\d{1,5}(?:\.\d{1,5})?)")
_PATH = re.compile(r"/[\w./+@-]{1,200}")
_SAID = re.compile(r'"?(kind|name)"?: *"?(\S{1,200})')
_SHUT = Unknown("may not be read (needs root)")
MOST_SPECS = 50
MOST_DEVICES = 300


@dataclass(slots=True)
class _Spec:
    """What one CDI spec says."""

    readable: bool
    kind: str = ""
    drivers: set[str] = field(default_factory=set)
    names: dict[str, None] = field(default_factory=dict)


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """Whether the toolkit is there and which; the paths of the CDI specs, and for each the driver versions its file names carry and the
    devices that it defines (`nvidia.com/gpu=0`).
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    specs = _specs(lines)
    found: dict[str, FactValue] = {}
    for path, spec in specs.items():
        devices = tuple(f"{spec.kind}={name}" for name in sorted(spec.names)) if spec.kind else ()
        found[f"cdi[{path}].drivers"] = tuple(sorted(spec.drivers)) if spec.readable else _SHUT
        found[f"cdi[{path}].devices"] = devices if spec.readable else _SHUT
    told = next((line for line in lines if line.startswith("ctk ")), "")
    version = _CTK.match(told)
    silent = Unknown("the output does not say it")
    found["container.toolkit"] = told != "ctk none" if told else silent
    found["container.toolkit_version"] = (
        version[1]
        if version
        else Unknown("nvidia-ctk is not installed" if told == "ctk none" else "nvidia-ctk states no version")
    )
    found["container.cdi_specs"] = tuple(specs) if "asked yes" in lines else Unknown("the output ends too early")
    return found


def _specs(lines: Sequence[str]) -> Mapping[str, _Spec]:
    specs: dict[str, _Spec] = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        if word in ("spec", "unreadable") and _PATH.fullmatch(rest) and len(specs) < MOST_SPECS:
            specs.setdefault(rest, _Spec(word == "spec"))
        elif word == "in":
            path, _, said = rest.partition(":")
            if path in specs:
                _take(specs[path], said)
    return specs


def _take(spec: _Spec, said: str) -> None:
    library, value = _LIBRARY.fullmatch(said), _SAID.fullmatch(said)
    if library:
        spec.drivers.add(library[1])
    elif value and value[1] == "kind":
        spec.kind = spec.kind or value[2]
    elif value and len(spec.names) < MOST_DEVICES:
        spec.names[value[2]] = None


FACT = FactSpec("container", _COMMAND, 10, 32768, parse, _PROVIDES, whole_only=True)
