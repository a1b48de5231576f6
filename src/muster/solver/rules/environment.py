"""The CUDA releases that lie on the node itself: what runs there now must not stop running with the new driver.

Newer drivers run older CUDA, so this speaks when a change goes back. Of what containers and users bring nothing is seen here.
"""

from muster.knowledge.query_cuda import Fit, newest_of
from muster.knowledge.records import Base, CompatPackage
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.driver import DriverVersion
from muster.solver.doubt import doubt
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.fits import driver_fit, runs
from muster.solver.problem import Judgement, Question, Refusal, Rule


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
    toolkit = newest_of(question.known, text)
    if toolkit is None:
        return False
    after = driver_fit(toolkit, question.candidate.driver, question.known.branches.get(question.candidate.branch))
    if after is not Fit.NO:
        return False
    try:
        now = DriverVersion.parse(question.kind.driver)
    except VersionSyntaxError:
        return False
    return runs(driver_fit(toolkit, now, question.known.branches.get(now.branch)))


def _no_older_library(question: Question) -> Judgement:
    """No forward-compatibility library on the node is older than the driver: put over a newer module it ends every CUDA program."""
    for pin in question.kind.compat:
        package = question.known.of(CompatPackage).get(pin.name)
        if package is None or package.base_driver.get(question.candidate.branch) is not Base.NOT_COMPATIBLE:
            continue
        says = RuleSays(
            "no-older-compat-library", f"{pin.name} must not be used on {question.candidate.branch}: the driver is newer than it",
            ", ".join(package.provenance.sources), doubt((f"the row of {pin.name}", package.provenance.confidence)),
        )  # fmt: skip
        because = Because(
            f"{pin.name} on the node is older than {question.candidate.driver.text}: CUDA programs would end with error 803",
            (Observed(f"package[{pin.name}].state", "installed"), says),
        )
        return Refusal(because, (Hint(f"remove {pin.name} from the node: the new driver carries its CUDA"),))
    return ()


RULES = (Rule("installed-cuda-still-runs", _still_runs), Rule("no-older-compat-library", _no_older_library))
