"""Questions about security bulletins of the driver: which are open for a build. Pure.

Only NVIDIA's own rows are used: the build from which on a branch is patched. A build that is in no release record is not called patched
(limit `patched-unknown-version`), and neither is a branch that a bulletin does not list.
"""

from muster.knowledge.claims import Claim
from muster.knowledge.query_limits import limit_named
from muster.knowledge.records import Limit
from muster.knowledge.records_libs import Bulletin, CveSeverity, FixedDriver
from muster.knowledge.schema import KnowledgeBase
from muster.model.frozen import dataclass
from muster.model.versions.driver import DriverVersion

_ORDER = tuple(CveSeverity)


@dataclass(frozen=True, slots=True)
class OpenBulletin:
    """A bulletin that is open for a build: the build that mends it, and its worst vulnerability on Linux (None: none is listed)."""

    bulletin: Bulletin
    fixed: DriverVersion
    worst: CveSeverity | None

    @property
    def claim(self) -> Claim:
        """That the bulletin is open until which build."""
        says = f"bulletin {self.bulletin.bulletin} ({self.bulletin.published}) is mended in {self.fixed.text}"
        return Claim(says, "bulletin", str(self.bulletin.bulletin), self.bulletin.provenance)


@dataclass(frozen=True, slots=True)
class SecurityAnswer:
    """What is known of a build's security.

    `open` are the bulletins that a newer build of its branch mends; `unlisted` those published since the branch was last listed, which
    say nothing of it; `limit` is set where the build is not recorded, so that nothing counts as patched.
    """

    open: tuple[OpenBulletin, ...]
    unlisted: tuple[Bulletin, ...]
    limit: Limit | None

    @property
    def patched(self) -> bool:
        """Whether the build is patched as far as the records go."""
        return not self.open and not self.unlisted and self.limit is None

    @property
    def worst(self) -> CveSeverity | None:
        """The worst open vulnerability on Linux."""
        found = [each.worst for each in self.open if each.worst is not None]
        return max(found, key=_ORDER.index) if found else None


def security_of(base: KnowledgeBase, driver: DriverVersion) -> SecurityAnswer:
    """The bulletins that are open for a driver build, oldest first."""
    bulletins = sorted(base.of(Bulletin).values(), key=lambda each: each.published)
    opened: list[OpenBulletin] = []
    unlisted: list[Bulletin] = []
    for bulletin in bulletins:
        row = _row(bulletin, driver.branch)
        if row is not None:
            unlisted.clear()
            if driver.plain < row.fixed:
                opened.append(OpenBulletin(bulletin, row.fixed, _worst(bulletin)))
        elif bulletin.linux_fixed and _has_begun(base, driver.branch, bulletin.published):
            unlisted.append(bulletin)
    limit = None if driver.plain in base.releases else limit_named(base, "patched-unknown-version")
    return SecurityAnswer(tuple(opened), tuple(unlisted), limit)


def _row(bulletin: Bulletin, branch: str) -> FixedDriver | None:
    rows = [row for row in bulletin.linux_fixed if row.branch == branch]
    return next((row for row in rows if row.product == "tesla"), rows[0] if rows else None)


def _has_begun(base: KnowledgeBase, branch: str, day: str) -> bool:
    known = base.branches.get(branch)
    begun = None if known is None else known.first_build_date or known.first_datacenter_release_date
    return begun is None or begun <= day


def _worst(bulletin: Bulletin) -> CveSeverity | None:
    found = [cve.severity for cve in bulletin.cves if cve.linux is not False and not cve.vgpu_only]
    return max(found, key=_ORDER.index) if found else None
