"""The kinds of records beside those that rules ask for: of the same files, read by people, checks and documentation.

They stand apart from `records` because a command that asks a rule should not pay for their classes. Like there, each class is its schema.
"""

from collections.abc import Mapping

from muster.knowledge.schema import Provenance
from muster.knowledge.words import Branch, Day, Id, Pci, Release
from muster.model.frozen import dataclass
from muster.model.versions.driver import DriverVersion


@dataclass(frozen=True, slots=True)
class Fact:
    """Something worth knowing that no rule is made of yet, in one or two sentences."""

    id: Id
    says: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class CompatHistory:
    """Base drivers that earlier editions of the table had: branches that are out of support since."""

    package_family: Id
    base_driver: Mapping[str, str]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A CUDA error that tells of a mismatch between driver and libraries."""

    code: int
    name: str
    meaning: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class GuideSupport:
    """The distributions an edition of NVIDIA's driver installation guide names."""

    driver_guide: str
    distributions: tuple[str, ...]
    provenance: Provenance
    branch: Branch | None = None


@dataclass(frozen=True, slots=True)
class ValidatedKernel:
    """A kernel that NVIDIA names as validated for a CUDA release."""

    os: str
    arch: str
    kernel: Release
    cuda: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Doubt:
    """A part of the records that is weak, heaviest first by `weight`."""

    id: Id
    weight: int
    says: str
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Locking:
    """How a distribution's packages are kept on one branch: pinning packages, module streams, or version locks."""

    id: Id
    repository: Id
    distributions: tuple[str, ...]
    method: str
    says: str
    provenance: Provenance
    package: str | None = None
    stream: str | None = None
    seen: Day | None = None


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How long NVIDIA supports a kind of branch; `support_months` None where no number is stated."""

    designation: str
    name: str
    provenance: Provenance
    cadence: str | None = None
    support: str | None = None
    support_months: int | None = None


@dataclass(frozen=True, slots=True)
class Feed:
    """A file of NVIDIA's from which newer knowledge can be read by machine, and its shape in words."""

    id: Id
    url: str
    says: str
    provenance: Provenance
    components: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowsRelease:
    """A Windows driver build: recognised, never proposed."""

    version: str
    branch: Branch
    provenance: Provenance
    release_date: Day | None = None


@dataclass(frozen=True, slots=True)
class MinorVersions:
    """The branches whose drivers run programs of a whole CUDA major.

    `upper_bound_in_table` marks where drivers belong to the next major; newer ones still run the programs, by backward compatibility.
    """

    toolkit_major: int
    min_branch: Branch
    provenance: Provenance
    min_linux: DriverVersion | None = None
    min_windows: str | None = None
    upper_bound_in_table: Branch | None = None


@dataclass(frozen=True, slots=True)
class CompilerSupport:
    """The host compilers a CUDA release supports."""

    cuda: str
    provenance: Provenance
    host_gcc: str | None = None
    host_clang_max: str | None = None


@dataclass(frozen=True, slots=True)
class DroppedCapabilities:
    """What the compiler of a CUDA major makes no code for any more."""

    cuda_major: int
    removed_compute_capabilities: tuple[str, ...]
    architectures: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class MigDriver:
    """The oldest driver with MIG on a GPU."""

    gpu: str
    driver: DriverVersion
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class SwitchDevice:
    """An NVSwitch as a PCI device; None where it is none."""

    id: Id
    name: str
    provenance: Provenance
    pci_device: Pci | None = None
