"""What the knowledge base holds, as values: each record says where it comes from and how far it can be trusted.

Why it exists: solver and planner decide over other people's machines from these records, so a record without source,
date and confidence must not exist. It reads nothing (`reading` makes the values, `loader` opens the files) and answers
no question (`query` does).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from muster.model.frozen import dataclass
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion

R = TypeVar("R")


class Confidence(StrEnum):
    """How far a record can be trusted.

    stated: read where NVIDIA says it; third-party: read where others say it; derived: computed from other records;
    memory: nobody found it written; conflicting: sources disagree. What is `memory` may warn, and never silently
    admits or refuses.
    """

    STATED = "stated"
    THIRD_PARTY = "third-party"
    DERIVED = "derived"
    MEMORY = "memory"
    CONFLICTING = "conflicting"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a record comes from. `as_of` is the day (YYYY-MM-DD) on which it was read.

    `confidence_note` keeps the word the collector used where it is not the same; `via` says where a source was read if
    not at its own place; `notes` is what the collector remarked.
    """

    sources: tuple[str, ...]
    as_of: str
    confidence: Confidence
    confidence_note: str | None = None
    via: str | None = None
    notes: str | None = None

    @property
    def can_decide(self) -> bool:
        """Whether what rests on this record alone may admit or refuse; else it may warn, and a person decides (ADR 0005)."""
        return self.confidence not in (Confidence.MEMORY, Confidence.CONFLICTING)


class Channel(StrEnum):
    """What a driver build was published as.

    Only `datacenter` and `new_feature` are releases for fleets; the others let an inventory recognise what it finds.
    """

    DATACENTER = "datacenter"
    NEW_FEATURE = "new_feature"
    DEVELOPER = "developer"
    UNIX = "unix"
    BETA = "beta"
    VULKAN_BETA = "vulkan_beta"


class BranchKind(StrEnum):
    """NVIDIA's designation of a branch: new feature, production, long-term support; or one made for developers."""

    NEW_FEATURE = "NFB"
    PRODUCTION = "PB"
    LONG_TERM_SUPPORT = "LTSB"
    DEVELOPER = "evaluation/developer"


@dataclass(frozen=True, slots=True)
class DriverRelease:
    """One Linux driver build. `released` is a day or None; `architectures` (`x86_64`, ...) None where not narrowed."""

    version: DriverVersion
    branch: str
    channel: Channel
    released: str | None
    architectures: tuple[str, ...] | None
    release_notes: str | None
    provenance: Provenance
    windows_version: str | None = None


@dataclass(frozen=True, slots=True)
class Designation:
    """What a branch was called, and until which month (YYYY-MM); None for what it is called today."""

    name: BranchKind
    until: str | None
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class DriverBranch:
    """One driver branch, such as `R580`.

    `kind` is today's designation. `end_of_life` is a month (YYYY-MM); None was not found, which is not "never".
    `native_cuda` is the newest CUDA that runs on it without any compatibility means; programs of all CUDA releases with
    a major up to `max_cuda_major_without_forward_compat` run by minor-version or backward compatibility.
    """

    name: str
    number: int
    kind: BranchKind
    first_datacenter_release: DriverVersion | None
    latest_datacenter_release: DriverVersion | None
    end_of_life: str | None
    max_cuda_major_without_forward_compat: int
    native_cuda: CudaVersion
    native_cuda_confidence: Confidence
    architectures_dropped: tuple[str, ...]
    last_branch_for: tuple[str, ...]
    provenance: Provenance
    designations: tuple[Designation, ...] = ()
    first_build: DriverVersion | None = None
    first_build_date: str | None = None
    first_datacenter_release_date: str | None = None
    latest_datacenter_release_date: str | None = None


@dataclass(frozen=True, slots=True)
class CudaToolkit:
    """One CUDA toolkit release.

    `bundled_driver` is what its installer brings on Linux x86-64; `minimum_driver` the oldest Linux driver on which
    programs of its major run at all (before CUDA 11: the driver it was built with); `compute_capabilities` what its
    compiler makes code for, () where not recorded.
    """

    version: CudaVersion
    label: str
    month: str | None
    branch: str | None
    bundled_driver: DriverVersion | None
    minimum_driver: DriverVersion | None
    cudart: str | None
    compute_capabilities: tuple[str, ...]
    provenance: Provenance
    released: str | None = None
    minimum_branch: str | None = None
    driver_bundled: str | None = None
    bundled_driver_windows: str | None = None
    driver_bundled_windows: str | None = None
    minimum_driver_windows: str | None = None


class ModuleRequirement(StrEnum):
    """What an architecture asks of the kernel modules' flavour: open ones impossible, possible, or the only ones."""

    UNSUPPORTED = "unsupported"
    SUPPORTED = "supported"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ModuleException:
    """A product that asks for more than its architecture does."""

    product: str
    requirement: ModuleRequirement
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class OpenModules:
    """When open kernel modules can, and when they must be used: from these branches on, None being all branches."""

    requirement: ModuleRequirement
    from_branch: str | None
    required_from_branch: str | None
    exceptions: tuple[ModuleException, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Product:
    """One GPU product. `mig` None means that no evidence was found. `nvswitch` says which switch its boards carry."""

    name: str
    pci_device: str
    mig: bool | None
    nvswitch: str | None
    provenance: Provenance
    pci_subsystems: tuple[str, ...] = ()
    first_listed_open_module: str | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """A short name people and policies use for products, such as `H100`; it is part of each product's full name."""

    name: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class ProductMinimum:
    """The oldest driver or branch somebody names for a product, in which context (an operator's container, say)."""

    product: str
    driver: str
    context: str | None
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class ConfidentialMode:
    """A mode of confidential computing and the drivers NVIDIA paired with it; a higher number is not by itself supported."""

    mode: str
    first_release_driver: str | None
    early_access_driver: str | None
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Confidential:
    """Confidential computing on an architecture. Nothing may be decided from it (limit `confidential-computing`)."""

    supported: tuple[str, ...]
    multi_gpu: str | None
    minimum_driver: str | None
    modes: tuple[ConfidentialMode, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Architecture:
    """One GPU architecture. Branches outside `first_branch`..`last_branch` do not drive it.

    `first_branch` None was not found; `last_branch` None means that support goes on.
    """

    name: str
    compute_capabilities: tuple[str, ...]
    first_branch: str | None
    first_branch_confidence: Confidence
    last_branch: str | None
    open_modules: OpenModules
    families: tuple[Family, ...]
    products: tuple[Product, ...]
    provenance: Provenance
    chips: tuple[str, ...] = ()
    first_toolkit: str | None = None
    last_toolkit: str | None = None
    first_branch_text: str | None = None
    memory_error_handling: str | None = None
    fabric_manager: str | None = None
    confidential: Confidential | None = None
    minimum_drivers: tuple[ProductMinimum, ...] = ()


class PackageRole(StrEnum):
    """What a package brings to the stack."""

    MODULE = "module"
    FIRMWARE = "firmware"
    LIBRARY = "library"
    TOOLS = "tools"
    PERSISTENCE = "persistence"
    FABRIC_MANAGER = "fabric-manager"
    META = "meta"
    PINNING = "pinning"


class PackageNeed(StrEnum):
    """When a package belongs to a node's stack.

    always: on every node; nvswitch: where GPUs hang on an NVSwitch; if-installed: only where it is installed already,
    but then it must move with the others.
    """

    ALWAYS = "always"
    NVSWITCH = "nvswitch"
    IF_INSTALLED = "if-installed"


@dataclass(frozen=True, slots=True)
class PackageMember:
    """One package of a set. `{branch}` in the name is the branch's number.

    `revision` is what usually follows the driver version in the package's version; a repository may hold others.
    """

    name: str
    role: PackageRole
    need: PackageNeed
    revision: str

    def name_for(self, branch_number: int) -> str:
        """The package's name for a branch."""
        return self.name.replace("{branch}", str(branch_number))


@dataclass(frozen=True, slots=True)
class PackageSet:
    """The packages that carry a driver of branches `first_branch`..`last_branch` (numbers, both included).

    `repository` is `nvidia-cuda`, `ubuntu`, `ubuntu-server`, `debian` or `amazon`; `distributions` are as in NVIDIA's repository paths
    (`debian12`); `architecture` is the package manager's (`amd64`, `x86_64`).
    """

    id: str
    repository: str
    distributions: tuple[str, ...]
    architecture: str
    first_branch: int
    last_branch: int
    flavour: str
    members: tuple[PackageMember, ...]
    provenance: Provenance
    stream: str | None = None

    def stream_for(self, branch_number: int) -> str | None:
        """The dnf module stream that carries a branch; None where the repository has no streams."""
        return None if self.stream is None else self.stream.replace("{branch}", str(branch_number))


Shelf = Callable[[type[Any]], Mapping[str, Any]]
"""Gives the records of one class, by key, when it is handed that class: so that a command imports and makes only what it asks for."""


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """All records of one revision. Mappings are in ascending order of their keys' versions.

    `revision` is the SHA-256 over the canonical content of the files: solutions, plans and reports cite it.
    `open_only_from` is the statement that newer branches have no proprietary modules at all. `more` holds the records of
    all other classes (`catalog` names them) by the name of the class; ask for them with `of`.
    """

    revision: str
    branches: Mapping[str, DriverBranch]
    releases: Mapping[DriverVersion, DriverRelease]
    toolkits: Mapping[CudaVersion, CudaToolkit]
    architectures: Mapping[str, Architecture]
    open_only_from: tuple[str, Provenance]
    package_sets: Sequence[PackageSet]
    more: Mapping[str, Shelf] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, record: type[R]) -> Mapping[str, R]:
        """All records of a class of `more`, by their keys, in the order of their file; empty where there are none."""
        shelf = self.more.get(record.__name__)
        return MappingProxyType({}) if shelf is None else shelf(record)
