"""What users run must still run: the branch carries a CUDA release of the range the pool asks for, and that makes code for the GPU."""

from muster.knowledge.schema import CudaToolkit
from muster.model.ranges import parse_ranges
from muster.model.versions.cuda import CudaVersion
from muster.solver.doubt import doubt
from muster.solver.explain import Because, Hint, NoCandidate, RuleSays, Wanted
from muster.solver.fits import driver_fit
from muster.solver.problem import Gpu, Judgement, Question, Refusal, Rule


def _carries(question: Question) -> Judgement:
    """A CUDA release of the range runs on the branch natively or by minor-version compatibility."""
    name, asked = question.candidate.branch, question.demand.cuda
    branch = question.known.branches.get(name)
    if branch is None:
        if asked is None:
            return (RuleSays("cuda-of-branch", f"what CUDA {name} carries is not known, and none is asked for", ""),)
        because = Because(
            f"what CUDA {name} carries is not known", (_wanted(question), NoCandidate(f"no record of {name}"))
        )
        return Refusal(because, (Hint("choose a branch that is known"),))
    says = _says(question)
    if asked is not None and not carried(question):
        because = Because(f"{name} carries no CUDA of {asked}", (_wanted(question), says))
        return Refusal(because, (Hint("choose a newer branch, or widen the pool's `cuda`"),))
    return (says,)


def _says(question: Question) -> RuleSays:
    branch = question.known.branches[question.candidate.branch]
    return RuleSays(
        "cuda-of-branch",
        f"{branch.name} carries CUDA up to {branch.native_cuda.text}, and all of CUDA {branch.max_cuda_major_without_forward_compat}.x",
        ", ".join(branch.provenance.sources),
        doubt(
            (f"the record of {branch.name}", branch.provenance.confidence),
            (f"that {branch.name} carries CUDA {branch.native_cuda.text}", branch.native_cuda_confidence),
        ),
    )


def _wanted(question: Question) -> Wanted:
    return Wanted(f"pools.{question.demand.pool}.cuda", question.demand.cuda or "")


def carried(question: Question) -> tuple[CudaToolkit, ...]:
    """The known CUDA releases of the pool's range that run on the candidate; all of the known ones where it asks for none."""
    branch = question.known.branches.get(question.candidate.branch)
    ranges = parse_ranges(question.demand.cuda or "*", CudaVersion)
    return tuple(
        toolkit
        for version, toolkit in question.known.toolkits.items()
        if version in ranges and driver_fit(toolkit, question.candidate.driver, branch).runs
    )


def _makes_code(question: Question) -> Judgement:
    """Not every release of the range has dropped the GPU. Of a release whose list is not recorded nothing is said."""
    if question.demand.cuda is None:
        return ()
    releases = carried(question)
    for gpu in question.gpus:
        refusal = _dropped(question, gpu, releases) if releases else None
        if refusal is not None:
            return refusal
    return ()


def _dropped(question: Question, gpu: Gpu, releases: tuple[CudaToolkit, ...]) -> Refusal | None:
    architecture = None if gpu.known is None else gpu.known.architecture
    if architecture is None or not architecture.compute_capabilities:
        return None
    if any(makes_code(each, architecture.compute_capabilities) is not False for each in releases):
        return None
    oldest = min((t.compute_capabilities for t in releases), key=lambda each: min(map(_number, each)))
    least = min(oldest, key=_number)
    says = RuleSays(
        "cuda-makes-code-for-gpu",
        f"CUDA {releases[0].version.text} and later make code from compute capability {least} on, {architecture.name} has "
        f"{', '.join(architecture.compute_capabilities)}",
        ", ".join(releases[0].provenance.sources),
        doubt(
            (f"the record of {architecture.name}", architecture.provenance.confidence),
            (f"the record of CUDA {releases[0].version.text}", releases[0].provenance.confidence),
        ),
    )
    conclusion = f"no CUDA of {question.demand.cuda} makes code for {architecture.name} GPUs any more"
    because = Because(conclusion, (_wanted(question), gpu.seen, says))
    return Refusal(because, (Hint("give these nodes a pool of their own with an older `cuda`"),))


def makes_code(toolkit: CudaToolkit, capabilities: tuple[str, ...]) -> bool | None:
    """Whether a toolkit's compiler still makes code for GPUs of these compute capabilities; None where its list is not recorded."""
    if not toolkit.compute_capabilities:
        return None
    return max(map(_number, capabilities)) >= min(map(_number, toolkit.compute_capabilities))


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))


RULES = (Rule("cuda-of-branch", _carries), Rule("cuda-makes-code-for-gpu", _makes_code))
