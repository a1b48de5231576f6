"""What the records are too thin to decide: such a change is asked of people, and never made by a rule (limits of the records, 2026-11-30)."""

from muster.model.fact import Unknown
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.problem import Judgement, Question, Refusal, Rule

_LIMITS = "LIMITS of the knowledge records, 2026-11-30"


def _confidential(question: Question) -> Judgement:
    """A node that computes confidentially attests its driver: which ones have a reference measurement is not in the records."""
    on = question.kind.confidential
    if isinstance(on, Unknown) or not on:
        return ()
    says = RuleSays(
        "confidential-is-not-decided",
        "which drivers have a reference measurement for attestation is not recorded",
        _LIMITS,
    )
    because = Because(
        "it computes confidentially: a driver without a reference measurement would fail attestation",
        (Observed("gpu[*].confidential.memory", "in use"), says),
    )
    return Refusal(
        because, (Hint("ask NVIDIA's reference measurement service for this driver and VBIOS, and change it by hand"),)
    )


RULES = (Rule("confidential-is-not-decided", _confidential),)
