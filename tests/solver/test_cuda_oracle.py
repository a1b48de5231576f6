"""The solver's arithmetic of CUDA versions against the real runtimes: libcudart 11, 12 and 13 over a libcuda that says any driver version.

What it is not: it says nothing of code that the driver must compile (PTX), nor of forward-compatibility libraries, which stand in the place of
libcuda itself.
"""

import platform
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.knowledge.loader import load
from muster.knowledge.query_cuda import Fit
from muster.model.versions.cuda import CudaVersion
from muster.solver.fits import driver_fit, runs, runtime_fit

ROOT = Path(__file__).parents[2]
WHEELS = ROOT / "requirements" / "cuda-runtimes.txt"
STANDINS = ROOT / "tests" / "standins"
INSUFFICIENT_DRIVER = 35
FETCH_LIMIT_S = 300
ASK_LIMIT_S = 60

RUNTIMES: Mapping[str, str] = {"11.8": "libcudart.so.11.0", "12.4": "libcudart.so.12", "13.5": "libcudart.so.13"}
DRIVER_CUDA = sorted(
    {branch.native_cuda.release for branch in load().branches.values()} | {"9.2", "10.2", "11.0", "12.0", "13.0", "13.9", "14.0"},
    key=lambda text: CudaVersion.parse(text).key,
)  # fmt: skip


@dataclass(frozen=True)
class Oracle:
    """The real runtimes and who asks them, in one folder."""

    folder: Path

    def error(self, runtime: str, driver_cuda: str, init: int = 0) -> int:
        """The error code by which a runtime answers over a driver of that CUDA version whose initialisation comes to `init`."""
        major, minor = driver_cuda.split(".")
        done = subprocess.run(
            [str(self.folder / "ask"), str(self.folder / RUNTIMES[runtime])],
            env={
                "LD_LIBRARY_PATH": str(self.folder),
                "MOCK_DRIVER_CUDA": str(int(major) * 1000 + int(minor) * 10),
                "MOCK_INIT": str(init),
            },
            capture_output=True,
            text=True,
            timeout=ASK_LIMIT_S,
            check=True,
        )
        return int(done.stdout)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    folder = tmp_path_factory.mktemp("oracle")
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    try:
        done = subprocess.run(
            [*fetch, "-r", str(WHEELS), "-d", str(folder)], capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False
        )  # fmt: skip
        why = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    except subprocess.TimeoutExpired:
        why = "no answer in time"
    if why:
        pytest.skip(f"lab: the CUDA runtimes cannot be had here: {why}")
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if Path(name).name in RUNTIMES.values():
                    (folder / Path(name).name).write_bytes(archive.read(name))
    for output, source, options in (("libcuda.so.1", "cuda_driver.c", ["-shared", "-fPIC"]), ("ask", "cuda_ask.c", [])):
        subprocess.run(
            ["cc", *options, "-o", str(folder / output), str(STANDINS / source), "-ldl"],
            check=True,
            timeout=ASK_LIMIT_S,
        )
    return Oracle(folder)


pytestmark = [
    pytest.mark.lab("cc"),
    pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="lab: no CUDA runtime for this machine"),
]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_real_runtime_answers_over_every_driver_as_the_solver_says(oracle: Oracle, runtime: str) -> None:
    refused = {driver: oracle.error(runtime, driver) == INSUFFICIENT_DRIVER for driver in DRIVER_CUDA}
    said = {
        driver: runtime_fit(CudaVersion.parse(runtime), CudaVersion.parse(driver)) is Fit.NO for driver in DRIVER_CUDA
    }
    assert refused == said
    assert set(refused.values()) == {True, False}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_real_runtime_answers_over_every_branch_as_its_record_says(oracle: Oracle, runtime: str) -> None:
    base = load()
    toolkit = [each for version, each in base.toolkits.items() if version.release == runtime][-1]
    for branch in base.branches.values():
        latest = branch.latest_datacenter_release
        if latest is not None:
            accepted = oracle.error(runtime, branch.native_cuda.release) != INSUFFICIENT_DRIVER
            assert accepted == runs(driver_fit(toolkit, latest, branch)), branch.name


@pytest.mark.parametrize("code", [100, 802, 803, 804, 999])
def test_what_the_driver_says_of_its_own_start_passes_through_every_runtime(oracle: Oracle, code: int) -> None:
    assert {oracle.error(runtime, "13.5", code) for runtime in RUNTIMES} == {code}
