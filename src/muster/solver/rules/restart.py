"""Where exchanging the loaded module is not enough, and the node must restart. It admits and refuses nothing."""

from muster.knowledge.query import branch_number
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.driver import DriverVersion
from muster.solver.explain import RuleSays
from muster.solver.problem import Question
from muster.solver.rules import fabric

HANGS_FROM, HANGS_TO = 610, 615
"""An upgrade without a restart from R610 to R615 hung: one report, its range unknown, so every change across the two restarts."""

_REPORT = "LIMITS of the knowledge records, 2026-11-30: one source, range unknown"


def reasons(question: Question) -> tuple[RuleSays, ...]:
    """Why these nodes must restart for this candidate; empty when a reload will do."""
    before, after = _branch(question.kind.loaded or question.kind.driver), branch_number(question.candidate.branch)
    if before is None:
        return (RuleSays("restart-when-unknown", "the branch that runs now is not known", ""),)
    found = []
    if before <= HANGS_FROM and after >= HANGS_TO:
        found.append(RuleSays("restart-across-r615", f"from R{before} to R{after} a reload may hang", _REPORT))
    gpu = fabric.switched(question)
    if before != after and gpu is not None and gpu.known is not None and not fabric.moves(question.kind):
        says = f"{gpu.name} hangs on an NVSwitch, and which Fabric Manager runs is not read back"
        found.append(RuleSays("restart-with-nvswitch", says, ", ".join(gpu.known.provenance.sources)))
    return tuple(found)


def _branch(driver: str) -> int | None:
    try:
        return branch_number(DriverVersion.parse(driver).branch)
    except (VersionSyntaxError, ValueError):
        return None
