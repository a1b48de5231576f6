"""Questions about CUDA and drivers: what runs natively, by minor-version compatibility, with forward-compatibility libraries, or not. Pure.

Why it exists: the words are used loosely everywhere, and a wrong "it will run" costs a drained node. Native: the driver belongs to this
CUDA release or a newer one. Minor-version: a newer release of the same major on the major's oldest driver or newer. Forward: newer user
libraries (cuda-compat) over an older driver, on some GPUs and some base branches only.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from muster.knowledge.claims import Claim
from muster.knowledge.query import branch_of, identify
from muster.knowledge.query_limits import limits
from muster.knowledge.records import Allowed, Base, CompatFloor, CompatPackage, GpuClass, Limit, Subject
from muster.knowledge.schema import BranchKind, Confidence, CudaToolkit, KnowledgeBase, Provenance
from muster.model.frozen import dataclass
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion

_WORDS = re.compile(r"[A-Za-z0-9]+", re.ASCII)


class Fit(StrEnum):
    """How a program of a CUDA release runs on a driver."""

    NATIVE = "native"
    MINOR_VERSION = "minor-version"
    FORWARD_COMPAT = "forward-compat"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """How a CUDA release fits a driver, from which records, and the limits that keep a rule from deciding it."""

    fit: Fit
    claims: tuple[Claim, ...] = ()
    limits: tuple[Limit, ...] = ()

    @property
    def can_decide(self) -> bool:
        """Whether the answer may admit or refuse: it is known, each of its records can, and no limit stands before it."""
        return self.fit is not Fit.UNKNOWN and not self.limits and all(claim.can_decide for claim in self.claims)


def find_toolkit(base: KnowledgeBase, text: str) -> CudaToolkit | None:
    """The toolkit by number (`13.4.2`) or by NVIDIA's words (`13.4 Update 1`), which are looked up before they are counted.

    NVIDIA's `Update N` is patch N, except for 11.0 and 13.4 (13.4 GA is 13.4.1, its Update 1 is 13.4.2). None for a release that is not known.
    Raises VersionSyntaxError.
    """
    wanted = CudaVersion.parse(text)
    label = wanted.label
    if label is not None:
        for toolkit in base.toolkits.values():
            if toolkit.label == label or toolkit.label.partition(" (")[0] == label:
                return toolkit
    return base.toolkits.get(wanted)


def newest_of(base: KnowledgeBase, release: str) -> CudaToolkit | None:
    """The newest toolkit of a release (`13.0`): what an image or wheel that says no more than that may hold."""
    found = [toolkit for toolkit in base.toolkits.values() if toolkit.version.release == release]
    return found[-1] if found else None


def minimum_driver(base: KnowledgeBase, cuda: CudaVersion) -> tuple[DriverVersion, Claim] | None:
    """The oldest driver on which programs of this CUDA release run without forward compatibility; None where it is not recorded.

    From CUDA 11 on one floor holds for a whole major; before, each release needs the driver it came with.
    """
    toolkit = base.toolkits.get(cuda) or newest_of(base, cuda.release) or _of_major(base, cuda.major)
    if toolkit is None or toolkit.minimum_driver is None:
        return None
    says = f"CUDA {cuda.major}.x runs on {toolkit.minimum_driver.text} and newer"
    if cuda.major < 11:
        says = f"CUDA {cuda.text} runs on {toolkit.minimum_driver.text} and newer"
    return toolkit.minimum_driver, Claim(says, "toolkit", toolkit.version.text, toolkit.provenance)


def _of_major(base: KnowledgeBase, major: int) -> CudaToolkit | None:
    # One floor a major holds for releases of it that are newer than this base, but only from CUDA 11 on.
    found = [each for each in base.toolkits.values() if each.version.major == major and major >= 11]
    return found[-1] if found else None


def fit(base: KnowledgeBase, cuda: CudaVersion, driver: DriverVersion) -> FitAnswer:
    """How a program of this CUDA release runs on a driver of its own accord; NO where only forward compatibility could help."""
    branch = branch_of(base, driver)
    if branch is None:
        return FitAnswer(Fit.UNKNOWN)
    native = Claim(
        f"{branch.name} carries CUDA {branch.native_cuda.text}",
        "branch",
        branch.name,
        _native_provenance(base, branch.name),
    )
    if (cuda.major, cuda.minor) <= (branch.native_cuda.major, branch.native_cuda.minor):
        return FitAnswer(Fit.NATIVE, (native,))
    floor = minimum_driver(base, cuda)
    if floor is None:
        return FitAnswer(Fit.UNKNOWN, (native,))
    oldest, claim = floor
    if cuda.major >= 11 and driver.plain >= oldest:
        return FitAnswer(Fit.MINOR_VERSION, (claim,))
    return FitAnswer(Fit.NO, (claim, native))


def _native_provenance(base: KnowledgeBase, branch: str) -> Provenance:
    found = base.branches[branch]
    return replace(found.provenance, confidence=found.native_cuda_confidence)


def compat_package(base: KnowledgeBase, cuda: CudaVersion) -> CompatPackage | None:
    """The forward-compatibility package of a CUDA release; None where none is known."""
    return base.of(CompatPackage).get(f"cuda-compat-{cuda.major}-{cuda.minor}")


def gpu_class(base: KnowledgeBase, product: str) -> GpuClass | None:
    """The class of a GPU by its product name, as forward compatibility divides them; None where the name tells none.

    A name that fits two (`NVIDIA RTX A6000` never, `Quadro RTX 6000` once) is of the narrower one: GeForce, then workstation, then the rest.
    """
    words = _WORDS.findall(product)
    order = sorted(
        base.of(GpuClass).values(), key=lambda each: (Allowed.NO, Allowed.SELECTED, Allowed.YES).index(each.allowed)
    )
    return next((each for each in order if any(_follows(words, _WORDS.findall(name)) for name in each.names)), None)


def _follows(words: Sequence[str], wanted: Sequence[str]) -> bool:
    size = len(wanted)
    return any(list(words[at : at + size]) == list(wanted) for at in range(len(words) - size + 1))


def forward_compat(base: KnowledgeBase, cuda: CudaVersion, driver: DriverVersion, product: str) -> FitAnswer:
    """Whether the release's forward-compatibility package runs it over this driver on a GPU of this product name.

    FORWARD_COMPAT, NO, or UNKNOWN; never an answer for the program itself, which may fit without (`fit`). The limits that stand before the
    package or the base driver are given with the answer, and then nothing may be decided from it.
    """
    package, device = compat_package(base, cuda), gpu_class(base, product)
    if package is None or device is None:
        return FitAnswer(Fit.UNKNOWN)
    met = _limits(base, package, driver)
    on_device = Claim(f"forward compatibility: {device.says}", "gpu-class", device.id, device.provenance)
    if device.allowed is Allowed.NO:
        return FitAnswer(Fit.NO, (on_device,), met)
    found = package.base_driver.get(driver.branch)
    if found is None:
        known = identify(base, product)
        says = f"{package.package} over {driver.branch} stands in no table" + (
            "" if known else f", and {product} is not known"
        )
        return FitAnswer(Fit.UNKNOWN, (Claim(says, "compat-package", package.package, package.provenance),), met)
    says = f"{package.package} over {driver.branch}: {found.value.replace('_', ' ')}"
    claims = (Claim(says, "compat-package", package.package, _table_provenance(base, package, driver)), on_device)
    if found in (Base.NOT_COMPATIBLE, Base.NOT_NEEDED, Base.EXPECTED_NOT_NEEDED):
        return FitAnswer(Fit.NO, claims, met)
    # Selected workstation cards cannot be told from the others by their names.
    sure = device.allowed is Allowed.YES
    return FitAnswer(Fit.FORWARD_COMPAT if sure else Fit.UNKNOWN, claims, met)


def _table_provenance(base: KnowledgeBase, package: CompatPackage, driver: DriverVersion) -> Provenance:
    """Of the table's cell: its guide says that new feature branches are no supported bases, and prints their columns."""
    branch = base.branches.get(driver.branch)
    if branch is None or branch.kind is not BranchKind.NEW_FEATURE:
        return package.provenance
    return replace(package.provenance, confidence=Confidence.CONFLICTING)


def _limits(base: KnowledgeBase, package: CompatPackage, driver: DriverVersion) -> tuple[Limit, ...]:
    return tuple(
        each
        for each in limits(base, Subject.FORWARD_COMPAT)
        if package.package in each.packages or driver.branch in each.bases
    )


def compat_floor(base: KnowledgeBase, major: int) -> CompatFloor | None:
    """The branch with which a CUDA major begins without forward compatibility."""
    return base.of(CompatFloor).get(str(major))


def cuda_version(text: str) -> CudaVersion | None:
    """A CUDA version, or None for text that is none: for what was read on nodes."""
    try:
        return CudaVersion.parse(text)
    except VersionSyntaxError:
        return None
