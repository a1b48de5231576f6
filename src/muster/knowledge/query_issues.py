"""Questions about known faults: which strike a driver on a GPU, which strike a change of branch. Pure; it weighs nothing."""

from functools import lru_cache

from muster.knowledge.claims import Claim
from muster.knowledge.query import branch_number, identify
from muster.knowledge.records import KnownIssue, When
from muster.knowledge.schema import KnowledgeBase
from muster.model.frozen import dataclass
from muster.model.ranges import Ranges, parse_ranges
from muster.model.versions.driver import DriverVersion


@dataclass(frozen=True, slots=True)
class IssueMatch:
    """A known issue that fits a driver and a GPU.

    `certain` is true where the record bounds the drivers and names no further condition; else its `condition` is for people to check. A
    match by `reported` alone (a user's report, range unknown) is never certain.
    """

    issue: KnownIssue
    certain: bool

    @property
    def claim(self) -> Claim:
        """What happens, and when."""
        issue = self.issue
        when = "" if issue.when is When.ALWAYS else f" ({issue.condition})"
        return Claim(f"{issue.symptom}{when}", "known-issue", issue.id, issue.provenance)


def issues_of(
    base: KnowledgeBase, driver: DriverVersion, product: str, flavour: str | None = None
) -> tuple[IssueMatch, ...]:
    """The issues recorded for this driver on a GPU of this product name, in the order of the file; `flavour` None asks for either.

    Issues that are bound to a CUDA library, a document or an operator and not to drivers are not among them.
    """
    found = []
    for issue in base.of(KnownIssue).values():
        bounded = issue.drivers is not None and driver.plain in _drivers(issue.drivers)
        if not bounded and driver.plain not in issue.reported:
            continue
        if _is_for(base, issue, product) and (issue.flavour is None or flavour is None or issue.flavour == flavour):
            found.append(IssueMatch(issue, certain=bounded and issue.when is When.ALWAYS))
    return tuple(found)


@lru_cache(maxsize=1024)
def _drivers(text: str) -> Ranges[DriverVersion]:
    return parse_ranges(text, DriverVersion)  # once for each record, not for each class of nodes


def upgrade_issues(base: KnowledgeBase, before: str, after: str) -> tuple[IssueMatch, ...]:
    """The issues of a change from one branch to another, those of a wider step included (R610 to R615 strikes R595 to R620 too, perhaps).

    `certain` only for exactly the step that is recorded.
    """
    found = []
    for issue in base.of(KnownIssue).values():
        step = issue.upgrade
        if step is None:
            continue
        crosses = branch_number(before) <= branch_number(step.from_branch) and branch_number(after) >= branch_number(
            step.to_branch
        )
        if crosses:
            found.append(IssueMatch(issue, certain=(before, after) == (step.from_branch, step.to_branch)))
    return tuple(found)


def _is_for(base: KnowledgeBase, issue: KnownIssue, product: str) -> bool:
    if not issue.gpus:
        return True
    answer = identify(base, product)
    if answer is None:
        return False
    names = {answer.architecture.name} | ({answer.family.name} if answer.family is not None else set())
    return bool(names & set(issue.gpus))
