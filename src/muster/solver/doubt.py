"""What a judgement owes to records that nobody found written. Pure.

A record of confidence `memory`, or one whose sources disagree, may warn, and never silently admits or refuses (ADR 0005). So a rule that
rests on one says so in `RuleSays.doubt`: the sentence carries it, the plan shows it to whoever approves, and lint forbids a plan that
needs no approval.
"""

from muster.knowledge.claims import Claim
from muster.knowledge.schema import Confidence
from muster.solver.explain import RuleSays

WEAK = (Confidence.MEMORY, Confidence.CONFLICTING)


def doubt(*records: tuple[str, Confidence]) -> str:
    """What is weak of the named records, in words; empty when all of them are written somewhere."""
    return ", ".join(dict.fromkeys(what for what, confidence in records if confidence in WEAK))


def cited(rule: str, claim: Claim, ask: str = "") -> RuleSays:
    """A claim of the knowledge base as what a rule says."""
    return RuleSays(rule, claim.says, claim.source, doubt((claim.says, claim.confidence)), ask)
