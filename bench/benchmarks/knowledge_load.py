"""CPU seconds until the knowledge a solver asks for is there: by the compiled form, and beside it by reading the YAML files strictly.

Both in a process of its own, after the imports, which the command pays for its code and not for the knowledge.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache, partial
from pathlib import Path

from bench.harness import Benchmark, Peer, Sample

_PROGRAM = """
import time
from muster.knowledge import loader, records
from muster.knowledge import query, query_components, query_cuda, query_issues, query_kernels, query_limits
start = time.process_time()
base = loader.load()
for each in (base.branches, base.releases, base.toolkits, base.architectures, base.package_sets):
    len(each)
for kind in (records.KnownIssue, records.KernelFailure, records.KernelCeiling, records.GpuSystem, records.ComponentRule,
             records.Limit, records.CompatPackage, records.GpuClass):
    len(base.of(kind))
print(time.process_time() - start)
"""
_READING = _PROGRAM.replace("start =", "import muster.knowledge.compiling\nstart =").replace(
    "loader.load()", "muster.knowledge.compiling.read_and_compile(loader.packaged(), '')[0]"
)


@cache
def _cache() -> str:
    """A cache that a process before has filled."""
    folder = tempfile.mkdtemp(prefix="muster-bench-knowledge-")
    _run(_PROGRAM, folder)
    return folder


def _run(program: str, folder: str) -> Sample:
    env = {**os.environ, "XDG_CACHE_HOME": folder, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True)
    seconds = float(done.stdout)
    return Sample(seconds, seconds, seconds)


BENCHMARK = Benchmark(
    name="knowledge-load",
    about="CPU seconds to load what the solver asks of the knowledge base",
    unit="s",
    sample=lambda: _run(_PROGRAM, _cache()),
    peer=Peer("reading the YAML files", partial(_run, _READING, "/nonexistent")),
    runs=7,
    bar=0.03,
)
