"""Which kinds of records there are, in which file and under which key of it they stand, and what they are called by.

Why it exists: reading, the compiled form, `muster knowledge show|verify|import` and the documentation walk over this one table, so that a
new kind of record is a class, a line here and data.
"""

from collections.abc import Mapping
from typing import Any, Final

from muster.knowledge import records as r
from muster.knowledge import records_images as i
from muster.knowledge import records_libs as b
from muster.knowledge import records_more as m
from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of record. `name` is what people type; `part` the key of its list in `file`; `keys` are the fields that name a record."""

    name: str
    file: str
    part: str
    record: type
    keys: tuple[str, ...]
    about: str

    def key(self, record: Any) -> str:
        """What a record of this kind is called by: the values of its key fields, joined."""
        return "/".join(str(value) for value in (getattr(record, name) for name in self.keys) if value is not None)


_ID: Final = ("id",)

KINDS: Final = (
    Kind("lifecycle", "driver_branches.yaml", "lifecycle", m.Lifecycle, ("designation",), "how long kinds of branches are supported"),
    Kind("feed", "driver_branches.yaml", "feeds", m.Feed, _ID, "files of NVIDIA's with newer knowledge"),
    Kind("windows-release", "driver_releases.yaml", "windows_releases", m.WindowsRelease, ("version",), "Windows driver builds"),
    Kind("minor-version", "cuda_toolkits.yaml", "minor_version_compat", m.MinorVersions, ("toolkit_major",),
         "branches that run a whole CUDA major"),
    Kind("compiler", "cuda_toolkits.yaml", "compiler_support", m.CompilerSupport, ("cuda",), "host compilers of CUDA releases"),
    Kind("dropped", "cuda_toolkits.yaml", "dropped_architectures", m.DroppedCapabilities, ("cuda_major",),
         "compute capabilities that CUDA majors left behind"),
    Kind("mig-driver", "gpu_architectures.yaml", "mig_drivers", m.MigDriver, ("gpu",), "the oldest driver with MIG"),
    Kind("nvswitch", "gpu_architectures.yaml", "nvswitch_devices", m.SwitchDevice, _ID, "NVSwitches as devices"),
    Kind("component-rule", "fabric_manager.yaml", "component_rules", r.ComponentRule, _ID,
         "how the version of a part of the stack hangs on the driver's"),
    Kind("gpu-system", "fabric_manager.yaml", "systems", r.GpuSystem, _ID,
         "machines with NVSwitches, and the services they need"),
    Kind("transition", "fabric_manager.yaml", "transitions", r.Transition, ("package", "release"),
         "packages that pull another driver branch"),
    Kind("compat-package", "forward_compat.yaml", "packages", r.CompatPackage, ("package",),
         "forward-compatibility packages, and the drivers under them"),
    Kind("gpu-class", "forward_compat.yaml", "gpu_classes", r.GpuClass, _ID, "GPUs on which forward compatibility works"),
    Kind("compat-floor", "forward_compat.yaml", "floors", r.CompatFloor, ("package_major",),
         "branches with which a CUDA major begins"),
    Kind("compat-history", "forward_compat.yaml", "historical", m.CompatHistory, ("package_family",),
         "bases of earlier editions of the table"),
    Kind("error-code", "forward_compat.yaml", "error_codes", m.ErrorCode, ("code",),
         "CUDA errors that tell of a mismatch"),
    Kind("kernel-failure", "kernel_support.yaml", "build_failures", r.KernelFailure, _ID,
         "kernels on which a driver's module does not build"),
    Kind("kernel-ceiling", "kernel_support.yaml", "ceilings", r.KernelCeiling, ("branch",),
         "the newest kernel on which a branch was seen to build"),
    Kind("guide-support", "kernel_support.yaml", "guides", m.GuideSupport, ("branch",),
         "distributions that NVIDIA's installation guide names"),
    Kind("validated-kernel", "kernel_support.yaml", "validated_kernels", m.ValidatedKernel, ("os", "kernel"),
         "kernels that NVIDIA validated"),
    Kind("known-issue", "known_issues.yaml", "issues", r.KnownIssue, _ID, "faults of drivers: where, what happens, what helps"),
    Kind("package-rename", "package_sets.yaml", "renames", r.PackageRename, _ID, "names of packages that change with a branch"),
    Kind("locking", "package_sets.yaml", "locking", m.Locking, _ID, "how a distribution is kept on one branch"),
    Kind("xid", "xid.yaml", "xids", b.Xid, ("xid",), "error codes of the driver"),
    Kind("xid-origin", "xid.yaml", "origins", b.XidOrigin, _ID, "where verdicts about Xids were read"),
    Kind("bulletin", "security_bulletins.yaml", "driver_bulletins", b.Bulletin, ("bulletin",), "security bulletins of the driver"),
    Kind("related-bulletin", "security_bulletins.yaml", "related_bulletins", b.RelatedBulletin, ("bulletin",),
         "security bulletins of firmware, toolkits, networking"),
    Kind("dcgm", "dcgm.yaml", "releases", b.DcgmRelease, ("dcgm",), "DCGM releases and their oldest driver"),
    Kind("container-toolkit", "container_toolkit.yaml", "releases", b.ContainerToolkit, ("version",),
         "container toolkit releases and what they change"),
    Kind("container-platform", "container_toolkit.yaml", "platforms", b.ToolkitPlatform, ("os",),
         "platforms of the container toolkit"),
    Kind("nccl", "nccl.yaml", "releases", b.NcclRelease, ("nccl",), "NCCL releases"),
    Kind("nccl-targets", "nccl.yaml", "build_targets", b.NcclTargets, ("cuda",), "what NCCL makes code for"),
    Kind("nccl-driver-bug", "nccl.yaml", "driver_bugs", b.NcclDriverBug, _ID, "faults of NCCL with some drivers"),
    Kind("cudnn-support", "cudnn.yaml", "support_matrix", b.CudnnSupport, _ID, "rows of cuDNN support matrices"),
    Kind("cudnn", "cudnn.yaml", "wheels", b.CudnnWheel, ("cudnn",), "cuDNN releases on PyPI"),
    Kind("framework", "frameworks.yaml", "wheels", i.FrameworkWheel, ("framework", "version", "variant"),
         "wheels of frameworks and what they pin"),
    Kind("framework-code", "frameworks.yaml", "compute_capabilities", i.FrameworkCode, ("framework", "build"),
         "compute capabilities frameworks hold code for"),
    Kind("framework-history", "frameworks.yaml", "history", i.FrameworkHistory, _ID, "what changed for frameworks"),
    Kind("pypi", "wheel_libs.yaml", "packages", i.PypiPackage, ("distribution",), "CUDA libraries on PyPI"),
    Kind("toolkit-components", "wheel_libs.yaml", "cuda_toolkit_map", i.ToolkitComponents, ("cuda_toolkit",),
         "component wheels of a toolkit release"),
    Kind("cudart", "wheel_libs.yaml", "cudart_map", i.Cudart, ("cuda_version",), "the runtime of a CUDA release"),
    Kind("wheel-check", "wheel_libs.yaml", "checks", i.WheelCheck, ("wheel",), "what real wheels showed"),
    Kind("identification", "wheel_libs.yaml", "identification", i.Identification, _ID, "where an environment tells its libraries"),
    Kind("ngc-tag", "ngc_images.yaml", "tags", i.NgcTag, ("tag",), "what NGC images of a release have in common"),
    Kind("ngc-image", "ngc_images.yaml", "images", i.NgcImage, _ID, "single NGC images"),
    Kind("operator", "gpu_operator.yaml", "releases", i.OperatorRelease, ("operator",), "GPU Operator releases and their defaults"),
    Kind("operator-drivers", "gpu_operator.yaml", "driver_matrix", i.OperatorDrivers, ("operator",),
         "drivers a GPU Operator release lists"),
    Kind("operator-life", "gpu_operator.yaml", "life_cycle", i.OperatorLife, ("operator",), "support of GPU Operator lines"),
    Kind("operator-platform", "gpu_operator.yaml", "platforms", i.OperatorPlatform, _ID, "what the GPU Operator asks of platforms"),
    Kind("operator-issue", "gpu_operator.yaml", "issues", i.OperatorIssue, _ID, "faults of the GPU Operator"),
    Kind("firmware", "host_firmware.yaml", "families", i.FirmwareFamily, _ID, "firmware: how it is read, updated, activated"),
    Kind("firmware-tool", "host_firmware.yaml", "tools", i.FirmwareTool, ("tool", "version"), "versions of firmware tools"),
    Kind("firmware-bundle", "host_firmware.yaml", "bundles", i.FirmwareBundle, _ID, "bundles of firmware"),
    Kind("require-property", "nvidia_require_cuda.yaml", "properties", i.RequireProperty, ("name",),
         "properties of NVIDIA_REQUIRE_*"),
    Kind("require-evaluator", "nvidia_require_cuda.yaml", "evaluators", i.RequireEvaluator, _ID, "programs that evaluate it"),
    Kind("require-check", "nvidia_require_cuda.yaml", "who_checks", i.RequireCheck, ("mode",), "runtime modes that evaluate it"),
    Kind("brand-set", "nvidia_require_cuda.yaml", "brand_sets", i.BrandSet, _ID, "sets of GPU brands in it"),
    Kind("require-cuda", "nvidia_require_cuda.yaml", "records", i.CudaRequirement, _ID, "the expressions of nvidia/cuda images"),
    Kind("limit", "limits.yaml", "refusals", r.Limit, _ID, "what must not be decided from these records"),
    Kind("doubt", "limits.yaml", "doubts", m.Doubt, _ID, "what is weak in these records"),
)  # fmt: skip

FACTS: Final = (
    "cuda_toolkits.yaml", "driver_releases.yaml", "fabric_manager.yaml", "forward_compat.yaml", "gpu_architectures.yaml",
    "kernel_support.yaml", "container_toolkit.yaml", "cudnn.yaml", "dcgm.yaml", "frameworks.yaml", "gpu_operator.yaml",
    "host_firmware.yaml", "nccl.yaml", "ngc_images.yaml", "nvidia_require_cuda.yaml", "security_bulletins.yaml", "wheel_libs.yaml",
    "xid.yaml",
)  # fmt: skip
"""The files with a list `facts` of what no rule is made of yet. Their kind is `fact`, their key `<file without ending>:<id>`."""

BY_RECORD: Final[Mapping[type, Kind]] = {kind.record: kind for kind in KINDS}
