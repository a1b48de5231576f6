"""How a CUDA release fits a driver: the one arithmetic behind rules, checks and the oracle. Pure.

It answers for programs that bring code for the GPU. PTX that the driver must compile needs the driver's own CUDA release or a newer driver;
no number here promises more.
"""

from enum import StrEnum

from muster.knowledge.schema import CudaToolkit, DriverBranch
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion

MINOR_COMPATIBILITY_FROM = 11
"""Before CUDA 11 a program needed a driver at least as new as its own release.
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"""


class Fit(StrEnum):
    """How a CUDA user space runs on a driver. `unknown` is not "yes"."""

    NATIVE = "native"
    MINOR = "minor-version"
    FORWARD = "forward-compat"
    NO = "no"
    UNKNOWN = "unknown"

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return self in (Fit.NATIVE, Fit.MINOR, Fit.FORWARD)


def runtime_fit(runtime: CudaVersion, driver_cuda: CudaVersion) -> Fit:
    """What the CUDA runtime itself decides when it starts, from the CUDA version that the driver reports (`cuDriverGetVersion`).

    NO is its error 35, "driver version is insufficient for runtime version". The third number of either is not looked at.
    """
    if (driver_cuda.major, driver_cuda.minor) >= (runtime.major, runtime.minor):
        return Fit.NATIVE
    if runtime.major >= MINOR_COMPATIBILITY_FROM and driver_cuda.major == runtime.major:
        return Fit.MINOR
    return Fit.NO


def driver_fit(toolkit: CudaToolkit, driver: DriverVersion, branch: DriverBranch | None) -> Fit:
    """How a toolkit release fits a driver of a branch; UNKNOWN for a branch without record."""
    if branch is None:
        return Fit.UNKNOWN
    if toolkit.minimum_driver is not None and driver.plain < toolkit.minimum_driver:
        # Below the floor of its major a release runs only on the driver that it came with: CUDA 11.0 came with one.
        own = toolkit.bundled_driver is not None and driver.plain >= toolkit.bundled_driver
        return Fit.NATIVE if own else Fit.NO
    return runtime_fit(toolkit.version, branch.native_cuda)
