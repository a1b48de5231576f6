"""Questions to the knowledge base, answered from its records and from nothing else.

Why it exists: rules of the solver, hints and the CLI ask the same questions and must get the same answers. An answer
that rests on judgement carries its provenance; None means that the base does not know, which is never "no". It decides
nothing.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from muster.knowledge.schema import (
    Architecture,
    BranchKind,
    Channel,
    DriverBranch,
    DriverRelease,
    Family,
    KnowledgeBase,
    ModuleRequirement,
    PackageRole,
    PackageSet,
    Product,
    Provenance,
)
from muster.model.frozen import dataclass
from muster.model.nearest import nearest_versions
from muster.model.policy import Flavour, ReleaseLine
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion

LEARN_MORE: Final = (
    "newer knowledge comes with a newer release of Muster, or from a file of your own: muster knowledge import FILE"
)
"""What to say beside the nearest known names when somebody asks for something that is not known."""

# What NVIDIA lists for fleets; builds of other channels are recognised, never proposed.
FLEET_CHANNELS: Final = (Channel.DATACENTER, Channel.NEW_FEATURE)
_KINDS: Final = {
    ReleaseLine.LONG_TERM_SUPPORT: BranchKind.LONG_TERM_SUPPORT,
    ReleaseLine.PRODUCTION: BranchKind.PRODUCTION,
}
_WORD = re.compile(r"[a-z0-9]+", re.ASCII)
_MOST_NAMES: Final = 4096
"""So many names of products are remembered with their words: a fleet has dozens, and they are asked for again for each class of nodes."""


def releases(
    base: KnowledgeBase, branch: str | None = None, channels: tuple[Channel, ...] = FLEET_CHANNELS
) -> tuple[DriverRelease, ...]:
    """Known driver builds of a branch (or of all), lowest version first."""
    return tuple(
        release
        for release in base.releases.values()
        if (branch is None or release.branch == branch) and release.channel in channels
    )


def find_release(base: KnowledgeBase, version: DriverVersion) -> DriverRelease | None:
    """The build of this driver version, of any channel; a packaging revision does not count."""
    return base.releases.get(version.plain)


def nearest_releases(base: KnowledgeBase, version: DriverVersion, limit: int = 3) -> tuple[DriverVersion, ...]:
    """The known fleet releases closest to a version that is not known: for hints."""
    return nearest_versions(version.plain, (release.version for release in releases(base)), limit)


def branch_of(base: KnowledgeBase, version: DriverVersion) -> DriverBranch | None:
    """The branch a driver version belongs to, whether or not the version itself is known."""
    return base.branches.get(version.branch)


def branches_of_line(base: KnowledgeBase, line: ReleaseLine) -> tuple[DriverBranch, ...]:
    """The branches designated so today, oldest first. An end of life is the caller's to judge: it takes a clock."""
    return tuple(branch for branch in base.branches.values() if branch.kind is _KINDS[line])


def native_cuda(base: KnowledgeBase, version: DriverVersion) -> CudaVersion | None:
    """The newest CUDA release that runs on this driver without any compatibility means."""
    branch = branch_of(base, version)
    return None if branch is None else branch.native_cuda


def max_cuda_major_without_forward_compat(base: KnowledgeBase, version: DriverVersion) -> int | None:
    """The newest CUDA major whose programs this driver runs by minor-version or backward compatibility."""
    branch = branch_of(base, version)
    return None if branch is None else branch.max_cuda_major_without_forward_compat


def drives(base: KnowledgeBase, branch: str, architecture: Architecture) -> bool | None:
    """Whether a branch supports an architecture; None for an unknown branch or an unknown beginning of support."""
    if branch not in base.branches:
        return None
    number = branch_number(branch)
    if architecture.last_branch is not None and number > branch_number(architecture.last_branch):
        return False
    if architecture.first_branch is None:
        return None
    return number >= branch_number(architecture.first_branch)


def architectures_dropped_by(base: KnowledgeBase, branch: str) -> tuple[str, ...]:
    """The architectures that this branch, or one before it, stopped supporting; in the order of the base."""
    return tuple(
        architecture.name
        for architecture in base.architectures.values()
        if architecture.last_branch is not None and branch_number(branch) > branch_number(architecture.last_branch)
    )


@dataclass(frozen=True, slots=True)
class FlavourAnswer:
    """The module flavours that can drive a GPU on a branch (none where there are none), the rule in words, its source."""

    flavours: tuple[Flavour, ...]
    says: str
    provenance: Provenance

    @property
    def names(self) -> tuple[str, ...]:
        """The flavours as policies write them."""
        return tuple(flavour.value for flavour in self.flavours)

    @property
    def source(self) -> str:
        """The sources in one text."""
        return ", ".join(self.provenance.sources)


def flavours(base: KnowledgeBase, product: str, branch: int) -> FlavourAnswer | None:
    """Which module flavours a GPU of this product name can use on a branch (its number); None for an unknown product.

    It does not ask whether the branch supports the architecture at all: that is `drives`.
    """
    architecture = product_architecture(base, product)
    return None if architecture is None else flavours_of(base, architecture, product, branch)


def flavours_of(base: KnowledgeBase, architecture: Architecture, product: str, branch: int) -> FlavourAnswer:
    """As `flavours`, for whoever has looked up the architecture of the product already."""
    rule, subject = architecture.open_modules, f"{architecture.name} GPUs"
    requirement, provenance = rule.requirement, rule.provenance
    for exception in rule.exceptions:
        if _holds(product, exception.product):
            requirement, provenance, subject = exception.requirement, exception.provenance, exception.product
    open_only, why = base.open_only_from
    if branch >= branch_number(open_only):
        can = () if requirement is ModuleRequirement.UNSUPPORTED else (Flavour.OPEN,)
        says = f"from {open_only} on there are no proprietary modules"
        return FlavourAnswer(can, says if can else f"{says}, and {subject} cannot use open ones", why)
    if requirement is ModuleRequirement.REQUIRED:
        return FlavourAnswer((Flavour.OPEN,), f"{subject} need open modules", provenance)
    if requirement is ModuleRequirement.UNSUPPORTED:
        return FlavourAnswer((Flavour.PROPRIETARY,), f"{subject} cannot use open modules", provenance)
    if rule.from_branch is not None and branch < branch_number(rule.from_branch):
        says = f"open modules for {subject} begin with {rule.from_branch}"
        return FlavourAnswer((Flavour.PROPRIETARY,), says, provenance)
    return FlavourAnswer((Flavour.OPEN, Flavour.PROPRIETARY), f"{subject} can use either flavour", provenance)


@dataclass(frozen=True, slots=True)
class ProductAnswer:
    """What a GPU's name says: its architecture, and the family and the product where they are known."""

    architecture: Architecture
    family: Family | None
    product: Product | None

    @property
    def provenance(self) -> Provenance:
        """What the answer rests on."""
        if self.product is not None:
            return self.product.provenance
        return self.architecture.provenance if self.family is None else self.family.provenance


def product_architecture(base: KnowledgeBase, name: str) -> Architecture | None:
    """The architecture of a GPU by its product name, as in `identify`; None when it is not known."""
    found = identify(base, name)
    return None if found is None else found.architecture


def identify(base: KnowledgeBase, name: str) -> ProductAnswer | None:
    """Architecture, family and product of a GPU by its product name as nvidia-smi prints it (`NVIDIA H100 80GB HBM3`).

    A product of exactly this name decides; else the longest family whose words stand in the name one after the other.
    None when neither is known.
    """
    family = _family(base, name)
    for architecture in base.architectures.values():
        for product in architecture.products:
            if product.name.casefold() == name.casefold():
                own = family[1] if family is not None and family[0] is architecture else None
                return ProductAnswer(architecture, own, product)
    return None if family is None else ProductAnswer(family[0], family[1], None)


def family_of(base: KnowledgeBase, name: str) -> str | None:
    """The family a policy's `gpu: H100` means, for a product name; None when unknown."""
    found = _family(base, name)
    return None if found is None else found[1].name


def families(base: KnowledgeBase) -> tuple[str, ...]:
    """All family names, for checks and hints."""
    return tuple(family.name for each in base.architectures.values() for family in each.families)


def pci_architecture(base: KnowledgeBase, pci_device: str) -> Architecture | None:
    """The architecture of a PCI device such as `10de:2330`; None when it is not listed."""
    wanted = pci_device.lower()
    for architecture in base.architectures.values():
        if any(product.pci_device == wanted for product in architecture.products):
            return architecture
    return None


def package_set(
    base: KnowledgeBase,
    distribution: str,
    architecture: str,
    branch: str,
    flavour: Flavour,
    repository: str = "nvidia-cuda",
) -> PackageSet | None:
    """The packages that carry a branch on a distribution (`debian12`, package architecture `amd64`) in one repository; None if unknown."""
    fitting = package_sets(base, distribution, architecture, branch, flavour)
    return next((each for each in fitting if each.repository == repository), None)


def package_sets(
    base: KnowledgeBase, distribution: str, architecture: str, branch: str, flavour: Flavour
) -> tuple[PackageSet, ...]:
    """The packages that carry a branch on a distribution, one set for each repository that has them."""
    number = branch_number(branch)
    return tuple(
        each
        for each in base.package_sets
        if distribution in each.distributions
        and each.architecture == architecture
        and each.flavour == flavour
        and each.first_branch <= number <= each.last_branch
    )


def installed_set(
    base: KnowledgeBase, distribution: str, architecture: str, branch: str, flavour: Flavour, names: Collection[str]
) -> PackageSet | None:
    """The set of a branch whose packages a node has installed, by their names: it tells from which repository the driver came.

    The set with most of its names installed, its module's package among them; None where no set fits.
    """
    number, best = branch_number(branch), None
    most = 0
    for each in package_sets(base, distribution, architecture, branch, flavour):
        own = [member for member in each.members if member.name_for(number) in names]
        if len(own) > most and any(member.role is PackageRole.MODULE for member in own):
            most, best = len(own), each
    return best


def _family(base: KnowledgeBase, name: str) -> tuple[Architecture, Family] | None:
    best: tuple[int, Architecture, Family] | None = None
    for architecture in base.architectures.values():
        for family in architecture.families:
            length = len(_words(family.name))
            if (best is None or length > best[0]) and _holds(name, family.name):
                best = (length, architecture, family)
    return None if best is None else (best[1], best[2])


# Names of products and families are few and asked for again and again: nine tenths of what a class costs to solve.
@lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.casefold()))


@lru_cache(maxsize=_MOST_NAMES)
def _holds(name: str, part: str) -> bool:
    """Whether the words of `part` stand in `name` one after the other: `A100` in `A100-SXM4`, not in `A100X`."""
    whole, wanted = _words(name), _words(part)
    return any(whole[start : start + len(wanted)] == wanted for start in range(len(whole) - len(wanted) + 1))


def branch_number(branch: str) -> int:
    """580 of `R580`. Raises ValueError for anything that is no branch name."""
    return int(branch.removeprefix("R"))
