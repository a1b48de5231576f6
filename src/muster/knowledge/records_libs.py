"""The kinds of records about what stands on top of the driver: Xids, bulletins, DCGM, container toolkit, NCCL, cuDNN.

No rule of the solver decides from them yet; health, environments and people read them. Like `records`, each class is its schema.
"""

from enum import StrEnum

from muster.knowledge.schema import Provenance
from muster.knowledge.words import Branch, Capability, Day, Id
from muster.model.frozen import dataclass
from muster.model.versions.driver import DriverVersion


class XidAction(StrEnum):
    """What an Xid calls for, by NVIDIA's catalogue; WORKFLOW: decode or correlate first, a fixed action would be wrong."""

    IGNORE = "ignore"
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    RMA_INSPECT = "rma_inspect"
    UPDATE_SOFTWARE = "update_software"
    WORKFLOW = "workflow"
    CONTACT_SUPPORT = "contact_support"


class XidSeverity(StrEnum):
    """What an Xid costs: nothing, a job, the GPU until it is recovered, the node until it restarts."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class Xid:
    """One error code of the driver. Its sources are `origin: verdict`; `XidOrigin` says what the origins are."""

    xid: int
    name: str
    action: XidAction
    severity: XidSeverity
    summary: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class XidOrigin:
    """Where a verdict about Xids was read."""

    id: Id
    says: str
    provenance: Provenance


class CveSeverity(StrEnum):
    """How bad a vulnerability is, as published."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Cve:
    """One vulnerability of a bulletin: its CVSS base score (0 to 10, as text), and whether it is on Linux and only with vGPU."""

    id: str
    score: str
    severity: CveSeverity
    linux: bool | None = None
    vgpu_only: bool = False
    cwe: str | None = None


@dataclass(frozen=True, slots=True)
class FixedDriver:
    """The build from which on a branch is patched; all lower builds of the branch are affected."""

    branch: Branch
    product: str
    fixed: DriverVersion


@dataclass(frozen=True, slots=True)
class FixedWindows:
    """The Windows build from which on a branch is patched."""

    branch: Branch
    product: str
    fixed: str
    notes: str | None = None


@dataclass(frozen=True, slots=True)
class Bulletin:
    """A security bulletin about the driver."""

    bulletin: int
    title: str
    published: Day
    provenance: Provenance
    updated: Day | None = None
    linux_fixed: tuple[FixedDriver, ...] = ()
    windows_fixed: tuple[FixedWindows, ...] = ()
    cves: tuple[Cve, ...] = ()


@dataclass(frozen=True, slots=True)
class RelatedFix:
    """What a related bulletin names as fixed: `fixed_id` literally, `fixed` as it was parsed from it."""

    platform: str
    product: str
    fixed_id: str
    fixed: str | None = None


@dataclass(frozen=True, slots=True)
class RelatedBulletin:
    """A security bulletin about firmware, toolkits, DCGM or networking. Nothing counts as patched by it (limit `patched-related`)."""

    bulletin: int
    title: str
    published: Day
    provenance: Provenance
    updated: Day | None = None
    fixed: tuple[RelatedFix, ...] = ()
    cves: tuple[Cve, ...] = ()


@dataclass(frozen=True, slots=True)
class DcgmRelease:
    """A DCGM release, the exporter that goes with it, and the oldest driver (a branch or a build)."""

    dcgm: str
    min_driver: str
    provenance: Provenance
    nvswitch_min_driver: str | None = None
    exporter: str | None = None
    tag_date: Day | None = None
    says: str | None = None


@dataclass(frozen=True, slots=True)
class ContainerToolkit:
    """A release of the NVIDIA Container Toolkit and what it changes for a driver's upgrade."""

    version: str
    tag_date: Day
    provenance: Provenance
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolkitPlatform:
    """A platform on which the container toolkit is supported."""

    os: str
    arch: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class NcclRelease:
    """An NCCL release; `wheels` are the CUDA majors with a wheel on PyPI (`cu12`)."""

    nccl: str
    provenance: Provenance
    tag: str | None = None
    tag_date: Day | None = None
    wheels: tuple[str, ...] = ()
    says: str | None = None


@dataclass(frozen=True, slots=True)
class NcclTargets:
    """What NCCL's makefile makes code for, by CUDA releases."""

    cuda: str
    targets: tuple[str, ...]
    nccl: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class NcclDriverBug:
    """A fault of NCCL's with some drivers, as somebody reported it."""

    id: Id
    driver: str
    issue: str
    provenance: Provenance
    workaround: str | None = None


@dataclass(frozen=True, slots=True)
class CudnnSupport:
    """A row of a cuDNN support matrix. `compute_capabilities` () where the matrix gives only the lowest."""

    id: Id
    cudnn: str
    package: str
    cuda_versions: tuple[str, ...]
    min_driver_linux: str
    provenance: Provenance
    compute_capabilities: tuple[str, ...] = ()
    min_compute_capability: Capability | None = None
    static_linking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CudnnWheel:
    """A cuDNN release and the CUDA majors that have a wheel of it on PyPI."""

    cudnn: str
    wheels: tuple[str, ...]
    provenance: Provenance
