"""The kinds of records about environments and hosts: frameworks, wheels, images, GPU Operator, firmware, image requirements.

No rule of the solver decides from them yet; environments, plans of firmware and people read them. Like `records`, each class is its schema.
"""

from collections.abc import Mapping

from muster.knowledge.schema import Provenance
from muster.knowledge.words import Branch, Capability, Day, Id
from muster.model.frozen import dataclass
from muster.model.versions.driver import DriverVersion


@dataclass(frozen=True, slots=True)
class FrameworkWheel:
    """A framework's wheel on PyPI: what it pins (as in its metadata), and the oldest driver that follows from it."""

    framework: str
    version: str
    variant: str
    provenance: Provenance
    wheel: str | None = None
    cuda_pin: str | None = None
    cuda_major: int | None = None
    cudnn_pin: str | None = None
    nccl_pin: str | None = None
    triton_pin: str | None = None
    torch_pin: str | None = None
    cutlass_dsl: str | None = None
    requires_python: str | None = None
    min_driver: str | None = None
    min_driver_basis: str | None = None


@dataclass(frozen=True, slots=True)
class FrameworkCode:
    """The compute capabilities a build of a framework holds code for; () where only words were found."""

    framework: str
    build: str
    provenance: Provenance
    arch_list: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    min_compute_capability: Capability | None = None
    min_driver: str | None = None
    built_with: str | None = None


@dataclass(frozen=True, slots=True)
class FrameworkHistory:
    """Something that changed for a framework with a version, or held for some."""

    id: Id
    framework: str
    versions: str
    says: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class PypiPackage:
    """A distribution on PyPI that holds a CUDA library, with its versions, newest first."""

    distribution: str
    versions_on_pypi: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class ToolkitComponents:
    """The versions of the component wheels of one toolkit release, by component."""

    cuda_toolkit: str
    components: Mapping[str, str]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Cudart:
    """The version of the runtime library in a CUDA release."""

    cuda_version: str
    cudart: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class WheelCheck:
    """What a real wheel showed, by what was looked at."""

    wheel: str
    result: Mapping[str, str]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Identification:
    """Where to look, in order, for the versions of CUDA libraries in a kind of environment."""

    id: Id
    where: str
    first: str
    provenance: Provenance
    then: str | None = None
    caution: str | None = None
    tested: str | None = None


@dataclass(frozen=True, slots=True)
class FieldSource:
    """Where some fields of an image tag come from, other than the page of the tag."""

    fields: tuple[str, ...]
    provenance: Provenance
    basis: str | None = None


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """Another value that somebody prints for a field."""

    field: str
    value: str
    stated_by: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class NgcTag:
    """What the images of one NGC release (`25.08`) have in common.

    `min_driver_branch_stated` and `datacenter_exceptions_min` are what release notes print, and admit no image (limit
    `image-stated-minimum`); `paired_driver` came with the toolkit and is no minimum.
    """

    tag: str
    cuda: str
    provenance: Provenance
    min_driver_branch_stated: str | None = None
    datacenter_exceptions_min: tuple[str, ...] = ()
    not_forward_compatible: tuple[str, ...] = ()
    min_compute_capability_stated: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    nccl_series: str | None = None
    tensorrt: str | None = None
    ubuntu: str | None = None
    python: str | None = None
    paired_driver: str | None = None
    image_arch_list: Mapping[str, tuple[str, ...]] | None = None
    stated_by: str | None = None
    cuda_stated_by: str | None = None
    cuda_source: str | None = None
    library_sources: tuple[FieldSource, ...] = ()
    conflicts: tuple[FieldConflict, ...] = ()


@dataclass(frozen=True, slots=True)
class NgcImage:
    """What one image of an NGC release holds beside what its tag says."""

    id: Id
    image: str
    tag: str
    provenance: Provenance
    variant: str | None = None
    framework_version: str | None = None
    torch: str | None = None
    tensorrt: str | None = None
    tensorrt_llm: str | None = None
    vllm: str | None = None
    cuda: str | None = None
    ubuntu: str | None = None
    python: str | None = None
    paired_driver: str | None = None
    torch_cuda_arch_list: str | None = None
    torch_cuda_arch_list_arm64: str | None = None
    basis: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorRelease:
    """A GPU Operator release with the defaults of its Helm chart."""

    operator: str
    tag_date: Day
    default_driver: DriverVersion
    components: Mapping[str, str]
    provenance: Provenance
    kernel_module_type_default: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorDrivers:
    """The drivers a GPU Operator release's documentation lists, and which of them it marks."""

    operator: str
    drivers: tuple[DriverVersion, ...]
    provenance: Provenance
    default: DriverVersion | None = None
    recommended: DriverVersion | None = None


@dataclass(frozen=True, slots=True)
class OperatorLife:
    """How a line of GPU Operator releases is supported."""

    operator: str
    status: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class OperatorPlatform:
    """Something a GPU Operator release asks of a platform."""

    id: Id
    subject: str
    provenance: Provenance
    os: str | None = None
    kernels: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = ()
    min_driver: DriverVersion | None = None
    min_driver_branch: Branch | None = None
    min_kubernetes: str | None = None
    requires: str | None = None
    systems: tuple[str, ...] = ()
    kubernetes: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorIssue:
    """A fault of the GPU Operator."""

    id: Id
    operator: str
    issue: str
    provenance: Provenance
    workaround: str | None = None
    fixed_in: str | None = None


@dataclass(frozen=True, slots=True)
class FirmwareFamily:
    """A kind of firmware on a host: how it is read, updated and activated. No rule decides from it (limit `firmware`)."""

    id: Id
    family: str
    read: str
    update: str
    activation: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class FirmwareTool:
    """A version of a firmware tool and what it added."""

    tool: str
    version: str
    date: Day
    adds: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class FirmwareBundle:
    """A bundle of firmware for a platform, with the versions of its components as they are printed."""

    id: Id
    platform: str
    release: str
    provenance: Provenance
    os_min: str | None = None
    os: str | None = None
    driver: DriverVersion | None = None
    imex: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl_min: str | None = None
    mft: str | None = None
    doca_host: str | None = None
    update_method: str | None = None
    bundles: tuple[str, ...] = ()
    compute: Mapping[str, str] | None = None
    switch: Mapping[str, str] | None = None
    powershelf: Mapping[str, str] | None = None
    components_shown: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RequireProperty:
    """A property that NVIDIA_REQUIRE_* expressions can ask about."""

    name: str
    type: str
    meaning: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class RequireEvaluator:
    """A program that evaluates NVIDIA_REQUIRE_* expressions, and how it reads them."""

    id: Id
    where: str
    properties_case: str
    string_compare: str
    version_compare: str
    unknown_property: str
    provenance: Provenance
    empty_terms: str | None = None


@dataclass(frozen=True, slots=True)
class RequireCheck:
    """Whether a mode of the container runtime evaluates the expressions at all."""

    mode: str
    what: str
    checked: bool
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class BrandSet:
    """A set of GPU brands (as NVML names them, in lower case) that expressions repeat."""

    id: Id
    brands: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class BranchAlternative:
    """An older branch that an expression lets through for a set of brands: its number, and the set's id."""

    driver_branch: int
    brand_set: Id


@dataclass(frozen=True, slots=True)
class CudaRequirement:
    """The NVIDIA_REQUIRE_CUDA of nvidia/cuda base images, in compact form; `images` are operating systems by architecture."""

    id: Id
    cuda_version: str
    cuda_min: str
    images: Mapping[str, tuple[str, ...]]
    provenance: Provenance
    branch_alternatives: tuple[BranchAlternative, ...] = ()
    ungated_alternatives: tuple[str, ...] = ()
