"""The kinds of records from which rules of the solver may decide, beside branches, releases, toolkits and architectures.

Why it exists: one class a kind, so that a rule asks for `KernelFailure` and not for a dictionary. A class is also its own schema
(`forms`): field names are the keys of the file. It answers no question (`query_*` do) and reads nothing.
"""

from collections.abc import Mapping
from enum import StrEnum

from muster.knowledge.schema import Provenance
from muster.knowledge.words import Branch, DriverRange, Id, Pci, Release
from muster.model.frozen import dataclass
from muster.model.versions.driver import DriverVersion


class Component(StrEnum):
    """A part of a node's stack beside the kernel module."""

    FABRIC_MANAGER = "fabric-manager"
    NVLSM = "nvlsm"
    IMEX = "imex"
    GSP_FIRMWARE = "gsp-firmware"
    USER_LIBRARIES = "user-libraries"
    OPEN_MODULES = "open-modules"
    MEMORY_MODE = "memory-mode"


class Tie(StrEnum):
    """How a component's version hangs on the driver's.

    exact: the same full version; own: a number of its own, but it must be there; branch: one per driver branch; none: it is no version.
    """

    EXACT = "exact"
    OWN = "own"
    BRANCH = "branch"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ComponentRule:
    """What a component asks of a stack. `from_branch` None: on every branch; `packages` and `modules` are what it needs installed."""

    id: Id
    component: Component
    tie: Tie
    says: str
    provenance: Provenance
    from_branch: Branch | None = None
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


class Need(StrEnum):
    """Whether a system of this kind needs a component: on every board of the kind, or only where its NVSwitch is present."""

    ALWAYS = "always"
    WITH_SWITCH = "with-switch"


@dataclass(frozen=True, slots=True)
class GpuSystem:
    """A kind of machine in which GPUs hang on NVSwitches, and which components it needs.

    A product's name alone does not tell the board: `need` WITH_SWITCH means that the same GPU is also sold on boards without one, so
    that only the node can say (`switch_pci` among its devices, or the fabric state of nvidia-smi).
    """

    id: Id
    families: tuple[str, ...]
    boards: str
    need: Need
    components: tuple[Component, ...]
    provenance: Provenance
    switch: str | None = None
    generation: int | None = None
    switch_pci: Pci | None = None
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Transition:
    """A package that a distribution turned into one that pulls another: an upgrade moves the branch without being asked."""

    package: str
    release: str
    version: str
    provenance: Provenance
    pulls: str | None = None
    depends: str | None = None


class Base(StrEnum):
    """What a forward-compatibility package is to a base driver branch; `expected-*` stands in no table and was inferred."""

    COMPATIBLE = "compatible"
    NOT_NEEDED = "not_needed"
    NOT_COMPATIBLE = "not_compatible"
    EXPECTED_COMPATIBLE = "expected_compatible"
    EXPECTED_NOT_NEEDED = "expected_not_needed"


@dataclass(frozen=True, slots=True)
class CompatPackage:
    """A forward-compatibility package (`cuda-compat-13-3`) and the base drivers it may be used on, by branch."""

    package: Id
    toolkit: str
    built_from_branch: Branch
    base_driver: Mapping[str, Base]
    provenance: Provenance
    known_library_versions: tuple[DriverVersion, ...] = ()


class Allowed(StrEnum):
    """Whether forward compatibility works on a class of GPUs: yes, no, or on selected ones only."""

    YES = "yes"
    NO = "no"
    SELECTED = "selected"


@dataclass(frozen=True, slots=True)
class GpuClass:
    """A class of GPUs as forward compatibility divides them; `names` are words of product names by which one is told."""

    id: Id
    allowed: Allowed
    says: str
    names: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class CompatFloor:
    """The branch with which a CUDA major begins without forward compatibility."""

    package_major: int
    feature_table_base: Branch
    provenance: Provenance


class Flavor(StrEnum):
    """A flavour of the kernel modules, as records write it."""

    OPEN = "open"
    PROPRIETARY = "proprietary"


@dataclass(frozen=True, slots=True)
class KernelFailure:
    """Driver builds whose module does not build on a kernel.

    `kernel` is an upstream series (`6.19`), or, with `exact`, one kernel release as `uname -r` begins. `drivers` are the builds that are
    known to fail; those between them and `fixed_in` are unknown, which is not good. `flavour` None: both.
    """

    id: Id
    kernel: Release
    drivers: DriverRange
    fails_with: str
    fixed_words: str
    provenance: Provenance
    fixed_in: tuple[DriverVersion, ...] = ()
    flavour: Flavor | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True)
class KernelCeiling:
    """The highest upstream kernel series on which builds of a branch were seen to build. A report, not a statement of support.

    `drivers` are the builds for which it holds; `below` is the first series that is known not to work.
    """

    branch: Branch
    builds_up_to: str
    provenance: Provenance
    kernel: Release | None = None
    drivers: DriverRange | None = None
    below: Release | None = None


class Severity(StrEnum):
    """How bad an issue is, by the collector's judgement."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class When(StrEnum):
    """Whether an issue strikes wherever driver and GPU fit, or only under its `condition`, which Muster cannot always see."""

    ALWAYS = "always"
    CONDITION = "condition"


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """A change of branch, from one to another."""

    from_branch: Branch
    to_branch: Branch


@dataclass(frozen=True, slots=True)
class KnownIssue:
    """A fault somebody met: with which drivers, GPUs and kernels, what happens, and what helps.

    `drivers` None: not bound to driver versions (see `other`). `reported` are builds users named where no range is known; `gpus` are
    families or architectures, () for any; `fixed_in` holds versions or release labels, () where none was named.
    """

    id: Id
    component: str
    severity: Severity
    when: When
    condition: str
    symptom: str
    provenance: Provenance
    drivers: DriverRange | None = None
    reported: tuple[DriverVersion, ...] = ()
    upgrade: UpgradeStep | None = None
    gpus: tuple[str, ...] = ()
    flavour: Flavor | None = None
    cuda: str | None = None
    cublas: str | None = None
    other: str | None = None
    fixed_in: tuple[str, ...] = ()
    resolution: str | None = None
    workaround: str | None = None


class Subject(StrEnum):
    """What a refusal is about."""

    FORWARD_COMPAT = "forward-compat"
    PROPRIETARY_MODULES = "proprietary-modules"
    XID = "xid"
    CONFIDENTIAL = "confidential-computing"
    FIRMWARE = "firmware"
    KERNEL_BUILD = "kernel-build"
    IMAGE_ADMISSION = "image-admission"
    MINIMUM_DRIVER = "minimum-driver"
    MIG = "mig"
    SECURITY = "security"
    IN_PLACE = "in-place-upgrade"
    RUBIN = "rubin"


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that must not be decided from these records, and whom or what to ask instead.

    The other fields say what it is about, so that a rule compares values and not sentences.
    """

    id: Id
    subject: Subject
    refuses: str
    ask: str
    provenance: Provenance
    packages: tuple[str, ...] = ()
    bases: tuple[Branch, ...] = ()
    from_branch: Branch | None = None
    to_branch: Branch | None = None
    architectures: tuple[str, ...] = ()
    xid_from: int | None = None


@dataclass(frozen=True, slots=True)
class PackageRename:
    """Names of packages that change with a branch: `old` with `{branch}` for its number, `new` None where the package ends."""

    id: Id
    repository: Id
    distributions: tuple[Id, ...]
    from_branch: Branch
    old: str
    provenance: Provenance
    new: str | None = None
