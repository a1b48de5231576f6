"""`conda list`: PyTorch and the CUDA it was built for. The build string decides, not `pytorch-cuda`, which a CPU build can stand beside."""

import re
from collections.abc import Mapping

from muster.facts.captures import _text
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_ROW = re.compile(
    r"([a-z0-9_][a-z0-9_.-]{0,100})\s+(\d[A-Za-z0-9_.+!-]{0,60})\s+([A-Za-z0-9_.+-]{1,120})(?:\s+(\S{1,120}))?\s*"
)
_CUDA = re.compile(r"cuda(\d{1,2}\.?\d{1,2})")
_CUDNN = re.compile(r"cudnn(\d[\d.]{0,20})")
_MOST_ROWS = 20_000


def sniff(head: str) -> int:
    lines = [line for line in head.split("\n") if line.strip()]
    if any(line.startswith("# packages in environment at") for line in lines[:3]):
        return 98
    rows = [match for line in lines[:400] if (match := _ROW.fullmatch(line))]
    builds = sum(1 for match in rows if re.search(r"_\d+$", match[3]))
    return 85 if rows and len(rows) == len(lines[:400]) and builds * 2 > len(rows) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`conda_package[<name>].version`, `.build`, `.channel`; `environment.torch`, `.torch_cuda` (`none` for a CPU build), `.cudnn`."""
    found: dict[str, FactValue] = {}
    builds: dict[str, str] = {}
    for line in text.split("\n")[:_MOST_ROWS]:
        row = None if line.startswith("#") else _ROW.fullmatch(line)
        if row:
            key, builds[row[1]] = _text.key(row[1]), row[3]
            found |= {f"conda_package[{key}].version": row[2], f"conda_package[{key}].build": row[3]}
            if row[4]:
                found[f"conda_package[{key}].channel"] = row[4]
    if not found:
        return {"environment.packages": Unknown("no line is a package as conda list writes it")}
    found["environment.packages"] = len(builds)
    build = builds.get("pytorch")
    if build is not None:
        cuda, cudnn = _CUDA.search(build), _CUDNN.search(build)
        found["environment.torch"] = found["conda_package[pytorch].version"]
        found["environment.torch_cuda"] = (
            _dotted(cuda[1]) if cuda else "none" if "cpu" in build else Unknown(f"the build {build} does not say")
        )
        found["environment.cudnn"] = cudnn[1] if cudnn else Unknown(f"the build {build} names no cuDNN")
    elif "torch" in builds:
        found["environment.torch"] = found["conda_package[torch].version"]
        found["environment.torch_cuda"] = Unknown("torch came by pip: see pip freeze")
    return found


def _dotted(version: str) -> str:
    """conda-forge writes `cuda120`, PyTorch's own channel `cuda12.4`."""
    return version if "." in version else f"{version[:-1]}.{version[-1]}"


READER = CaptureSpec("conda_list", "conda list", sniff, parse)
