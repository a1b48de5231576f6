"""Whether the records fit together: names that one record uses of another exist, versions lie where they say, no question has two answers.

Why it exists: each record can be well formed and still point at a branch that is not there, and a rule that looks for it would say "not
known" for ever. `muster knowledge verify` and the release's own tests run these over the whole base; each fault names the record. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from muster.documents import Document, Map, Scalar
from muster.documents import Sequence as NodeList
from muster.knowledge.base import CORE
from muster.knowledge.catalog import KINDS
from muster.knowledge.query import branch_number, families
from muster.knowledge.records import (
    CompatFloor,
    CompatPackage,
    ComponentRule,
    GpuSystem,
    KernelCeiling,
    KernelFailure,
    KnownIssue,
    Limit,
    PackageRename,
)
from muster.knowledge.records_images import BrandSet, CudaRequirement, OperatorPlatform
from muster.knowledge.records_libs import Bulletin
from muster.knowledge.records_more import GuideSupport, Locking, MigDriver, MinorVersions, SwitchDevice, WindowsRelease
from muster.knowledge.schema import Channel, KnowledgeBase
from muster.knowledge.shelves import file_of
from muster.model.frozen import dataclass
from muster.model.ranges import parse_ranges
from muster.model.versions.driver import DriverVersion

_CORE_KEYS: Final[Mapping[str, tuple[str, str]]] = {
    "branches": ("branch", "branch"),
    "linux_releases": ("release", "version"),
    "toolkits": ("toolkit", "version"),
    "legacy_toolkits": ("toolkit", "version"),
    "architectures": ("architecture", "architecture"),
    "package_sets": ("package-set", "id"),
}


@dataclass(frozen=True, slots=True)
class Misfit:
    """A record (kind and key) that does not fit with the others, and why."""

    kind: str
    key: str
    why: str


def misfits(base: KnowledgeBase) -> tuple[Misfit, ...]:
    """All records that do not fit, in the order of the checks below."""
    return tuple(misfit for check in CHECKS for misfit in check(base))


Check = Callable[[KnowledgeBase], Iterator[Misfit]]


def _branches(base: KnowledgeBase) -> Iterator[Misfit]:
    for branch in base.branches.values():
        for version in (branch.first_datacenter_release, branch.latest_datacenter_release):
            if version is not None and version not in base.releases:
                yield Misfit("branch", branch.name, f"{version.text} is in no release record")
    if base.open_only_from[0] not in base.branches:
        yield Misfit("branch", base.open_only_from[0], "open_module_required_from names a branch that is not known")


def _releases(base: KnowledgeBase) -> Iterator[Misfit]:
    for release in base.releases.values():
        if release.version.branch != release.branch:
            yield Misfit(
                "release", release.version.text, f"it belongs to {release.version.branch}, not to {release.branch}"
            )
        yield from _known(base, "release", release.version.text, (release.branch,))
    yield from _days(base)
    for windows in base.of(WindowsRelease).values():
        yield from _known(base, "windows-release", windows.version, (windows.branch,))


def _days(base: KnowledgeBase) -> Iterator[Misfit]:
    """Data-centre builds of a branch are published in the order of their numbers."""
    last: dict[str, str] = {}
    for release in base.releases.values():
        if release.channel is Channel.DATACENTER and release.released is not None:
            if release.released < last.get(release.branch, ""):
                yield Misfit(
                    "release",
                    release.version.text,
                    f"a lower build of {release.branch} is of {last[release.branch]}, later",
                )
            last[release.branch] = release.released


def _toolkits(base: KnowledgeBase) -> Iterator[Misfit]:
    for toolkit in base.toolkits.values():
        if toolkit.branch is not None:
            yield from _known(base, "toolkit", toolkit.version.text, (toolkit.branch,))
        oldest, bundled = toolkit.minimum_driver, toolkit.bundled_driver
        if toolkit.version.major >= 11 and oldest is None:
            yield Misfit("toolkit", toolkit.version.text, "no oldest driver is recorded")
        # CUDA 11.0 really was published with drivers below the floor of its major.
        if oldest is not None and bundled is not None and bundled < oldest and toolkit.version.release != "11.0":
            yield Misfit(
                "toolkit", toolkit.version.text, f"it brings {bundled.text}, below its oldest driver {oldest.text}"
            )
    for each in base.of(MinorVersions).values():
        yield from _known(base, "minor-version", str(each.toolkit_major), (each.min_branch,))
    for floor in base.of(CompatFloor).values():
        yield from _known(base, "compat-floor", str(floor.package_major), (floor.feature_table_base,))


def _architectures(base: KnowledgeBase) -> Iterator[Misfit]:
    seen: dict[str, str] = {}
    newest = max((branch.number for branch in base.branches.values()), default=0)
    for architecture in base.architectures.values():
        yield from _known(base, "architecture", architecture.name, _some(architecture.last_branch))
        # It may have begun with a branch that nobody kept a record of, but not with one that is still to come.
        if architecture.first_branch is not None and branch_number(architecture.first_branch) > newest:
            yield Misfit("architecture", architecture.name, f"branch {architecture.first_branch} is not known")
        for family in architecture.families:
            if family.name in seen:
                yield Misfit("architecture", architecture.name, f"family {family.name} is {seen[family.name]}'s too")
            seen.setdefault(family.name, architecture.name)
    for mig in base.of(MigDriver).values():
        yield from _known(base, "mig-driver", mig.gpu, (mig.driver.branch,))


def _package_sets(base: KnowledgeBase) -> Iterator[Misfit]:
    asked: dict[tuple[str, str, str, str, int], str] = {}
    for each in base.package_sets:
        for distribution in each.distributions:
            for number in range(each.first_branch, each.last_branch + 1):
                question = (each.repository, distribution, each.architecture, each.flavour, number)
                if question in asked and asked[question] != each.id:
                    yield Misfit(
                        "package-set", each.id, f"{asked[question]} answers for R{number} on {distribution} too"
                    )
                    break
                asked[question] = each.id
        names = [member.name for member in each.members]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            yield Misfit("package-set", each.id, f"package {name} stands twice")
    repositories = {each.repository for each in base.package_sets}
    changes = [("package-rename", each.id, each.repository) for each in base.of(PackageRename).values()]
    changes += [("locking", each.id, each.repository) for each in base.of(Locking).values()]
    for kind, key, repository in changes:
        if repository not in repositories:
            yield Misfit(kind, key, f"repository {repository} has no package set")


def _components(base: KnowledgeBase) -> Iterator[Misfit]:
    known = set(families(base))
    switches = {each.pci_device for each in base.of(SwitchDevice).values()}
    for system in base.of(GpuSystem).values():
        for name in system.families:
            if name not in known:
                yield Misfit("gpu-system", system.id, f"family {name} is not known")
        if system.switch_pci is not None and system.switch_pci not in switches:
            yield Misfit("gpu-system", system.id, f"switch {system.switch_pci} is not known")
    for rule in base.of(ComponentRule).values():
        yield from _known(base, "component-rule", rule.id, _some(rule.from_branch))


def _compat(base: KnowledgeBase) -> Iterator[Misfit]:
    releases = {toolkit.version.release for toolkit in base.toolkits.values()}
    for package in base.of(CompatPackage).values():
        yield from _known(base, "compat-package", package.package, (package.built_from_branch, *package.base_driver))
        if package.toolkit not in releases:
            yield Misfit("compat-package", package.package, f"CUDA {package.toolkit} is not known")


def _kernels(base: KnowledgeBase) -> Iterator[Misfit]:
    for ceiling in base.of(KernelCeiling).values():
        yield from _known(base, "kernel-ceiling", ceiling.branch, (ceiling.branch,))
    for guide in base.of(GuideSupport).values():
        yield from _known(base, "guide-support", guide.branch or guide.driver_guide, _some(guide.branch))
    for failure in base.of(KernelFailure).values():
        failing = parse_ranges(failure.drivers, DriverVersion)
        for version in failure.fixed_in:
            if version in failing:
                yield Misfit("kernel-failure", failure.id, f"{version.text} is both fixed and failing")


def _issues(base: KnowledgeBase) -> Iterator[Misfit]:
    known = {*families(base), *base.architectures}
    for issue in base.of(KnownIssue).values():
        for name in issue.gpus:
            if name not in known:
                yield Misfit("known-issue", issue.id, f"GPU {name} is neither a family nor an architecture")
        if issue.upgrade is not None:
            yield from _known(base, "known-issue", issue.id, (issue.upgrade.from_branch, issue.upgrade.to_branch))


def _limits(base: KnowledgeBase) -> Iterator[Misfit]:
    packages = base.of(CompatPackage)
    for limit in base.of(Limit).values():
        branches = (*limit.bases, *_some(limit.from_branch), *_some(limit.to_branch))
        yield from _known(base, "limit", limit.id, branches)
        for package in limit.packages:
            if package not in packages:
                yield Misfit("limit", limit.id, f"{package} is no forward-compatibility package that is known")
        for architecture in limit.architectures:
            if architecture not in base.architectures:
                yield Misfit("limit", limit.id, f"architecture {architecture} is not known")


def _libraries(base: KnowledgeBase) -> Iterator[Misfit]:
    for bulletin in base.of(Bulletin).values():
        for fixed in bulletin.linux_fixed:
            if fixed.fixed.branch != fixed.branch:
                yield Misfit("bulletin", str(bulletin.bulletin), f"{fixed.fixed.text} is no build of {fixed.branch}")
    sets = base.of(BrandSet)
    for requirement in base.of(CudaRequirement).values():
        for name in dict.fromkeys(each.brand_set for each in requirement.branch_alternatives):
            if name not in sets:
                yield Misfit("require-cuda", requirement.id, f"brand set {name} is not known")
    for platform in base.of(OperatorPlatform).values():
        yield from _known(
            base, "operator-platform", platform.id, (*platform.branches, *_some(platform.min_driver_branch))
        )


def _known(base: KnowledgeBase, kind: str, key: str, branches: Iterable[str]) -> Iterator[Misfit]:
    for branch in branches:
        if branch not in base.branches:
            yield Misfit(kind, key, f"branch {branch} is not known")


def _some(value: str | None) -> tuple[str, ...]:
    return () if value is None else (value,)


CHECKS: Final[Sequence[Check]] = (
    _branches, _releases, _toolkits, _architectures, _package_sets, _components, _compat, _kernels, _issues, _limits, _libraries,
)  # fmt: skip


def places(documents: Iterable[Document]) -> Mapping[tuple[str, str], str]:
    """Where each record stands: (kind, key) -> `file:line`. Of a record that several files hold, the last."""
    found: dict[tuple[str, str], str] = {}
    for document in documents:
        root, file = document.root, file_of(document.name)
        if not isinstance(root, Map):
            continue
        lists = {kind.part: (kind.name, kind.keys) for kind in KINDS if kind.file == file}
        lists |= {
            part: (_CORE_KEYS[part][0], (_CORE_KEYS[part][1],)) for part in CORE.get(file, ()) if part in _CORE_KEYS
        }
        for entry in root.entries:
            if entry.key in lists and isinstance(entry.value, NodeList):
                kind, keys = lists[entry.key]
                for item in entry.value.items:
                    found[(kind, _named(item, keys))] = f"{document.name}:{item.line}"
    return found


def _named(item: object, keys: Iterable[str]) -> str:
    if not isinstance(item, Map):
        return ""
    texts = (item.get(key) for key in keys)
    return "/".join(text.text for text in texts if isinstance(text, Scalar) and text.text)
