"""The driver's user-space libraries on disk: libcuda and libnvidia-ml. Their version is their file name."""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_COMMAND = r"""
for folder in usr/lib/x86_64-linux-gnu usr/lib/aarch64-linux-gnu usr/lib64 usr/lib; do
  for library in "$MUSTER_ROOT/$folder"/libcuda.so.*.* "$MUSTER_ROOT/$folder"/libnvidia-ml.so.*.* \
    "$MUSTER_ROOT/$folder"/nvidia/*/libcuda.so.*.* "$MUSTER_ROOT/$folder"/nvidia/*/libnvidia-ml.so.*.*; do
    if [ -f "$library" ]; then echo "${library##*/}"; fi
  done
done
"""

_LIBRARIES = {"libcuda": "libcuda", "libnvidia-ml": "libnvidia_ml"}
_PROVIDES = tuple(f"library.{name}.{field}" for name in _LIBRARIES.values() for field in ("version", "versions"))

_FILE = re.compile(r"(libcuda|libnvidia-ml)\.so\.(\d+(?:\.\d+)+)")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`version` where exactly one is there, else Unknown (none, or the several named); `versions` lists them all."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    files = [match.groups() for line in _read.text(raw).splitlines() if (match := _FILE.fullmatch(line.strip()))]
    found: dict[str, FactValue] = {}
    for library, name in _LIBRARIES.items():
        versions = tuple(sorted({version for seen, version in files if seen == library}))
        found[f"library.{name}.versions"] = versions
        found[f"library.{name}.version"] = (
            versions[0] if len(versions) == 1 else Unknown(_why_not_one(library, versions))
        )
    return found


def _why_not_one(library: str, versions: tuple[str, ...]) -> str:
    if not versions:
        return f"{library} is not there"
    return f"more than one {library}: {', '.join(versions)}"


FACT = FactSpec("library", _COMMAND, 5, 16384, parse, _PROVIDES)
