"""CUDA toolkits that are installed on the node itself: where, which, with a compiler or not, and the driver that came with each.

An environment that uses one of them rests on it. Toolkits inside images, conda and wheels are no part of the node.
"""

import re
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

# nvcc and nvidia-smi are not run for what files tell: each start costs more than all of this.
_COMMAND = r"""
set --
for folder in "$MUSTER_ROOT"/usr/local/cuda-* "$MUSTER_ROOT"/usr/local/cuda "$MUSTER_ROOT"/opt/cuda "$MUSTER_ROOT"/opt/cuda-* \
  "$MUSTER_ROOT"/opt/nvidia/hpc_sdk/Linux_*/*/cuda/[0-9]* "$MUSTER_ROOT"/usr/lib/nvidia-cuda-toolkit; do
  if [ ! -d "$folder" ] || [ -L "$folder" ]; then continue; fi
  nvcc=no
  if [ -x "$folder/bin/nvcc" ]; then nvcc=yes; fi
  echo "toolkit ${folder#"$MUSTER_ROOT"} $nvcc"
  for library in "$folder"/lib64/libcudart.so.*.*.* "$folder"/targets/*/lib/libcudart.so.*.*.*; do
    if [ -e "$library" ]; then echo "runtime ${folder#"$MUSTER_ROOT"} ${library##*/libcudart.so.}"; break; fi
  done
  for file in "$folder/version.json" "$folder/version.txt"; do
    if [ -r "$file" ]; then set -- "$@" "$file"; break; fi
  done
done
if [ $# -gt 0 ]; then
  awk -v root="$MUSTER_ROOT" 'BEGIN { RS = "}" }
    /"cuda"|"nvidia_driver"|CUDA Version/ { gsub(/[ \t\r\n]+/, " "); file = substr(FILENAME, length(root) + 1)
      sub(/\/version\.[a-z]+$/, "", file); print "said " file " " substr($0, 1, 300) }' "$@"
fi
if [ -L "$MUSTER_ROOT/usr/local/cuda" ]; then echo "default $(cd -P "$MUSTER_ROOT/usr/local/cuda" && pwd)"; fi
echo "asked yes"
"""

_PROVIDES = ("cuda.toolkits", "cuda.default", "cuda[*].version", "cuda[*].nvcc", "cuda[*].bundled_driver")

MOST = 64
_PATH = re.compile(r"/[\w./+@-]{1,200}")
_VERSION = re.compile(
    r'"cuda" ?: ?\{[^{}]*"version" ?: ?"(\d{1,3}(?:\.\d{1,8}){1,3})"|CUDA Version (\d{1,3}(?:\.\d{1,4}){1,3})'
)
_DRIVER = re.compile(r'"nvidia_driver" ?: ?\{[^{}]*"version" ?: ?"(\d{1,4}(?:\.\d{1,4}){1,2})"')
_NAMED = re.compile(r"/cuda-(\d{1,3}\.\d{1,3})$|/cuda/(\d{1,3}\.\d{1,3})$")
_DATED = re.compile(r"\d{1,3}\.\d{1,3}\.20\d{6}")
_PLAIN = re.compile(r"\d{1,3}(?:\.\d{1,8}){1,3}")


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`cuda.toolkits`: their folders; of each its version (as its own file says it, else its runtime library, else its folder's name), whether
    it has a compiler, and `bundled_driver` where its file names one; `cuda.default`: where /usr/local/cuda leads.
    """
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    lines = _read.text(raw).splitlines()
    if "asked yes" not in lines:
        return _read.all_unknown(_PROVIDES, "the output ends too early")
    found: dict[str, FactValue] = {}
    versions: dict[str, dict[str, str]] = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        path, _, said = rest.partition(" ")
        if not _PATH.fullmatch(path):
            continue
        if word == "toolkit" and len(versions) < MOST:
            named = _NAMED.search(path)
            versions[path] = {"name": named[1] or named[2]} if named else {}
            found[f"cuda[{path}].nvcc"] = said == "yes"
        elif word in ("runtime", "said") and path in versions:
            _take(word, path, said, versions[path], found)
    for path, told in versions.items():
        version = next((told[source] for source in ("file", "runtime", "name") if source in told), None)
        if version and _DATED.fullmatch(version):  # a redistributable build, which the runtime library tells better
            version = told.get("runtime", version.rpartition(".")[0])
        found[f"cuda[{path}].version"] = _read.text_or(version, "neither its files nor its name tell it")
    found["cuda.toolkits"] = tuple(sorted(versions))
    found["cuda.default"] = _default(lines, versions)
    return found


def _take(word: str, path: str, said: str, told: dict[str, str], found: dict[str, FactValue]) -> None:
    version, driver = _VERSION.search(said), _DRIVER.search(said)
    if word == "runtime" and _PLAIN.fullmatch(said):
        told.setdefault("runtime", said)
    if word == "said" and version:
        told.setdefault("file", version[1] or version[2])
    if word == "said" and driver:
        found[f"cuda[{path}].bundled_driver"] = driver[1]


def _default(lines: list[str], versions: Mapping[str, object]) -> FactValue:
    target = next((line[8:] for line in lines if line.startswith("default ")), "")
    whole = next((path for path in versions if target.endswith(path)), "")  # below another root in the way
    return whole or Unknown("there is no link /usr/local/cuda to a toolkit")


FACT = FactSpec("cuda", _COMMAND, 5, 16384, parse, _PROVIDES, whole_only=True)
