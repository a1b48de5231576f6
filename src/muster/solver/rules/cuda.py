"""What users run must still run: the branch carries at least one CUDA release of the range the pool asks for."""

from muster.model.ranges import parse_ranges
from muster.model.versions.cuda import CudaVersion
from muster.solver.explain import Because, Hint, RuleSays, Wanted
from muster.solver.problem import Judgement, Question, Refusal


def judge(question: Question) -> Judgement:
    """A CUDA release of the range runs on the branch natively, or by minor-version compatibility within its major."""
    branch = question.known.branches.get(question.candidate.branch)
    name = question.candidate.branch
    if branch is None:
        return Refusal(Because(f"what CUDA {name} carries is not known", ()), (Hint("choose a branch that is known"),))
    most = branch.max_cuda_major_without_forward_compat
    source = ", ".join(branch.provenance.sources)
    says = RuleSays(
        "cuda-of-branch", f"{name} carries CUDA up to {branch.native_cuda.text}, and all of CUDA {most}.x", source
    )
    if question.demand.cuda is None:
        return says
    asked = parse_ranges(question.demand.cuda, CudaVersion)
    if any(version in asked and version.numbers[0] <= most for version in question.known.toolkits):
        return says
    wanted = Wanted(f"pools.{question.demand.pool}.cuda", question.demand.cuda)
    because = Because(f"{name} carries no CUDA of {question.demand.cuda}", (wanted, says))
    return Refusal(because, (Hint("choose a newer branch, or widen the pool's `cuda`"),))


RULE = judge
