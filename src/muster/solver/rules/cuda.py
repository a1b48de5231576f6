"""What users run must still run: the branch carries at least one CUDA release of the range the pool asks for."""

from muster.knowledge.query import product_architecture
from muster.knowledge.schema import CudaToolkit
from muster.model.ranges import parse_ranges
from muster.model.versions.cuda import CudaVersion
from muster.solver.doubt import doubt
from muster.solver.explain import Because, Hint, NoCandidate, Observed, RuleSays, Wanted
from muster.solver.problem import Judgement, Question, Refusal


def judge(question: Question) -> Judgement:
    """A CUDA release of the range runs on the branch natively or by minor-version compatibility, and still makes code for the GPU."""
    branch = question.known.branches.get(question.candidate.branch)
    name = question.candidate.branch
    asked = question.demand.cuda
    wanted = Wanted(f"pools.{question.demand.pool}.cuda", asked or "")
    if branch is None:
        if asked is None:
            return RuleSays("cuda-of-branch", f"what CUDA {name} carries is not known, and none is asked for", "")
        because = Because(f"what CUDA {name} carries is not known", (wanted, NoCandidate(f"no record of {name}")))
        return Refusal(because, (Hint("choose a branch that is known"),))
    most = branch.max_cuda_major_without_forward_compat
    says = RuleSays(
        "cuda-of-branch",
        f"{name} carries CUDA up to {branch.native_cuda.text}, and all of CUDA {most}.x",
        ", ".join(branch.provenance.sources),
        doubt(
            (f"the record of {name}", branch.provenance.confidence),
            (f"that {name} carries CUDA {branch.native_cuda.text}", branch.native_cuda_confidence),
        ),
    )
    if asked is None:
        return says
    ranges = parse_ranges(asked, CudaVersion)
    carried = [t for version, t in question.known.toolkits.items() if version in ranges and version.numbers[0] <= most]
    if not carried:
        because = Because(f"{name} carries no CUDA of {asked}", (wanted, says))
        return Refusal(because, (Hint("choose a newer branch, or widen the pool's `cuda`"),))
    return _for_gpu(question, carried, wanted) or says


def _for_gpu(question: Question, carried: list[CudaToolkit], wanted: Wanted) -> Refusal | None:
    """The refusal where every release of the range has dropped the GPU. Of a release whose list is not recorded nothing is said."""
    architecture = product_architecture(question.known, question.kind.product)
    if architecture is None or not architecture.compute_capabilities:
        return None
    newest = max(_number(each) for each in architecture.compute_capabilities)
    if any(not t.compute_capabilities or newest >= min(map(_number, t.compute_capabilities)) for t in carried):
        return None
    oldest = min((t.compute_capabilities for t in carried), key=lambda each: min(map(_number, each)))
    least = min(oldest, key=_number)
    says = RuleSays(
        "cuda-makes-code-for-gpu",
        f"CUDA {carried[0].version.text} and later make code from compute capability {least} on, {architecture.name} has "
        f"{', '.join(architecture.compute_capabilities)}",
        ", ".join(carried[0].provenance.sources),
        doubt(
            (f"the record of {architecture.name}", architecture.provenance.confidence),
            (f"the record of CUDA {carried[0].version.text}", carried[0].provenance.confidence),
        ),
    )
    conclusion = f"no CUDA of {wanted.value} makes code for {architecture.name} GPUs any more"
    because = Because(conclusion, (wanted, Observed("gpu.product", question.kind.product), says))
    return Refusal(because, (Hint("give these nodes a pool of their own with an older `cuda`"),))


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))


RULE = judge
