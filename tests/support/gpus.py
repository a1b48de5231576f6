"""Nodes with stand-in GPUs: libraries in place of the driver's and NCCL, compiled from tests/standins, under node/validate.py."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "src/muster/node/validate.py"
SOURCES = ROOT / "tests/standins"

QUICK = (
    "--matmul-n", "64", "--load-s", "1e-6", "--copy-mib", "1", "--copies", "2", "--ready-wait-s", "0", "--sweep-s", "600",
)  # fmt: skip
"""Sizes for which a CPU is quick enough."""


@dataclass(frozen=True)
class Exercised:
    """What node/validate.py answered: its exit status and the lines of its output, by test."""

    status: int
    output: bytes
    lines: Mapping[str, Mapping[str, Any]]

    def verdicts(self) -> Mapping[str, str]:
        return {test: line["verdict"] for test, line in self.lines.items()}

    def why(self, test: str) -> str:
        return str(self.lines[test]["why"])


def compiled(folder: Path) -> Path:
    """The stand-ins as shared libraries in `folder`. Skips the test where there is no C compiler."""
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("needs a C compiler (cc)")
    for source, library, more in (("cuda.c", "libcuda.so.1", ()), ("nccl.c", "libnccl.so.2", ("-L.", "-lcuda"))):
        words = [cc, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", library]
        subprocess.run([*words, str(SOURCES / source), *more, "-lm"], cwd=folder, check=True)
        (folder / library.rpartition(".")[0]).symlink_to(library)
    return folder


def exercise(libraries: Path, fault: str = "", *options: str, python: str = sys.executable, **more: str) -> Exercised:
    """Run node/validate.py over the stand-ins with a fault (see tests/standins/cuda.c)."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "STANDIN_FAULT": fault, **more}
    words = [python, str(PROGRAM), *QUICK, "--deadline-s", "600", *options]
    done = subprocess.run(words, env=environment, capture_output=True, check=False, timeout=900)
    assert done.stderr == b"", done.stderr.decode()
    return Exercised(done.returncode, done.stdout, lines_of(done.stdout.decode().splitlines()))


def lines_of(lines: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """The result lines by their test."""
    bodies = [json.loads(line) for line in lines]
    return {body["test"]: body for body in bodies if "test" in body}
