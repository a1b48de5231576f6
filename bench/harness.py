"""What every benchmark shares: how often it is run, what is printed, and on what machine.

A benchmark is a value: how to take one sample of ours, how to take one of a peer, and how many. This module takes the
samples in turns, so that a busy spell of the machine hits both, and reports medians. It judges nothing and gates
nothing; the bar is printed beside the figure.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

# Fewer samples than this make a median that one hiccup can move.
RUNS_SHORT = 7


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: the figure in the benchmark's unit, and what the run took of the machine, in seconds."""

    value: float
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Peer:
    """Something well known doing the same or less. `sample` is None where it is not installed here."""

    name: str
    sample: Callable[[], Sample] | None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One figure. `bar` is the value we hold ourselves to, in `unit`; `others` are more peers, shown where present."""

    name: str
    about: str
    unit: str
    sample: Callable[[], Sample]
    peer: Peer | None = None
    others: tuple[Peer, ...] = ()
    runs: int = RUNS_SHORT
    bar: float | None = None
    full: Callable[[], Sample] | None = None
    """The whole of what `sample` takes a part of; once, without a warm-up, where --full asks for it."""


@dataclass(frozen=True, slots=True)
class Line:
    """What is printed: medians over `runs` samples; `ratio` is ours over the peer's."""

    name: str
    value: float
    unit: str
    peer: str | None
    peer_value: float | None
    ratio: float | None
    runs: int
    machine: str
    wall_s: float
    cpu_s: float
    bar: float | None
    others: Mapping[str, float] = field(default_factory=dict)


class CommandFailedError(Exception):
    """A measured command did not end well, so its time says nothing."""


def measure(benchmark: Benchmark, machine: str) -> Line:
    """Take `benchmark.runs` samples of ours and of each peer present, in turns, after a first that is thrown away.

    With `runs` 0 there is one sample of each, and none is thrown away.
    """
    peers = [p for p in (benchmark.peer, *benchmark.others) if p is not None]
    takers = {"": benchmark.sample} | {p.name: p.sample for p in peers if p.sample is not None}
    taken: dict[str, list[Sample]] = {name: [] for name in takers}
    for turn in range(benchmark.runs + 1):
        for name, take in takers.items():
            sample = take()
            if turn or not benchmark.runs:
                taken[name].append(sample)
    ours = taken[""]
    value = _median(s.value for s in ours)
    values = {name: _median(s.value for s in samples) for name, samples in taken.items() if name}
    peer = benchmark.peer
    peer_value = values.get(peer.name) if peer else None
    return Line(
        name=benchmark.name,
        value=value,
        unit=benchmark.unit,
        peer=peer.name if peer else None,
        peer_value=peer_value,
        ratio=round(value / peer_value, 2) if peer_value else None,
        runs=max(1, benchmark.runs),
        machine=machine,
        wall_s=_median(s.wall_s for s in ours),
        cpu_s=_median(s.cpu_s for s in ours),
        bar=benchmark.bar,
        others={p.name: values[p.name] for p in benchmark.others if p.name in values},
    )


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 6)


def installed_environment() -> Mapping[str, str]:
    """This process's environment, but that Python may keep its bytecode: an installed program has it, and is not compiled each time."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run_command(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Sample:
    """Run a command to its end; the value is the CPU seconds, user and system, of it and of all it waited for.

    Raises CommandFailedError where it exits with anything but 0.
    """
    began = time.perf_counter()
    env = installed_environment() if env is None else env
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    ) as child:
        _pid, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - began
    if child.returncode != 0:
        raise CommandFailedError(f"exit {child.returncode}: {' '.join(argv)}")
    cpu_s = used.ru_utime + used.ru_stime
    return Sample(value=cpu_s, wall_s=wall_s, cpu_s=cpu_s)


def discover(package: str = "bench.benchmarks") -> dict[str, Benchmark]:
    """Every `BENCHMARK` of the package's modules by name, sorted. Raises ValueError where two have one name."""
    found: dict[str, Benchmark] = {}
    for info in iter_modules(import_module(package).__path__, package + "."):
        benchmark = import_module(info.name).BENCHMARK
        if benchmark.name in found:
            raise ValueError(f"two benchmarks are named {benchmark.name}")
        found[benchmark.name] = benchmark
    return dict(sorted(found.items()))


def describe_machine() -> str:
    """Processor, cores, Python and kernel, and the load at the start: what a figure cannot be read without."""
    model = platform.machine()
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        info = ""
    for line in info.splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"{model}, {cores} cores, Python {platform.python_version()}, Linux {platform.release()}, load {load:.1f}"
