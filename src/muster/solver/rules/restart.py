"""Where exchanging the loaded module is not enough, and the node must restart. It admits and refuses nothing."""

from muster.knowledge.query_limits import in_place_limit, limit_claim
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.driver import DriverVersion
from muster.solver.doubt import cited
from muster.solver.explain import RuleSays
from muster.solver.problem import Question
from muster.solver.rules import fabric


def reasons(question: Question) -> tuple[RuleSays, ...]:
    """Why these nodes must restart for this candidate; empty when a reload will do."""
    before, after = _branch(question.kind.loaded or question.kind.driver), question.candidate.branch
    if before is None:
        return (RuleSays("restart-when-unknown", "the branch that runs now is not known", ""),)
    gpu = fabric.switched(question)
    limit = in_place_limit(question.known, before, after, switches=gpu is not None and not fabric.moves(question.kind))
    return () if limit is None else (cited("restart-in-place", limit_claim(limit)),)


def _branch(driver: str) -> str | None:
    try:
        return DriverVersion.parse(driver).branch
    except (VersionSyntaxError, ValueError):
        return None
