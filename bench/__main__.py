"""`bench/run`: choose benchmarks by name, measure them, print a table or JSON lines."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import sys
from collections.abc import Mapping, Sequence

from bench.harness import Benchmark, CommandFailedError, Line, describe_machine, discover, measure

ROW = "{:<24} {:>12} {:<8} {:>10} {:>7} {:>9} {:>9} {:>5}  {}"


def main(argv: Sequence[str], benchmarks: Mapping[str, Benchmark]) -> int:
    """Print a line per chosen benchmark; 0 when all could be measured, 1 when one could not, 2 for an unknown name."""
    parser = argparse.ArgumentParser(prog="bench/run", description="Measure the figures Muster claims.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which benchmarks (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    parser.add_argument("--full", action="store_true", help="the whole, where a benchmark takes a sample (hours)")
    chosen = parser.parse_args(argv)
    for name in chosen.names:
        if name not in benchmarks:
            near = difflib.get_close_matches(name, benchmarks, n=3) or sorted(benchmarks)
            print(f"bench: no benchmark {name!r}; there is: {', '.join(near)}", file=sys.stderr)
            return 2
    if chosen.list:
        for benchmark in benchmarks.values():
            print(f"{benchmark.name:<24} {benchmark.about}")
        return 0
    return _measure_all(
        [_whole(benchmarks[n]) if chosen.full else benchmarks[n] for n in chosen.names or benchmarks],
        as_json=chosen.json,
    )


def _whole(benchmark: Benchmark) -> Benchmark:
    """The benchmark in its full form; itself where it has none."""
    if benchmark.full is None:
        return benchmark
    return dataclasses.replace(benchmark, sample=benchmark.full, peer=None, others=(), runs=0)


def _measure_all(benchmarks: Sequence[Benchmark], *, as_json: bool) -> int:
    machine = describe_machine()
    if not as_json:
        print(machine)
        print(ROW.format("benchmark", "value", "unit", "bar", "ratio", "cpu s", "wall s", "runs", "peer"))
    code = 0
    for benchmark in benchmarks:
        try:
            line = measure(benchmark, machine)
        except (CommandFailedError, OSError) as failure:
            print(f"bench: {benchmark.name} could not be measured: {failure}", file=sys.stderr)
            code = 1
            continue
        print(json.dumps(dataclasses.asdict(line)) if as_json else _row(line), flush=True)
    return code


def _row(line: Line) -> str:
    bar = "" if line.bar is None else f"{line.bar:g}"
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}x"
    peers = {line.peer: line.peer_value} if line.peer else {}
    said = "; ".join(f"{n} {'not here' if v is None else f'{v:.4g}'}" for n, v in (peers | dict(line.others)).items())
    wall, cpu = f"{line.wall_s:.3f}", f"{line.cpu_s:.3f}"
    return ROW.format(line.name, f"{line.value:.4g}", line.unit, bar, ratio, cpu, wall, line.runs, said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], discover()))
