"""The harness measures what it is given and prints what it measured; no test here is about time."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable

import pytest

from bench.__main__ import main
from bench.harness import RUNS_SHORT, Benchmark, CommandFailedError, Peer, Sample, discover, measure, run_command

PROMISED = {"name", "value", "unit", "peer", "peer_value", "ratio", "runs", "machine"}


def counter(*values: float) -> Callable[[], Sample]:
    """A sampler that returns these values, then the last one again and again."""
    steps = itertools.chain(values, itertools.repeat(values[-1]))
    return lambda: Sample(value=next(steps), wall_s=2.0, cpu_s=1.0)


def dummy(name: str = "dummy", peer: Peer | None = None) -> Benchmark:
    return Benchmark(name=name, about="a stand-in", unit="s", sample=counter(99, 1, 2, 3, 4, 5, 6, 7), peer=peer, bar=9)


def test_a_figure_is_the_median_without_the_first_run() -> None:
    line = measure(dummy(), "here")
    assert (line.value, line.runs, line.wall_s, line.cpu_s) == (4, RUNS_SHORT, 2.0, 1.0)


def test_the_ratio_is_ours_over_the_peers() -> None:
    line = measure(dummy(peer=Peer("half", counter(2))), "here")
    assert (line.peer, line.peer_value, line.ratio) == ("half", 2, 2.0)


def test_a_peer_that_is_not_here_leaves_its_value_unknown() -> None:
    line = measure(dummy(peer=Peer("absent", None)), "here")
    assert (line.peer, line.peer_value, line.ratio) == ("absent", None, None)


def test_ours_and_the_peer_are_sampled_in_turns() -> None:
    seen: list[str] = []

    def noting(name: str) -> Callable[[], Sample]:
        return lambda: seen.append(name) or Sample(1, 1, 1)

    measure(Benchmark("b", "", "s", noting("ours"), Peer("p", noting("peer")), runs=2), "here")
    assert seen == ["ours", "peer"] * 3


def test_json_prints_one_object_a_line_with_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"], {"a": dummy("a"), "b": dummy("b")}) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == ["a", "b"]
    assert all(line.keys() >= PROMISED for line in lines)


def test_the_table_names_the_machine_and_the_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a"], {"a": dummy("a"), "b": dummy("b")}) == 0
    out = capsys.readouterr().out
    assert "Python" in out.splitlines()[0]
    assert out.splitlines()[-1].startswith("a ")


def test_an_unknown_name_is_refused_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help-cpo"], {"help-cpu": dummy()}) == 2
    assert "help-cpu" in capsys.readouterr().err


def test_a_command_that_fails_gives_no_figure(capsys: pytest.CaptureFixture[str]) -> None:
    argv = (sys.executable, "-c", "raise SystemExit(3)")
    with pytest.raises(CommandFailedError, match="exit 3"):
        run_command(argv)
    assert main(["a"], {"a": Benchmark("a", "", "s", lambda: run_command(argv))}) == 1
    assert "could not be measured" in capsys.readouterr().err


def test_every_benchmark_in_the_tree_is_found_by_its_name() -> None:
    found = discover()
    assert "help-cpu" in found
    assert all(benchmark.runs >= 1 and benchmark.about for benchmark in found.values())
