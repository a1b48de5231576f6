"""Known faults of a driver. One that strikes wherever driver and GPU fit refuses; one that needs a condition nobody here can see is said."""

from muster.knowledge.query_issues import IssueMatch, issues_of
from muster.knowledge.records import Severity
from muster.model.ranges import ANY_TEXT
from muster.solver.doubt import cited
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.problem import Judgement, Question, Refusal, Rule


def _not_known_bad(question: Question) -> Judgement:
    """No issue that is bad, certain and written down is recorded for this driver on one of the node's GPUs."""
    candidate, said = question.candidate, []
    for gpu in question.gpus:
        for match in issues_of(question.known, candidate.driver, gpu.name, candidate.flavour):
            issue = match.issue
            if issue.severity is Severity.LOW or issue.drivers == ANY_TEXT:
                continue  # what holds for every driver is no reason for or against one
            if match.certain and issue.severity is Severity.HIGH and match.claim.can_decide:
                because = Because(
                    f"{candidate.driver.plain.text} on {gpu.name}: {issue.symptom}",
                    (gpu.seen, Observed("module.nvidia.flavour", question.kind.flavour), _says(match)),
                )
                return Refusal(because, _helps(match))
            said.append(_says(match))
    return tuple(dict.fromkeys(said))


def _says(match: IssueMatch) -> RuleSays:
    """The issue; who knows whether its condition holds is asked."""
    return cited("not-known-bad", match.claim, "" if match.certain else "whoever knows whether that holds here")


def _helps(match: IssueMatch) -> tuple[Hint, ...]:
    issue = match.issue
    if issue.fixed_in:
        return (Hint(f"fixed in {', '.join(issue.fixed_in)}"),)
    return tuple(Hint(text) for text in (issue.workaround, issue.resolution) if text)[:1]


RULES = (Rule("not-known-bad", _not_known_bad),)
