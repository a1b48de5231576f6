"""What the records are too thin to decide: such a change is asked of people, and never made by a rule. The limits are records."""

from muster.knowledge.query_limits import limit_claim, limits
from muster.knowledge.records import Subject
from muster.model.fact import Unknown
from muster.solver.doubt import cited
from muster.solver.explain import Because, Hint, Observed
from muster.solver.problem import Judgement, Question, Refusal, Rule


def _confidential(question: Question) -> Judgement:
    """A node that computes confidentially attests its driver: which ones have a reference measurement is not in the records."""
    on = question.kind.confidential
    if isinstance(on, Unknown) or not on:
        return ()
    for limit in limits(question.known, Subject.CONFIDENTIAL):
        says = cited("confidential-is-not-decided", limit_claim(limit))
        because = Because(
            "it computes confidentially: a driver without a reference measurement would fail attestation",
            (Observed("gpu.confidential", "true"), says),
        )
        return Refusal(because, (Hint(f"ask {limit.ask}; then change it by hand"),))
    return ()


RULES = (Rule("confidential-is-not-decided", _confidential),)
