"""A branch drives only some GPU architectures, and a build only some CPU architectures."""

from muster.knowledge.query import ProductAnswer, branch_number, identify
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.driver import DriverVersion
from muster.solver.doubt import WEAK, doubt
from muster.solver.explain import Because, Hint, NoCandidate, Observed, RuleSays
from muster.solver.problem import Judgement, Question, Refusal

UNDECIDED = ("Rubin GR100",)
"""Architectures of which too little is known to decide anything (knowledge limits, 2026-11-30): ids, names and branches rest on memory."""


def judge(question: Question) -> Judgement:
    """The GPU's architecture lies within the branches that drive it, and the build exists for the node's CPU."""
    product = question.kind.product
    answer = identify(question.known, product)
    seen = Observed("gpu.product", product)
    if answer is None:
        because = Because(
            f"which architecture {product} has is not known", (seen, NoCandidate("no record of this product"))
        )
        return Refusal(because, (Hint("newer knowledge comes with a newer release of Muster"),))
    refused = _undecided(answer, seen) or _outside(question, answer, seen) or _cpu(question)
    if refused is not None:
        return refused
    name = answer.architecture.name
    return RuleSays(
        "branch-drives-architecture",
        f"{question.candidate.branch} drives {name} GPUs",
        ", ".join(answer.architecture.provenance.sources),
        doubt(
            (f"that {product} is {name}", answer.provenance.confidence),
            (f"the record of {name}", answer.architecture.provenance.confidence),
            *(
                ()
                if _ran_before(question)
                else ((f"which branch first drives {name}", answer.architecture.first_branch_confidence),)
            ),
        ),
    )


def _undecided(answer: ProductAnswer, seen: Observed) -> Refusal | None:
    name = answer.architecture.name
    if name not in UNDECIDED:
        return None
    says = RuleSays(
        "not-decided-from-memory", f"nothing is decided for {name}", ", ".join(answer.architecture.provenance.sources),
        doubt((f"the record of {name}", answer.architecture.provenance.confidence)),
    )  # fmt: skip
    return Refusal(Because(f"too little is known of {name} GPUs to choose a driver", (seen, says)))


def _ran_before(question: Question) -> bool:
    """Whether the node itself runs a branch that is not newer: then the branch is not before the first one, whoever remembers what."""
    try:
        now = branch_number(DriverVersion.parse(question.kind.loaded).branch)
    except (VersionSyntaxError, ValueError):
        return False
    return now <= branch_number(question.candidate.branch)


def _outside(question: Question, answer: ProductAnswer, seen: Observed) -> Refusal | None:
    architecture, branch = answer.architecture, question.candidate.branch
    source = ", ".join(architecture.provenance.sources)
    belongs = (f"that {question.kind.product} is {architecture.name}", answer.provenance.confidence)
    first, last = architecture.first_branch, architecture.last_branch
    if last is not None and branch_number(branch) > branch_number(last):
        says = RuleSays(
            "last-branch-of-architecture", f"{last} is the last branch that drives {architecture.name}", source,
            doubt(belongs, (f"the record of {architecture.name}", architecture.provenance.confidence)),
        )  # fmt: skip
        because = Because(f"{branch} does not drive {architecture.name} GPUs any more", (seen, says))
        return Refusal(because, (Hint(f"keep these nodes on {last}: give them a pool of their own"),))
    if first is not None and branch_number(branch) < branch_number(first):
        if architecture.first_branch_confidence in WEAK and _ran_before(question):
            return None  # what the node shows is worth more than what somebody remembers
        says = RuleSays(
            "first-branch-of-architecture", f"{first} is the first branch that drives {architecture.name}", source,
            doubt(belongs, (f"which branch first drives {architecture.name}", architecture.first_branch_confidence)),
        )  # fmt: skip
        because = Because(f"{branch} does not drive {architecture.name} GPUs yet", (seen, says))
        return Refusal(because, (Hint(f"choose {first} or newer"),))
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
        doubt((f"the record of {release.version.text}", release.provenance.confidence)),
    )
    return Refusal(Because(f"there is no {release.version.text} for {arch}", (Observed("arch", arch), says)), ())


RULE = judge
