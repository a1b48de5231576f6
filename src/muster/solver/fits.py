"""How a CUDA release fits a driver: the arithmetic behind the rules, and behind the oracle that compares it with the real runtimes. Pure.

It answers for programs that bring code for the GPU. PTX that the driver must compile needs the driver's own CUDA release or a newer driver;
no number here promises more.
"""

from muster.knowledge.query_cuda import Fit
from muster.knowledge.schema import CudaToolkit, DriverBranch
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion

MINOR_COMPATIBILITY_FROM = 11
"""Before CUDA 11 a program needed a driver at least as new as its own release.
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"""


def runtime_fit(runtime: CudaVersion, driver_cuda: CudaVersion) -> Fit:
    """What the CUDA runtime itself decides when it starts, from the CUDA version that the driver reports (`cuDriverGetVersion`).

    NO is its error 35, "driver version is insufficient for runtime version". The third number of either is not looked at.
    """
    if (driver_cuda.major, driver_cuda.minor) >= (runtime.major, runtime.minor):
        return Fit.NATIVE
    if runtime.major >= MINOR_COMPATIBILITY_FROM and driver_cuda.major == runtime.major:
        return Fit.MINOR_VERSION
    return Fit.NO


def driver_fit(toolkit: CudaToolkit, driver: DriverVersion, branch: DriverBranch | None) -> Fit:
    """How a toolkit release fits a driver of a branch of its own accord; UNKNOWN for a branch without record."""
    if branch is None:
        return Fit.UNKNOWN
    if toolkit.minimum_driver is not None and driver.plain < toolkit.minimum_driver:
        # Below the floor of its major a release runs only on the driver that it came with: CUDA 11.0 came with one.
        own = toolkit.bundled_driver is not None and driver.plain >= toolkit.bundled_driver
        return Fit.NATIVE if own else Fit.NO
    return runtime_fit(toolkit.version, branch.native_cuda)


def runs(fit: Fit) -> bool:
    """Whether a program of that fit runs. Unknown is not yes."""
    return fit in (Fit.NATIVE, Fit.MINOR_VERSION, Fit.FORWARD_COMPAT)
