"""Knowledge files to records: strict, with all faults of a file at once.

Why it exists: the files are edited by many hands, and a record with a misspelt key must not be half read. Keys that no
code uses yet are named here as well, so that the difference between "not used" and "misspelt" is kept. Pure: `loader`
opens the files.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from muster.documents import Document, Fields, Node, Reader, Scalar, Sequence
from muster.knowledge.forms import PROVENANCE, Taking, day
from muster.knowledge.schema import (
    Architecture,
    BranchKind,
    Channel,
    Confidence,
    Confidential,
    ConfidentialMode,
    CudaToolkit,
    Designation,
    DriverBranch,
    DriverRelease,
    Family,
    ModuleException,
    ModuleRequirement,
    OpenModules,
    PackageMember,
    PackageNeed,
    PackageRole,
    PackageSet,
    Product,
    ProductMinimum,
    Provenance,
)
from muster.knowledge.shelves import parts_of, refuse_second
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion

K = TypeVar("K")
T = TypeVar("T")

_CONFIDENCES: Final = {each.value: each for each in Confidence}
_NO_DRIVER: Final = DriverVersion("0.0")
_NO_CUDA: Final = CudaVersion("0.0")
_FLAVOURS: Final = {"open": "open", "proprietary": "proprietary"}
_BRANCH = re.compile(r"R([1-9][0-9]{2,3})", re.ASCII)
_DAY = re.compile(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", re.ASCII)
_MONTH = re.compile(r"20[0-9]{2}-[01][0-9]", re.ASCII)
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}", re.ASCII)
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]", re.ASCII)
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*(?:\{branch\}[a-z0-9.+-]*)?", re.ASCII)
_REVISION = re.compile(r"-[0-9][A-Za-z0-9.+~]*", re.ASCII)


class Records:
    """The reader of one file: its day, and its lists of records."""

    def __init__(self, document: Document, *lists: str) -> None:
        self.reader = Reader(document)
        known = ("as_of", *lists, *parts_of(document.name))
        self.top = self.reader.fields(document.root, document.name, known, required=("as_of",))
        self._taking = Taking(self.reader, self.top.value("as_of", day, ""))

    def each(self, key: str, known: tuple[str, ...], required: tuple[str, ...]) -> Iterator[Fields]:
        """The checked records of one list; each may also carry the keys of provenance and must have a source.

        The first required key names a record; the same name twice is a fault.
        """
        node = self.top.node_of(key)
        lines: dict[str, int] = {}
        for fields in self.each_of(node, key, known, required):
            named = fields.node_of(required[0])
            if isinstance(named, Scalar) and named.text:
                refuse_second(self.reader, fields.node, key, named.text, lines)
            yield fields

    def each_of(
        self, node: Node | None, what: str, known: tuple[str, ...], required: tuple[str, ...], source: str = "source"
    ) -> Iterator[Fields]:
        """Like `each`, for a list inside a record; `source` empty where the outer record's provenance holds."""
        for item in () if node is None else self.reader.items(node, what):
            needed = (*required, source) if source else required
            yield self.reader.fields(item, f"{what} record", (*known, *PROVENANCE), needed)

    def provenance(self, fields: Fields, outer: Provenance | None = None) -> Provenance:
        """Where a record comes from; what it does not say itself, it has from `outer`, and the day from the file."""
        return self._taking.provenance(fields, outer)


def optional(fields: Fields, key: str, convert: Callable[[str], T]) -> T | None:
    """The value under `key`, None where it is absent or null: not found by the collector."""
    if fields.is_null(key):
        return None

    def lifted(text: str) -> T | None:
        return convert(text)

    return fields.value(key, lifted, None)


def matched(pattern: re.Pattern[str], kind: str) -> Callable[[str], str]:
    """A converter that keeps a text of the form `pattern` and raises ValueError for any other."""

    def convert(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"{text!r} is no {kind}")
        return text

    return convert


_day = matched(_DAY, "day (YYYY-MM-DD)")
_month = matched(_MONTH, "month (YYYY-MM)")
_branch = matched(_BRANCH, "driver branch")


def branch_number(name: str) -> int:
    """580 of `R580`; raises ValueError."""
    return int(_branch(name)[1:])


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text, re.ASCII):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def read_branches(document: Document) -> tuple[DriverBranch, ...]:
    """The driver branches, oldest first; raises DocumentFaults."""
    records = Records(document, "branches")
    known = ("branch", "designation", "first_build", "first_build_date", "first_datacenter_release",
             "first_datacenter_release_date", "latest_datacenter_release", "latest_datacenter_release_date",
             "end_of_life", "max_cuda_major_without_forward_compat", "native_cuda", "architectures_dropped",
             "last_branch_for", "native_cuda_confidence")  # fmt: skip
    required = ("branch", "designation", "max_cuda_major_without_forward_compat", "native_cuda")
    found = [
        DriverBranch(
            name=fields.value("branch", _branch, "R000"),
            number=fields.value("branch", branch_number, 0),
            kind=_kind(_designations(records, fields)),
            first_datacenter_release=optional(fields, "first_datacenter_release", DriverVersion.parse),
            latest_datacenter_release=optional(fields, "latest_datacenter_release", DriverVersion.parse),
            end_of_life=optional(fields, "end_of_life", _month),
            max_cuda_major_without_forward_compat=fields.value("max_cuda_major_without_forward_compat", _whole, 0),
            native_cuda=fields.value("native_cuda", CudaVersion.parse, _NO_CUDA),
            native_cuda_confidence=fields.choice("native_cuda_confidence", _CONFIDENCES, Confidence.STATED),
            architectures_dropped=fields.texts("architectures_dropped"),
            last_branch_for=fields.texts("last_branch_for"),
            provenance=records.provenance(fields),
            designations=_designations(records, fields),
            first_build=optional(fields, "first_build", DriverVersion.parse),
            first_build_date=optional(fields, "first_build_date", _day),
            first_datacenter_release_date=optional(fields, "first_datacenter_release_date", _day),
            latest_datacenter_release_date=optional(fields, "latest_datacenter_release_date", _day),
        )
        for fields in records.each("branches", known, required)
    ]
    records.reader.finish()
    return tuple(sorted(found, key=lambda branch: branch.number))


def text_or_none(fields: Fields, key: str) -> str | None:
    """The text under `key`, None where it is absent or null."""
    return None if fields.is_null(key) else fields.text(key)


def _designations(records: Records, fields: Fields) -> tuple[Designation, ...]:
    kinds = {kind.value: kind for kind in BranchKind}
    outer = records.provenance(fields)
    return tuple(
        Designation(
            each.choice("name", kinds, BranchKind.DEVELOPER),
            optional(each, "until", _month),
            records.provenance(each, outer),
        )
        for each in records.each_of(
            fields.node_of("designation"), "designation", ("name", "until"), ("name",), source=""
        )
    )


def _kind(designations: Iterable[Designation]) -> BranchKind:
    """Today's designation: the one without an end."""
    today = [each.name for each in designations if each.until is None]
    return today[-1] if today else BranchKind.DEVELOPER


def read_releases(document: Document) -> tuple[DriverRelease, ...]:
    """The Linux driver builds, lowest version first; raises DocumentFaults."""
    records = Records(document, "linux_releases")
    known = ("version", "branch", "channel", "release_date", "release_notes", "arches", "windows_version")
    channels = {channel.value: channel for channel in Channel}
    found = [
        DriverRelease(
            version=fields.value("version", DriverVersion.parse, _NO_DRIVER),
            branch=fields.value("branch", _branch, "R000"),
            channel=fields.choice("channel", channels, Channel.UNIX),
            released=optional(fields, "release_date", _day),
            architectures=fields.texts("arches") if "arches" in fields else None,
            release_notes=text_or_none(fields, "release_notes"),
            provenance=records.provenance(fields),
            windows_version=text_or_none(fields, "windows_version"),
        )
        for fields in records.each("linux_releases", known, ("version", "branch", "channel"))
    ]
    records.reader.finish()
    return tuple(sorted(found, key=lambda release: release.version))


def read_toolkits(document: Document) -> tuple[CudaToolkit, ...]:
    """The CUDA toolkits, lowest version first; raises DocumentFaults."""
    records = Records(document, "toolkits", "legacy_toolkits")
    known = ("version", "label", "release_month", "release_date", "driver_branch", "bundled_driver_linux_x86_64",
             "bundled_driver_windows", "driver_bundled", "min_driver_minor_version_compat", "cudart",
             "compute_capabilities")  # fmt: skip
    found = [_toolkit(records, fields) for fields in records.each("toolkits", known, ("version", "label"))]
    legacy = ("version", "bundled_driver_linux_x86_64", "bundled_driver_windows")
    found += [_legacy_toolkit(records, fields) for fields in records.each("legacy_toolkits", legacy, ("version",))]
    records.reader.finish()
    return tuple(sorted(found, key=lambda toolkit: toolkit.version))


def _toolkit(records: Records, fields: Fields) -> CudaToolkit:
    capability = matched(_CAPABILITY, "compute capability")
    return CudaToolkit(
        version=fields.value("version", CudaVersion.parse, _NO_CUDA),
        label=fields.text("label"),
        month=optional(fields, "release_month", _month),
        branch=optional(fields, "driver_branch", _branch),
        bundled_driver=optional(fields, "bundled_driver_linux_x86_64", DriverVersion.parse),
        cudart=text_or_none(fields, "cudart"),
        compute_capabilities=_each_text(records, fields, "compute_capabilities", capability),
        provenance=records.provenance(fields),
        released=optional(fields, "release_date", _day),
        bundled_driver_windows=text_or_none(fields, "bundled_driver_windows"),
        **_bundling(records, fields),
        **_floor(records, fields),
    )


def _legacy_toolkit(records: Records, fields: Fields) -> CudaToolkit:
    """Before CUDA 11 there is no minor-version compatibility: the floor is the driver the toolkit came with."""
    driver = optional(fields, "bundled_driver_linux_x86_64", DriverVersion.parse)
    version = fields.value("version", CudaVersion.parse, _NO_CUDA)
    windows = text_or_none(fields, "bundled_driver_windows")
    provenance = records.provenance(fields)
    return CudaToolkit(
        version, str(version), None, None, driver, driver, None, (), provenance, bundled_driver_windows=windows
    )


def _floor(records: Records, fields: Fields) -> dict[str, Any]:
    """The oldest driver for programs of the toolkit's major."""
    floor = fields.node_of("min_driver_minor_version_compat")
    what = "toolkits record: min_driver_minor_version_compat"
    if floor is None:
        return {"minimum_driver": None}
    own = records.reader.fields(floor, what, ("branch", "linux", "windows"))
    return {
        "minimum_driver": optional(own, "linux", DriverVersion.parse),
        "minimum_branch": text_or_none(own, "branch"),
        "minimum_driver_windows": text_or_none(own, "windows"),
    }


def _bundling(records: Records, fields: Fields) -> dict[str, Any]:
    """Whether the toolkit's installer brings a driver, in the collector's words."""
    node = fields.node_of("driver_bundled")
    if node is None:
        return {}
    own = records.reader.fields(node, "toolkits record: driver_bundled", ("linux", "windows"))
    return {"driver_bundled": text_or_none(own, "linux"), "driver_bundled_windows": text_or_none(own, "windows")}


def _each_text(records: Records, fields: Fields, key: str, convert: Callable[[str], str]) -> tuple[str, ...]:
    node = fields.node_of(key)
    if not isinstance(node, Sequence):
        return ()
    return tuple(records.reader.value(item, f"{fields.what}: {key}", convert, "") for item in node.items)


def read_architectures(document: Document) -> tuple[tuple[Architecture, ...], tuple[str, Provenance] | None]:
    """The architectures, oldest first as in the file, and from which branch on only open modules exist, where the file says it."""
    records = Records(document, "architectures", "open_module_required_from")
    known = ("architecture", "chips", "compute_capabilities", "first_cuda_toolkit", "last_cuda_toolkit",
             "first_driver_branch", "first_driver_branch_confidence", "first_driver_branch_text", "last_driver_branch",
             "open_kernel_modules", "memory_error_handling", "fabric_manager", "confidential_computing",
             "minimum_driver_by_product", "families", "products")  # fmt: skip
    required = ("architecture", "compute_capabilities", "last_driver_branch", "open_kernel_modules", "products")
    found = tuple(_architecture(records, fields) for fields in records.each("architectures", known, required))
    rule = records.top.node_of("open_module_required_from")
    open_only = None
    if rule is not None:
        fields = records.reader.fields(rule, "open_module_required_from", ("branch", *PROVENANCE), ("branch", "source"))
        open_only = (fields.value("branch", _branch, "R000"), records.provenance(fields))
    records.reader.finish()
    return found, open_only


def _architecture(records: Records, fields: Fields) -> Architecture:
    provenance = records.provenance(fields)
    capability = matched(_CAPABILITY, "compute capability")
    return Architecture(
        name=fields.text("architecture"),
        compute_capabilities=_each_text(records, fields, "compute_capabilities", capability),
        first_branch=optional(fields, "first_driver_branch", _branch),
        first_branch_confidence=fields.choice("first_driver_branch_confidence", _CONFIDENCES, provenance.confidence),
        last_branch=fields.value("last_driver_branch", _last_branch, None),
        open_modules=_open_modules(records, fields, provenance),
        families=tuple(_families(records, fields, provenance)),
        products=tuple(_products(records, fields)),
        provenance=provenance,
        chips=fields.texts("chips"),
        first_toolkit=text_or_none(fields, "first_cuda_toolkit"),
        last_toolkit=text_or_none(fields, "last_cuda_toolkit"),
        first_branch_text=text_or_none(fields, "first_driver_branch_text"),
        memory_error_handling=text_or_none(fields, "memory_error_handling"),
        fabric_manager=text_or_none(fields, "fabric_manager"),
        confidential=_confidential(records, fields, provenance),
        minimum_drivers=tuple(
            ProductMinimum(
                each.text("product"), each.text("driver"), text_or_none(each, "context"), records.provenance(each)
            )
            for each in records.each_of(
                fields.node_of("minimum_driver_by_product"),
                "minimum_driver_by_product",
                ("product", "driver", "context"),
                ("product", "driver"),
            )
        ),
    )


def _confidential(records: Records, fields: Fields, outer: Provenance) -> Confidential | None:
    node = fields.node_of("confidential_computing")
    if node is None:
        return None
    known = ("supported", "multi_gpu", "multi_gpu_mode", "minimum_driver", "driver_by_mode", *PROVENANCE)
    own = records.reader.fields(node, "confidential_computing", known, ("supported",))
    provenance = records.provenance(own, outer)
    modes = tuple(
        ConfidentialMode(
            each.text("mode"),
            text_or_none(each, "first_release_driver"),
            text_or_none(each, "early_access_driver"),
            records.provenance(each, provenance),
        )
        for each in records.each_of(
            own.node_of("driver_by_mode"),
            "driver_by_mode",
            ("mode", "first_release_driver", "early_access_driver"),
            ("mode",),
            source="",
        )
    )
    several = text_or_none(own, "multi_gpu_mode") or text_or_none(own, "multi_gpu")
    return Confidential(own.texts("supported"), several, text_or_none(own, "minimum_driver"), modes, provenance)


def _last_branch(text: str) -> str | None:
    return None if text == "ongoing" else _branch(text)


def _open_modules(records: Records, fields: Fields, outer: Provenance) -> OpenModules:
    requirements = {requirement.value: requirement for requirement in ModuleRequirement}
    node = fields.node_of("open_kernel_modules")
    if node is None:
        return OpenModules(ModuleRequirement.UNSUPPORTED, None, None, (), outer)
    known = ("requirement", "from_branch", "required_from_branch", "exceptions", *PROVENANCE)
    rule = records.reader.fields(node, "open_kernel_modules", known, ("requirement",))
    provenance = records.provenance(rule, outer)
    exceptions = records.each_of(
        rule.node_of("exceptions"), "exceptions", ("product", "requirement"), ("product", "requirement")
    )
    return OpenModules(
        requirement=rule.choice("requirement", requirements, ModuleRequirement.UNSUPPORTED),
        from_branch=optional(rule, "from_branch", _branch),
        required_from_branch=optional(rule, "required_from_branch", _branch),
        exceptions=tuple(
            ModuleException(
                each.text("product"),
                each.choice("requirement", requirements, ModuleRequirement.REQUIRED),
                records.provenance(each, provenance),
            )
            for each in exceptions
        ),
        provenance=provenance,
    )


def _families(records: Records, fields: Fields, outer: Provenance) -> Iterator[Family]:
    for each in records.each_of(fields.node_of("families"), "families", ("names",), ("names",), source=""):
        provenance = records.provenance(each, outer)
        for family in each.texts("names"):
            yield Family(family, provenance)


def _products(records: Records, fields: Fields) -> Iterator[Product]:
    known = ("pci_device", "pci_subsystems", "name", "mig", "nvswitch", "first_listed_open_module")
    for each in records.each_of(fields.node_of("products"), "products", known, ("name", "pci_device")):
        yield Product(
            name=each.text("name"),
            pci_device=each.value("pci_device", matched(_PCI, "PCI id"), ""),
            mig=None if each.is_null("mig") else each.choice("mig", {"true": True, "false": False}, default=False),
            nvswitch=text_or_none(each, "nvswitch"),
            provenance=records.provenance(each),
            pci_subsystems=_each_text(records, each, "pci_subsystems", matched(_PCI, "PCI id")),
            first_listed_open_module=text_or_none(each, "first_listed_open_module"),
        )


def read_package_sets(document: Document) -> tuple[PackageSet, ...]:
    """The package sets in the order of the file; raises DocumentFaults."""
    records = Records(document, "package_sets")
    required = ("id", "repository", "distributions", "architecture", "first_branch", "last_branch", "flavour",
                "revision", "members")  # fmt: skip
    found = tuple(
        PackageSet(
            id=fields.text("id"),
            repository=fields.text("repository"),
            distributions=fields.texts("distributions"),
            architecture=fields.text("architecture"),
            first_branch=fields.value("first_branch", branch_number, 0),
            last_branch=fields.value("last_branch", branch_number, 0),
            flavour=fields.choice("flavour", _FLAVOURS, "open"),
            members=tuple(_members(records, fields)),
            provenance=records.provenance(fields),
            stream=fields.text("stream") or None,
        )
        for fields in records.each("package_sets", (*required, "stream"), required)
    )
    records.reader.finish()
    return found


def _members(records: Records, fields: Fields) -> Iterator[PackageMember]:
    roles: Mapping[str, PackageRole] = {role.value: role for role in PackageRole}
    needs: Mapping[str, PackageNeed] = {need.value: need for need in PackageNeed}
    revision = fields.value("revision", matched(_REVISION, "revision"), "")
    known = ("role", "need", "names", "revision")
    for each in records.each_of(fields.node_of("members"), "members", known, ("role", "need", "names"), source=""):
        role = each.choice("role", roles, PackageRole.TOOLS)
        need = each.choice("need", needs, PackageNeed.ALWAYS)
        own = each.value("revision", matched(_REVISION, "revision"), revision)
        for package in _each_text(records, each, "names", matched(_PACKAGE, "package name")):
            yield PackageMember(package, role, need, own)
