"""What node/validate.py finds: on GPUs that are well, and on GPUs that are wrong in one way each. On stand-ins; see tests/standins."""

import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.gpus import PROGRAM, Exercised, compiled, exercise

ALL = {"devices", "matmul", "memory", "copies", "peers", "allreduce", "end"}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("standins"))


@pytest.fixture(scope="module")
def clean(libraries: Path) -> Exercised:
    return exercise(libraries)


def failed(found: Exercised) -> Mapping[str, str]:
    """The tests that did not pass, but for the line that sums up."""
    return {test: word for test, word in found.verdicts().items() if word not in ("pass", "skip") and test != "end"}


def test_gpus_that_are_well_pass_every_test(clean: Exercised) -> None:
    assert (clean.status, clean.verdicts()) == (0, dict.fromkeys(ALL, "pass"))


def test_every_test_tells_what_it_measured_on_each_gpu(clean: Exercised) -> None:
    figures = {name: value for line in clean.lines.values() for name, value in line.get("figures", {}).items()}
    assert [gpu["uuid"][-2:] for gpu in figures["gpus"]] == ["00", "01"]
    assert figures["gpus"][0] | {"uuid": ""} == {"name": "Stand-in GPU", "uuid": "", "cc": "9.0", "free_mib": 32}
    rates = {
        "matmul_tflops": 20,
        "memory_gbps": 2000,
        "h2d_gbps": 25,
        "d2h_gbps": 20,
        "d2d_gbps": 2000,
        "peer_gbps": 300,
    }
    for name, rate in rates.items():  # as the stand-in makes its time up
        assert figures[name] == pytest.approx([rate, rate], rel=0.01), name
    assert figures["allreduce_gbps"] == pytest.approx([400], rel=0.01)
    assert figures["memory_mib"] == [28, 28]
    assert figures["memory_patterns"] == [6, 6]


def test_what_eight_gpus_tell_fits_the_tail_that_an_answer_carries(libraries: Path) -> None:
    found = exercise(libraries, "", "--tests", "matmul,copies,peers", STANDIN_GPUS="8")
    assert found.status == 0
    assert len(found.output) < 6000


@pytest.mark.parametrize(
    ("code", "word"), [(802, "nvidia-fabricmanager"), (803, "do not belong"), (999, "unknown error")]
)
def test_a_driver_that_does_not_initialize_fails_with_the_meaning_of_its_code(
    libraries: Path, code: int, word: str
) -> None:
    found = exercise(libraries, f"init:{code}")
    assert (found.status, found.verdicts()) == (1, {"devices": "fail", "end": "fail"})
    assert f"cuInit returns {code}" in found.why("devices")
    assert word in found.why("devices")


def test_a_system_that_becomes_ready_is_waited_for(libraries: Path) -> None:
    found = exercise(libraries, "late:802:1", "--tests", "devices", "--ready-wait-s", "600")
    assert (found.status, found.verdicts()["devices"]) == (0, "pass")


def test_no_library_of_the_drivers_is_unknown_not_well(tmp_path: Path) -> None:
    found = exercise(tmp_path)
    if shutil.which("nvidia-smi") and found.status == 0:
        pytest.skip("needs a machine without GPUs")
    assert (found.status, found.verdicts()) == (5, {"devices": "unknown", "end": "unknown"})
    assert "libcuda.so.1" in found.why("devices")


@pytest.mark.parametrize(
    ("fault", "tests", "words"),
    [
        ("bit-flip", ("matmul",), "GPU 1: the first product, row 5: 1 of 64 numbers are wrong, number 17 is "),
        ("nan", ("matmul",), "number 3 is nan"),
        ("stuck-bit", ("memory",), "GPU 1: memory, pattern 1: 1 of 1887232 words are wrong, the first at byte 280000, bits 0x00000080"),
        ("copy", ("copies",), "GPU 1: what went to the GPU, across it and back came back changed"),
        ("peer-copy", ("peers",), "GPU 0: copy to GPU 1: 1 of 262144 words are wrong, the first at byte 308"),
        ("missing-rank", ("allreduce",), "sum on rank 0: 261884 of 262144 numbers are wrong, number 1 is 1.0, should be 3.0"),
        ("sum-nan", ("allreduce",), "sum on rank 1: 1 of 262144 numbers are wrong, number 131072 is nan"),
        ("fail:ncclGroupEnd:3", ("allreduce",), "ncclGroupEnd returns 3"),
        ("fail:cuMemcpyDtoDAsync_v2:214", ("copies",), "uncorrectable ECC error"),
        ("die:cuMemcpyPeerAsync", ("peers",), "GPU 1: ends with -6 without a result; it was copying to GPU 0"),
    ],
)  # fmt: skip
def test_a_wrong_result_fails_its_test_and_no_other(
    libraries: Path, fault: str, tests: tuple[str, ...], words: str
) -> None:
    device = "-1" if fault.startswith("fail:nccl") else "1"
    found = exercise(libraries, fault, STANDIN_FAULT_GPU=device)
    assert (found.status, failed(found)) == (1, dict.fromkeys(tests, "fail"))
    assert words in found.why(tests[0])


def test_a_figure_from_a_wrong_result_does_not_count(libraries: Path) -> None:
    found = exercise(libraries, "bit-flip", "--tests", "matmul")
    assert found.lines["matmul"]["figures"]["matmul_tflops"] == [pytest.approx(20), None]


def test_a_wrong_byte_on_the_way_back_to_the_host_fails_the_copies(libraries: Path) -> None:
    found = exercise(libraries, "host-copy", "--tests", "copies")
    assert found.verdicts()["copies"] == "fail"


def test_kernels_that_do_not_run_are_no_pass(libraries: Path) -> None:
    found = exercise(libraries, "no-kernel")
    assert found.status == 1
    assert {test for test, word in failed(found).items() if word == "fail"} == {"matmul", "memory", "copies", "peers"}
    assert "the GPU read 0 of 1887232 words" in found.why("memory")


def test_a_rate_without_time_is_a_failure_not_infinity_nor_zero(libraries: Path) -> None:
    found = exercise(libraries, "no-time", "--tests", "matmul,copies")
    assert failed(found) == {"matmul": "fail", "copies": "fail"}
    assert "measures 0.0 ms" in found.why("matmul")


def test_a_slow_gpu_tells_its_slow_figures(libraries: Path) -> None:
    # Whether that is too slow is for those to say who know the others.
    found = exercise(libraries, "slow")
    assert found.lines["matmul"]["figures"]["matmul_tflops"] == pytest.approx([20, 14], rel=0.01)
    assert found.lines["copies"]["figures"]["h2d_gbps"] == pytest.approx([25, 17.5], rel=0.01)
    assert found.lines["allreduce"]["figures"]["allreduce_gbps"] == pytest.approx([280], rel=0.01)


def test_one_gpu_less_is_seen_in_the_count(libraries: Path) -> None:
    found = exercise(libraries, "fewer")
    assert len(found.lines["devices"]["figures"]["gpus"]) == 1
    assert {found.verdicts()[test] for test in ("peers", "allreduce")} == {"skip"}


def test_a_gpu_whose_memory_is_taken_is_unknown_not_well(libraries: Path) -> None:
    found = exercise(libraries, "full")
    assert found.status == 5
    assert found.verdicts()["memory"] == "unknown"
    assert found.why("memory") == "GPU 1: only 0 of 28 MiB could be had"


def test_a_driver_without_its_compiler_is_unknown_and_says_which_file_lacks(libraries: Path) -> None:
    found = exercise(libraries, "fail:cuModuleLoadData:221", "--tests", "matmul")
    assert (found.status, found.verdicts()["matmul"]) == (5, "unknown")
    assert "libnvidia-ptxjitcompiler" in found.why("matmul")


@pytest.mark.parametrize(
    ("call", "device", "test", "doing"),
    [
        ("cuInit", "0", "devices", "starting"),
        ("cuDevicePrimaryCtxRetain", "1", "devices", "opening GPU 1"),
        ("cuLaunchKernel", "1", "matmul", "starting"),
        ("cuMemcpyPeerAsync", "1", "peers", "copying to GPU 0"),
        ("ncclGroupEnd", "-1", "allreduce", "all-reduce over 2 GPUs"),
    ],
)
def test_a_call_that_never_returns_is_a_finding_and_holds_nobody_up(
    libraries: Path, call: str, device: str, test: str, doing: str
) -> None:
    began = time.monotonic()
    options = ("--tests", "devices" if test == "devices" else test, "--deadline-s", "15")
    found = exercise(libraries, f"hang:{call}", *options, STANDIN_FAULT_GPU=device)
    assert time.monotonic() - began < 500
    assert (found.status, found.verdicts()[test]) == (1, "fail")
    assert "hangs" in found.why(test)
    assert f"it was {doing}" in found.why(test)


def test_a_gpu_that_hung_is_not_asked_again(libraries: Path) -> None:
    found = exercise(libraries, "hang:cuLaunchKernel", "--deadline-s", "15")
    assert found.verdicts()["matmul"] == "fail"
    assert {found.verdicts()[test] for test in ("memory", "copies", "peers", "allreduce")} == {"unknown"}
    assert found.why("memory") == "GPU 1: not tried: GPU 1 hangs"
    assert found.lines["memory"]["figures"]["memory_mib"] == [28, None]


def test_what_does_not_begin_in_time_is_unknown(libraries: Path) -> None:
    found = exercise(libraries, "", "--limit-s", "0")
    assert (found.status, found.verdicts()) == (5, {"devices": "unknown", "end": "unknown"})


def test_no_process_outlives_the_program(libraries: Path, tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    exercise(libraries, "hang:cuInit", "--deadline-s", "2", STANDIN_FAULT_GPU="0", MUSTER_TEST_MARK=mark)
    left = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (place / "environ").read_bytes(), (place / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in environment and b"validate.py" in command:
            left.append(place.name)
    assert left == []


def test_a_libnccl_that_was_named_and_is_not_there_is_unknown(libraries: Path, tmp_path: Path) -> None:
    found = exercise(libraries, "", "--tests", "allreduce", "--nccl", str(tmp_path / "libnccl.so.2"))
    assert (found.status, found.verdicts()["allreduce"]) == (5, "unknown")


def test_without_any_libnccl_the_sum_is_left_out(tmp_path: Path) -> None:
    libraries = compiled(tmp_path)
    (libraries / "libnccl.so.2").unlink()
    found = exercise(libraries, "", "--tests", "allreduce")
    if found.verdicts()["allreduce"] == "pass":
        pytest.skip("needs a machine without libnccl")
    assert (found.status, found.verdicts()["allreduce"]) == (0, "skip")


def test_a_test_that_does_not_exist_is_a_fault_of_usage() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--tests", "matmull"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no test matmull" in done.stderr


PYTHONS = [path for minor in range(6, 11) if (path := shutil.which(f"python3.{minor}"))]


def old_pythons() -> list[str]:
    """Interpreters older than ours: on PATH, and those that MUSTER_PYTHONS names, with colons between."""
    named = [path for path in os.environ.get("MUSTER_PYTHONS", "").split(":") if path]
    tried = [
        path
        for path in named + PYTHONS
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
    ]
    return list(dict.fromkeys(tried))


def test_it_runs_on_every_older_python_of_this_machine(libraries: Path) -> None:
    pythons = old_pythons()
    if not pythons:
        pytest.skip("needs a Python of 3.6 to 3.10 (on PATH, or named by MUSTER_PYTHONS)")
    for python in pythons:
        assert exercise(libraries, python=python).status == 0, python


# What came after 3.6, as far as the grammar shows it: names of modules and functions by when they came.
NEWER = {
    "capture_output", "dataclass", "dataclasses", "removeprefix", "removesuffix", "walrus", "Literal", "Final", "Protocol",
    "TypedDict", "cached_property", "asyncio", "zoneinfo", "fromisoformat", "math.prod", "annotations", "graphlib", "tomllib", "pairwise",
    "batched", "unparse", "TypeAlias", "ParamSpec", "monotonic_ns", "perf_counter_ns", "breakpoint", "aiter", "anext", "bit_count",
}  # fmt: skip


def test_it_speaks_the_python_of_3_6() -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    tree = ast.parse(
        text, feature_version=(3, 6)
    )  # no walrus, no positional-only parameters, no f-string `=`, no match
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg}
    names |= {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
    }
    assert names & NEWER == set()
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert imported <= set(sys.stdlib_module_names)
