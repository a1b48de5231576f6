"""Open or proprietary kernel modules: what the GPU needs, what the branch still has, and what the node runs."""

from muster.knowledge.query import flavours, product_architecture
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
    found = product_architecture(question.known, kind.product)
    if found is None:
        return Refusal(Because(f"which modules {kind.product} can use is not known", (Observed("gpu.product", kind.product),)))
    possible = flavours(question.known, found.architecture, candidate.branch, kind.product)
    names = tuple(flavour.value for flavour in possible.flavours)
    words = " or ".join(names) if names else "no"
    says = RuleSays(
        "module-flavour", f"{kind.product} runs on {words} modules of {candidate.branch}", ", ".join(possible.provenance.sources)
    )
    if candidate.flavour not in names:
        because = Because(f"{candidate.branch} has no {candidate.flavour} modules for {kind.product}", (seen, says))
        return Refusal(because, (Hint(f"possible on this branch: {words} modules"),))
    return says



RULE = judge
