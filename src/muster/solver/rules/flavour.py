"""Open or proprietary kernel modules: what the GPU needs, what the branch still has, and what the node runs."""

from muster.knowledge.query import flavours_of
from muster.solver.doubt import doubt
from muster.solver.explain import Because, Hint, Observed, RuleSays, Wanted
from muster.solver.hints import NEWER_KNOWLEDGE
from muster.solver.problem import Judgement, Question, Refusal, Rule


def _kept(question: Question) -> Judgement:
    """The node keeps its flavour: another one is another set of packages."""
    kind, candidate = question.kind, question.candidate
    if candidate.flavour == kind.flavour:
        return ()
    seen = Observed("module.nvidia.flavour", kind.flavour)
    wanted = Wanted(f"pools.{question.demand.pool}.driver.flavour", candidate.flavour)
    says = RuleSays("flavour-is-kept", "open and proprietary modules come in packages of other names", "")
    because = Because(
        f"a change from {kind.flavour} to {candidate.flavour} modules swaps packages", (seen, wanted, says)
    )
    return Refusal(
        because, (Hint("this release changes versions, not flavours: leave `flavour` out, or reinstall the node"),)
    )


def _exists(question: Question) -> Judgement:
    """That flavour exists for each kind of GPU on the branch."""
    candidate, said = question.candidate, []
    for gpu in question.gpus:
        if gpu.known is None:
            return Refusal(Because(f"which modules {gpu.name} can use is not known", (gpu.seen,)), (NEWER_KNOWLEDGE,))
        possible = flavours_of(question.known, gpu.known.architecture, gpu.name, candidate.number)
        says = RuleSays(
            "module-flavour", possible.says, possible.source, doubt((possible.says, possible.provenance.confidence))
        )
        if candidate.flavour not in possible.names:
            because = Because(
                f"{candidate.branch} has no {candidate.flavour} modules for {gpu.name}",
                (Observed("module.nvidia.flavour", question.kind.flavour), gpu.seen, says),
            )
            return Refusal(because, (Hint(f"possible on this branch: {', '.join(possible.names) or 'none'}"),))
        said.append(says)
    return tuple(dict.fromkeys(said))


RULES = (Rule("flavour-is-kept", _kept), Rule("module-flavour", _exists))
