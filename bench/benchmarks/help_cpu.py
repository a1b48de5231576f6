"""CPU seconds of `muster --help`: the price of a command that does nothing, paid by every command that does something.

Beside it the bare interpreter, below which no Python program can go, and ansible's cheapest command where there is one.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

from bench.harness import Benchmark, Peer, run_command

MUSTER = str(Path(sys.executable).with_name("muster"))
ANSIBLE = shutil.which("ansible")

BENCHMARK = Benchmark(
    name="help-cpu",
    about="CPU seconds of `muster --help`",
    unit="s",
    sample=partial(run_command, (MUSTER, "--help")),
    peer=Peer("python -c pass", partial(run_command, (sys.executable, "-c", "pass"))),
    others=(Peer("ansible --version", partial(run_command, (ANSIBLE, "--version")) if ANSIBLE else None),),
    runs=11,
    bar=0.25,
)
