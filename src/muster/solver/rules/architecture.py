"""A branch drives only some GPU architectures, and a build only some CPU architectures."""

from muster.knowledge.query import branch_number, product_architecture
from muster.knowledge.schema import Architecture
from muster.solver.explain import Because, Hint, NoCandidate, Observed, RuleSays
from muster.solver.problem import Judgement, Question, Refusal


def judge(question: Question) -> Judgement:
    """The GPU's architecture lies within the branches that drive it, and the build exists for the node's CPU."""
    product = question.kind.product
    architecture = product_architecture(question.known, product)
    seen = Observed("gpu.product", product)
    if architecture is None:
        because = Because(
            f"which architecture {product} has is not known", (seen, NoCandidate("no record of this product"))
        )
        return Refusal(because, (Hint("newer knowledge comes with: muster knowledge import FILE"),))
    source = ", ".join(architecture.provenance.sources)
    refused = _outside(question, architecture, seen, source) or _cpu(question)
    if refused is not None:
        return refused
    return RuleSays(
        "branch-drives-architecture", f"{question.candidate.branch} drives {architecture.name} GPUs", source
    )


def _outside(question: Question, architecture: Architecture, seen: Observed, source: str) -> Refusal | None:
    branch = question.candidate.branch
    number = branch_number(branch)
    first, last = architecture.first_branch, architecture.last_branch
    if last is not None and number > branch_number(last):
        says = RuleSays(
            "last-branch-of-architecture", f"{last} is the last branch that drives {architecture.name}", source
        )
        because = Because(f"{branch} does not drive {architecture.name} GPUs any more", (seen, says))
        return Refusal(because, (Hint(f"keep these nodes on {last}: give them a pool of their own"),))
    if first is not None and number < branch_number(first):
        says = RuleSays(
            "first-branch-of-architecture", f"{first} is the first branch that drives {architecture.name}", source
        )
        return Refusal(
            Because(f"{branch} does not drive {architecture.name} GPUs yet", (seen, says)),
            (Hint(f"choose {first} or newer"),),
        )
    return None


def _cpu(question: Question) -> Refusal | None:
    release = question.known.releases.get(question.candidate.driver.plain)
    arch = question.kind.arch
    if release is None or release.architectures is None or arch in release.architectures:
        return None
    says = RuleSays(
        "build-for-cpu",
        f"{release.version.text} exists for {', '.join(release.architectures)}",
        ", ".join(release.provenance.sources),
    )
    return Refusal(Because(f"there is no {release.version.text} for {arch}", (Observed("arch", arch), says)), ())


RULE = judge
