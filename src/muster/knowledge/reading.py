"""Knowledge files to records: strict, with all faults of a file at once.

Why it exists: the files are edited by many hands, and a record with a misspelt key must not be half read. Keys that no
code uses yet are named here as well, so that the difference between "not used" and "misspelt" is kept. Pure: `loader`
opens the files.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from muster.documents import Document, Fields, Node, Reader, Sequence, compose, plain
from muster.knowledge.catalog import KINDS
from muster.knowledge.schema import (
    Architecture,
    BranchKind,
    Channel,
    Confidence,
    CudaToolkit,
    DriverBranch,
    DriverRelease,
    Family,
    KnowledgeBase,
    ModuleException,
    ModuleRequirement,
    OpenModules,
    PackageMember,
    PackageNeed,
    PackageRole,
    PackageSet,
    Product,
    Provenance,
)
from muster.knowledge.shelves import read_shelves, together
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion

K = TypeVar("K")
T = TypeVar("T")

CORE: Final = (
    "cuda_toolkits.yaml",
    "driver_branches.yaml",
    "driver_releases.yaml",
    "gpu_architectures.yaml",
    "package_sets.yaml",
)
"""The files whose main lists are read here, because their records are put together from several keys."""

FILES: Final = tuple(sorted({*CORE, *(kind.file for kind in KINDS)}))

# The collector's words, by CONVENTIONS ("Knowledge confidence"); every other word is free text and counts as memory.
_CONFIDENCE: Final = {
    **{confidence.value: confidence for confidence in Confidence},
    "toolkit table": Confidence.STATED,
    "third_party": Confidence.THIRD_PARTY,
    "secondary": Confidence.THIRD_PARTY,
    "inferred": Confidence.DERIVED,
    "partly tested": Confidence.DERIVED,
}
_PROVENANCE: Final = ("source", "as_of", "confidence", "via", "notes")
_NO_DRIVER: Final = DriverVersion("0.0")
_NO_CUDA: Final = CudaVersion("0.0")
_FLAVOURS: Final = {"open": "open", "proprietary": "proprietary"}
_BRANCH = re.compile(r"R([1-9][0-9]{2,3})", re.ASCII)
_DAY = re.compile(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", re.ASCII)
_MONTH = re.compile(r"20[0-9]{2}-[01][0-9]", re.ASCII)
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}", re.ASCII)
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]", re.ASCII)
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]*(?:\{branch\}[a-z0-9.+-]*)?", re.ASCII)
_REVISION = re.compile(r"-[0-9][A-Za-z0-9.+~]*", re.ASCII)


def confidence_of(word: str | None) -> tuple[Confidence, str | None]:
    """The closed confidence for the collector's word, and that word where it says more; no word means stated."""
    if word is None:
        return Confidence.STATED, None
    if word.startswith("single"):
        return Confidence.THIRD_PARTY, word
    found = _CONFIDENCE.get(word, Confidence.MEMORY)
    return found, None if word == found.value else word


class Records:
    """The reader of one file: its day, and its lists of records."""

    def __init__(self, document: Document, lists: tuple[str, ...], carried: tuple[str, ...]) -> None:
        self.reader = Reader(document)
        self.top = self.reader.fields(
            document.root, document.name, ("as_of", *lists, *carried), required=("as_of", *lists)
        )
        self.as_of = self.top.value("as_of", _day, "")

    def each(self, key: str, known: tuple[str, ...], required: tuple[str, ...]) -> Iterator[Fields]:
        """The checked records of one list; each may also carry the keys of provenance and must have a source."""
        node = self.top.node_of(key)
        yield from self.each_of(node, key, known, required)

    def each_of(
        self, node: Node | None, what: str, known: tuple[str, ...], required: tuple[str, ...], source: str = "source"
    ) -> Iterator[Fields]:
        """Like `each`, for a list inside a record; `source` empty where the outer record's provenance holds."""
        for item in () if node is None else self.reader.items(node, what):
            needed = (*required, source) if source else required
            yield self.reader.fields(item, f"{what} record", (*known, *_PROVENANCE), needed)

    def provenance(self, fields: Fields, outer: Provenance | None = None) -> Provenance:
        """Where a record comes from; what it does not say itself, it has from `outer`, and the day from the file."""
        if outer is not None and not any(key in fields for key in ("source", "confidence", "as_of")):
            return outer
        word = None if fields.is_null("confidence") else fields.text("confidence")
        confidence, note = confidence_of(word)
        sources = fields.texts("source") or (() if outer is None else outer.sources)
        day = fields.value("as_of", _day, self.as_of)
        return Provenance(sources, day, confidence, note, None if "via" not in fields else fields.text("via"))


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


def read_base(texts: Mapping[str, str]) -> KnowledgeBase:
    """The base in these files (FILES, name -> text); raises DocumentFaults for the first file that has faults."""
    documents = {name: compose(texts[name], name) for name in FILES}
    architectures, open_only_from = read_architectures(documents["gpu_architectures.yaml"])
    return KnowledgeBase(
        revision=revision_of(documents),
        branches=_by(read_branches(documents["driver_branches.yaml"]), lambda branch: branch.name),
        releases=_by(read_releases(documents["driver_releases.yaml"]), lambda release: release.version),
        toolkits=_by(read_toolkits(documents["cuda_toolkits.yaml"]), lambda toolkit: toolkit.version),
        architectures=_by(architectures, lambda architecture: architecture.name),
        open_only_from=open_only_from,
        package_sets=read_package_sets(documents["package_sets.yaml"]),
        more=together(read_shelves(document) for name, document in documents.items() if name not in CORE),
    )


def revision_of(documents: Mapping[str, Document]) -> str:
    """SHA-256 over the canonical JSON of all files: the same whatever their comments, quotes and order of keys."""
    content = {name: plain(document.root) for name, document in documents.items()}
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _by(records: Iterable[T], key: Callable[[T], K]) -> Mapping[K, T]:
    return MappingProxyType({key(record): record for record in records})


def read_branches(document: Document) -> tuple[DriverBranch, ...]:
    """The driver branches, oldest first; raises DocumentFaults."""
    records = Records(document, ("branches",), ("lifecycle", "feeds"))
    known = ("branch", "designation", "first_build", "first_build_date", "first_datacenter_release",
             "first_datacenter_release_date", "latest_datacenter_release", "latest_datacenter_release_date",
             "end_of_life", "max_cuda_major_without_forward_compat", "native_cuda", "architectures_dropped",
             "last_branch_for", "native_cuda_confidence")  # fmt: skip
    required = ("branch", "designation", "max_cuda_major_without_forward_compat", "native_cuda")
    found = [
        DriverBranch(
            name=fields.value("branch", _branch, "R000"),
            number=fields.value("branch", branch_number, 0),
            kind=_kind(records, fields),
            first_datacenter_release=optional(fields, "first_datacenter_release", DriverVersion.parse),
            latest_datacenter_release=optional(fields, "latest_datacenter_release", DriverVersion.parse),
            end_of_life=optional(fields, "end_of_life", _month),
            max_cuda_major_without_forward_compat=fields.value("max_cuda_major_without_forward_compat", _whole, 0),
            native_cuda=fields.value("native_cuda", CudaVersion.parse, _NO_CUDA),
            native_cuda_confidence=confidence_of(_word(fields, "native_cuda_confidence"))[0],
            architectures_dropped=fields.texts("architectures_dropped"),
            last_branch_for=fields.texts("last_branch_for"),
            provenance=records.provenance(fields),
        )
        for fields in records.each("branches", known, required)
    ]
    records.reader.finish()
    return tuple(sorted(found, key=lambda branch: branch.number))


def _word(fields: Fields, key: str) -> str | None:
    return None if fields.is_null(key) else fields.text(key)


def _kind(records: Records, fields: Fields) -> BranchKind:
    """Today's designation: the one without an end."""
    kinds = {kind.value: kind for kind in BranchKind}
    found = BranchKind.DEVELOPER
    for each in records.each_of(fields.node_of("designation"), "designation", ("name", "until"), ("name",), source=""):
        kind = each.choice("name", kinds, BranchKind.DEVELOPER)
        found = found if "until" in each else kind
    return found


def read_releases(document: Document) -> tuple[DriverRelease, ...]:
    """The Linux driver builds, lowest version first; raises DocumentFaults."""
    records = Records(document, ("linux_releases",), ("data_snapshot", "windows_releases"))
    known = ("version", "branch", "os", "channel", "release_date", "release_notes", "arches", "windows_version")
    channels = {channel.value: channel for channel in Channel}
    found = [
        DriverRelease(
            version=fields.value("version", DriverVersion.parse, _NO_DRIVER),
            branch=fields.value("branch", _branch, "R000"),
            channel=fields.choice("channel", channels, Channel.UNIX),
            released=optional(fields, "release_date", _day),
            architectures=fields.texts("arches") if "arches" in fields else None,
            release_notes=None if fields.is_null("release_notes") else fields.text("release_notes"),
            provenance=records.provenance(fields),
        )
        for fields in records.each("linux_releases", known, ("version", "branch", "channel"))
    ]
    records.reader.finish()
    return tuple(sorted(found, key=lambda release: release.version))


def read_toolkits(document: Document) -> tuple[CudaToolkit, ...]:
    """The CUDA toolkits, lowest version first; raises DocumentFaults."""
    carried = ("minor_version_compat", "compiler_support", "dropped_architectures", "cc_confidence")
    records = Records(document, ("toolkits", "legacy_toolkits"), carried)
    known = ("version", "label", "release_month", "release_date", "driver_branch", "bundled_driver_linux_x86_64",
             "bundled_driver_windows", "driver_bundled", "min_driver_minor_version_compat", "cudart",
             "compute_capabilities")  # fmt: skip
    found = [_toolkit(records, fields) for fields in records.each("toolkits", known, ("version", "label"))]
    legacy = ("version", "bundled_driver_linux_x86_64", "bundled_driver_windows")
    found += [_legacy_toolkit(records, fields) for fields in records.each("legacy_toolkits", legacy, ("version",))]
    records.reader.finish()
    return tuple(sorted(found, key=lambda toolkit: toolkit.version))


def _toolkit(records: Records, fields: Fields) -> CudaToolkit:
    minimum = None
    floor = fields.node_of("min_driver_minor_version_compat")
    if floor is not None:
        what = "toolkits record: min_driver_minor_version_compat"
        minimum = optional(
            records.reader.fields(floor, what, ("branch", "linux", "windows")), "linux", DriverVersion.parse
        )
    capability = matched(_CAPABILITY, "compute capability")
    return CudaToolkit(
        version=fields.value("version", CudaVersion.parse, _NO_CUDA),
        label=fields.text("label"),
        month=optional(fields, "release_month", _month),
        branch=optional(fields, "driver_branch", _branch),
        bundled_driver=optional(fields, "bundled_driver_linux_x86_64", DriverVersion.parse),
        minimum_driver=minimum,
        cudart=None if fields.is_null("cudart") else fields.text("cudart"),
        compute_capabilities=_each_text(records, fields, "compute_capabilities", capability),
        provenance=records.provenance(fields),
    )


def _legacy_toolkit(records: Records, fields: Fields) -> CudaToolkit:
    """Before CUDA 11 there is no minor-version compatibility: the floor is the driver the toolkit came with."""
    driver = optional(fields, "bundled_driver_linux_x86_64", DriverVersion.parse)
    version = fields.value("version", CudaVersion.parse, _NO_CUDA)
    return CudaToolkit(version, str(version), None, None, driver, driver, None, (), records.provenance(fields))


def _each_text(records: Records, fields: Fields, key: str, convert: Callable[[str], str]) -> tuple[str, ...]:
    node = fields.node_of(key)
    if not isinstance(node, Sequence):
        return ()
    return tuple(records.reader.value(item, f"{fields.what}: {key}", convert, "") for item in node.items)


def read_architectures(document: Document) -> tuple[tuple[Architecture, ...], tuple[str, Provenance]]:
    """The architectures, oldest first as in the file, and from which branch on only open modules exist."""
    carried = ("open_module_rule", "confidential_computing_rules", "mig", "nvswitch_devices")
    records = Records(document, ("architectures", "open_module_required_from"), carried)
    known = ("architecture", "chips", "compute_capabilities", "first_cuda_toolkit", "last_cuda_toolkit",
             "first_driver_branch", "first_driver_branch_confidence", "first_driver_branch_text", "last_driver_branch",
             "open_kernel_modules", "memory_error_handling", "fabric_manager", "confidential_computing",
             "minimum_driver_by_product", "families", "products")  # fmt: skip
    required = ("architecture", "compute_capabilities", "last_driver_branch", "open_kernel_modules", "products")
    found = tuple(_architecture(records, fields) for fields in records.each("architectures", known, required))
    rule = records.top.node_of("open_module_required_from")
    open_only = ("R000", Provenance((), "", Confidence.MEMORY))
    if rule is not None:
        fields = records.reader.fields(
            rule, "open_module_required_from", ("branch", *_PROVENANCE), ("branch", "source")
        )
        open_only = (fields.value("branch", _branch, "R000"), records.provenance(fields))
    records.reader.finish()
    return found, open_only


def _architecture(records: Records, fields: Fields) -> Architecture:
    provenance = records.provenance(fields)
    capability = matched(_CAPABILITY, "compute capability")
    word = _word(fields, "first_driver_branch_confidence")
    return Architecture(
        name=fields.text("architecture"),
        compute_capabilities=_each_text(records, fields, "compute_capabilities", capability),
        first_branch=optional(fields, "first_driver_branch", _branch),
        first_branch_confidence=provenance.confidence if word is None else confidence_of(word)[0],
        last_branch=fields.value("last_driver_branch", _last_branch, None),
        open_modules=_open_modules(records, fields, provenance),
        families=tuple(_families(records, fields, provenance)),
        products=tuple(_products(records, fields)),
        provenance=provenance,
    )


def _last_branch(text: str) -> str | None:
    return None if text == "ongoing" else _branch(text)


def _open_modules(records: Records, fields: Fields, outer: Provenance) -> OpenModules:
    requirements = {requirement.value: requirement for requirement in ModuleRequirement}
    node = fields.node_of("open_kernel_modules")
    if node is None:
        return OpenModules(ModuleRequirement.UNSUPPORTED, None, None, (), outer)
    known = ("requirement", "from_branch", "required_from_branch", "exceptions", *_PROVENANCE)
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
    for each in records.each_of(fields.node_of("families"), "families", ("names",), ("names",)):
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
            nvswitch=None if each.is_null("nvswitch") else each.text("nvswitch"),
            provenance=records.provenance(each),
        )


def read_package_sets(document: Document) -> tuple[PackageSet, ...]:
    """The package sets in the order of the file; raises DocumentFaults."""
    records = Records(document, ("package_sets",), ())
    known = ("id", "repository", "distributions", "architecture", "first_branch", "last_branch", "flavour", "revision",
             "members")  # fmt: skip
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
        )
        for fields in records.each("package_sets", known, known)
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
