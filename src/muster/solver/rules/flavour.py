"""Open or proprietary kernel modules: what the GPU needs, what the branch still has, and what the node runs."""

from muster.knowledge.query import branch_number, flavours
from muster.solver.doubt import doubt
from muster.solver.explain import Because, Hint, Observed, RuleSays, Wanted
from muster.solver.problem import Judgement, Question, Refusal


def judge(question: Question) -> Judgement:
    """The node keeps its flavour, and that flavour exists for its GPU on the branch."""
    kind, candidate = question.kind, question.candidate
    seen = Observed("module.nvidia.flavour", kind.flavour)
    if candidate.flavour != kind.flavour:
        wanted = Wanted(f"pools.{question.demand.pool}.driver.flavour", candidate.flavour)
        because = Because(f"a change from {kind.flavour} to {candidate.flavour} modules swaps packages", (seen, wanted))
        return Refusal(
            because, (Hint("this release changes versions, not flavours: leave `flavour` out, or reinstall the node"),)
        )
    possible = flavours(question.known, kind.product, branch_number(candidate.branch))
    if possible is None:
        return Refusal(
            Because(f"which modules {kind.product} can use is not known", (Observed("gpu.product", kind.product),))
        )
    says = RuleSays(
        "module-flavour", possible.says, possible.source, doubt((possible.says, possible.provenance.confidence))
    )
    if candidate.flavour not in possible.names:
        because = Because(
            f"{candidate.branch} has no {candidate.flavour} modules for {kind.product}",
            (seen, Observed("gpu.product", kind.product), says),
        )
        return Refusal(because, (Hint(f"possible on this branch: {', '.join(possible.names) or 'none'}"),))
    return says


RULE = judge
