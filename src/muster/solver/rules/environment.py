"""The CUDA releases that lie on the node itself: what runs there now must not stop running with the new driver.

Newer drivers run older CUDA, so this speaks when a change goes back. Of what containers and users bring nothing is seen here.
"""

from muster.knowledge.schema import CudaToolkit, KnowledgeBase
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.fits import Fit, driver_fit
from muster.solver.problem import Judgement, Question, Refusal, Rule


def release_named(base: KnowledgeBase, text: str) -> CudaToolkit | None:
    """The newest known patch of a CUDA release such as `12.4`; None where it is not known."""
    try:
        wanted = CudaVersion.parse(text)
    except VersionSyntaxError:
        return None
    mine = [each for version, each in base.toolkits.items() if version.release == wanted.release]
    return mine[-1] if mine else None


def _still_runs(question: Question) -> Judgement:
    """Every CUDA release that is installed on the node and runs on its present driver runs on the new one."""
    broken = [text for text in question.kind.toolkits if _breaks(question, text)]
    if not broken:
        return ()
    branch = question.known.branches[question.candidate.branch]
    says = RuleSays(
        "installed-cuda-still-runs",
        f"{branch.name} carries CUDA up to {branch.native_cuda.text}, and all of CUDA {branch.max_cuda_major_without_forward_compat}.x",
        ", ".join(branch.provenance.sources),
    )
    seen = tuple(Observed(f"cuda[{text}].installed", "true") for text in broken)
    because = Because(
        f"CUDA {', '.join(broken)} on the node runs with {question.kind.driver} and would not with {question.candidate.driver.text}",
        (*seen, Observed("module.nvidia.disk_version", question.kind.driver), says),
    )
    return Refusal(because, (Hint("choose a newer branch, or remove that CUDA from the node"),))


def _breaks(question: Question, text: str) -> bool:
    toolkit = release_named(question.known, text)
    if toolkit is None:
        return False
    after = driver_fit(toolkit, question.candidate.driver, question.known.branches.get(question.candidate.branch))
    if after is not Fit.NO:
        return False
    try:
        now = DriverVersion.parse(question.kind.driver)
    except VersionSyntaxError:
        return False
    return driver_fit(toolkit, now, question.known.branches.get(now.branch)).runs


RULES = (Rule("installed-cuda-still-runs", _still_runs),)
