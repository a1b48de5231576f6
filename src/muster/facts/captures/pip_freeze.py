"""`pip freeze` (and `pip list --format=freeze`): the CUDA libraries that came as wheels."""

import re
from collections.abc import Mapping

from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_ROW = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,100})==([A-Za-z0-9!+._-]{1,80})")
_OTHER = re.compile(r"(?:-e |#|--|[A-Za-z0-9][A-Za-z0-9._-]{0,100} @ )")
_BUILD = re.compile(r"cu(\d{1,2})(\d)")
"""PyTorch's own index names the build: `torch==2.5.1+cu124` is for CUDA 12.4."""
_MOST_ROWS = 20_000
_SHARED = {
    "nccl": ("nvidia-nccl", 3), "cudnn": ("nvidia-cudnn", 3), "cuda_runtime": ("nvidia-cuda-runtime", 2), "cublas": ("nvidia-cublas", 3),
}  # fmt: skip
"""Library -> (its wheel without the -cuNN, how many parts of the wheel's version are the library's)."""


def sniff(head: str) -> int:
    lines = [line.strip() for line in head.split("\n") if line.strip()][:400]
    rows = sum(1 for line in lines if _ROW.fullmatch(line))
    other = sum(1 for line in lines if _OTHER.match(line))
    return 90 if rows and rows + other == len(lines) else 70 if rows * 2 > len(lines) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`python_package[<name>].version`, and `environment.<library>`. Two wheels of one library write the same file: then it is Unknown
    which one is in place, and `environment.clashes` names the library.
    """
    packages: dict[str, str] = {}
    for line in text.split("\n")[:_MOST_ROWS]:
        row = _ROW.fullmatch(line.strip())
        if row:
            packages.setdefault(re.sub(r"[-_.]+", "-", row[1]).lower(), row[2])
    if not packages:
        return {"environment.packages": Unknown("no line is a package as pip freeze writes it")}
    found: dict[str, FactValue] = {f"python_package[{name}].version": version for name, version in packages.items()}
    clashes = []
    for library, (wheel, parts) in _SHARED.items():
        there = [name for name in packages if name == wheel or re.fullmatch(re.escape(wheel) + r"-cu\d{1,3}", name)]
        if len(there) > 1:
            clashes.append(library)
            found[f"environment.{library}"] = Unknown(
                f"{' and '.join(sorted(there))} write the same files: the last one installed is in place"
            )
        elif there:
            found[f"environment.{library}"] = ".".join(packages[there[0]].split(".")[:parts])
    if "torch" in packages:
        found["environment.torch"], _, build = packages["torch"].partition("+")
        cuda = _BUILD.fullmatch(build)
        if build == "cpu" or cuda:
            found["environment.torch_cuda"] = f"{cuda[1]}.{cuda[2]}" if cuda else "none"
    found["environment.clashes"] = tuple(clashes)
    found["environment.packages"] = len(packages)
    return found


READER = CaptureSpec("pip_freeze", "pip freeze", sniff, parse)
