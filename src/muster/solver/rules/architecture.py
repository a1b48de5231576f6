"""A branch drives only some GPU architectures, and a build only some CPU architectures. Each kind of GPU in a node must be driven."""

from muster.knowledge.query import branch_number
from muster.knowledge.query_limits import architecture_limit, limit_claim
from muster.knowledge.schema import Architecture, Confidence
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.driver import DriverVersion
from muster.solver.doubt import WEAK, cited, doubt
from muster.solver.explain import Because, Hint, NoCandidate, Observed, RuleSays
from muster.solver.hints import NEWER_KNOWLEDGE
from muster.solver.problem import Gpu, Judgement, Question, Refusal, Rule


def _known(question: Question) -> Judgement:
    """Each kind of GPU has a record, of which enough is known to decide."""
    for gpu in question.gpus:
        if gpu.known is None:
            because = Because(
                f"which architecture {gpu.name} has is not known",
                (gpu.seen, NoCandidate("no record of this product")),
            )
            return Refusal(because, (NEWER_KNOWLEDGE,))
        architecture = gpu.known.architecture
        limit = architecture_limit(question.known, architecture.name)
        if limit is not None:
            conclusion = f"too little is known of {architecture.name} GPUs to choose a driver"
            says = cited("product-is-known", limit_claim(limit))
            return Refusal(Because(conclusion, (gpu.seen, says)), (Hint(f"ask {limit.ask}"),))
    return tuple(_drives(question, gpu, gpu.known.architecture) for gpu in question.gpus if gpu.known is not None)


def _drives(question: Question, gpu: Gpu, architecture: Architecture) -> RuleSays:
    first = (f"which branch first drives {architecture.name}", architecture.first_branch_confidence)
    return RuleSays(
        "branch-drives-architecture",
        f"{question.candidate.branch} drives {architecture.name} GPUs",
        _source(architecture),
        doubt(_belongs(gpu), _record(architecture), *(() if _ran_before(question) else (first,))),
    )


def _ran_before(question: Question) -> bool:
    """Whether the node itself runs a branch that is not newer: then the branch is not before the first one, whoever remembers what."""
    try:
        now = branch_number(DriverVersion.parse(question.kind.loaded).branch)
    except (VersionSyntaxError, ValueError):
        return False
    return now <= question.candidate.number


def _not_too_new(question: Question) -> Judgement:
    """No kind of GPU was dropped by this branch or one before it."""
    for gpu in question.gpus:
        architecture = None if gpu.known is None else gpu.known.architecture
        if architecture is None or architecture.last_branch is None:
            continue
        last = architecture.last_branch
        if question.candidate.number > branch_number(last):
            says = RuleSays(
                "last-branch-of-architecture", f"{last} is the last branch that drives {architecture.name}",
                _source(architecture), doubt(_belongs(gpu), _record(architecture)),
            )  # fmt: skip
            because = Because(
                f"{question.candidate.branch} does not drive {architecture.name} GPUs any more", (gpu.seen, says)
            )
            return Refusal(because, (Hint(f"keep these nodes on {last}: give them a pool of their own"),))
    return ()


def _not_too_old(question: Question) -> Judgement:
    """Each kind of GPU is driven by this branch already. What the node shows is worth more than what somebody remembers."""
    for gpu in question.gpus:
        architecture = None if gpu.known is None else gpu.known.architecture
        if architecture is None or architecture.first_branch is None:
            continue
        first, confidence = architecture.first_branch, architecture.first_branch_confidence
        if question.candidate.number >= branch_number(first) or (confidence in WEAK and _ran_before(question)):
            continue
        says = RuleSays(
            "first-branch-of-architecture", f"{first} is the first branch that drives {architecture.name}",
            _source(architecture), doubt(_belongs(gpu), (f"which branch first drives {architecture.name}", confidence)),
        )  # fmt: skip
        causes: tuple[Observed | RuleSays, ...] = (gpu.seen, says)
        if confidence in WEAK:
            causes = (gpu.seen, Observed("module.nvidia.loaded_version", question.kind.loaded or "unknown"), says)
        because = Because(f"{question.candidate.branch} does not drive {architecture.name} GPUs yet", causes)
        return Refusal(because, (Hint(f"choose {first} or newer"),))
    return ()


def _cpu(question: Question) -> Judgement:
    """The build exists for the node's CPU."""
    release = question.known.releases.get(question.candidate.driver.plain)
    arch = question.kind.arch
    if release is None or release.architectures is None or arch in release.architectures:
        return ()
    says = RuleSays(
        "build-for-cpu",
        f"{release.version.text} exists for {', '.join(release.architectures)}",
        ", ".join(release.provenance.sources),
        doubt((f"the record of {release.version.text}", release.provenance.confidence)),
    )
    return Refusal(Because(f"there is no {release.version.text} for {arch}", (Observed("arch", arch), says)), ())


def _source(architecture: Architecture) -> str:
    return ", ".join(architecture.provenance.sources)


def _belongs(gpu: Gpu) -> tuple[str, Confidence]:
    assert gpu.known is not None
    return f"that {gpu.name} is {gpu.known.architecture.name}", gpu.known.provenance.confidence


def _record(architecture: Architecture) -> tuple[str, Confidence]:
    return f"the record of {architecture.name}", architecture.provenance.confidence


RULES = (
    Rule("product-is-known", _known),
    Rule("last-branch-of-architecture", _not_too_new),
    Rule("first-branch-of-architecture", _not_too_old),
    Rule("build-for-cpu", _cpu),
)
