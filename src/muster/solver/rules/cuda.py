"""What users run must still run: the branch carries a CUDA release of the range the pool asks for, and that makes code for the GPU."""

from muster.knowledge.query_cuda import Fit, forward_compat
from muster.knowledge.query_limits import limit_claim
from muster.knowledge.schema import CudaToolkit
from muster.model.ranges import parse_ranges
from muster.model.versions.cuda import CudaVersion
from muster.solver.doubt import cited, doubt
from muster.solver.explain import Because, Hint, NoCandidate, Observed, RuleSays, Wanted
from muster.solver.fits import driver_fit, runs
from muster.solver.problem import Gpu, Judgement, NodeClass, Question, Refusal, Rule


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
        return _over_an_older_driver(question, says)
    return (says,)


def _over_an_older_driver(question: Question, says: RuleSays) -> Judgement:
    """The range by forward compatibility: with libraries that lie on the node, on GPUs and base drivers that allow it."""
    name, asked = question.candidate.branch, question.demand.cuda or ""
    seen: list[Observed | RuleSays] = []
    trials: dict[str, None] = {}
    for package, release in compat_releases(question.kind, asked):
        answers = [
            (gpu, forward_compat(question.known, release, question.candidate.driver, gpu.name)) for gpu in question.gpus
        ]
        said = tuple(cited("forward-compat", claim) for _, answer in answers for claim in answer.claims)
        if all(answer.fit is Fit.FORWARD_COMPAT and answer.can_decide for _, answer in answers):
            return (says, *dict.fromkeys(said))
        limits = tuple(cited("forward-compat", limit_claim(limit)) for _, answer in answers for limit in answer.limits)
        seen += [
            Observed(f"package[{package}].state", "installed"),
            *(gpu.seen for gpu in question.gpus),
            *said,
            *limits,
        ]
    if not seen:
        because = Because(f"{name} carries no CUDA of {asked}", (_wanted(question), says))
        return Refusal(because, (Hint("choose a newer branch, or widen the pool's `cuda`"),))
    conclusion = f"{name} carries no CUDA of {asked}, and forward compatibility does not make up for it"
    because = Because(conclusion, (_wanted(question), says, *dict.fromkeys(seen)))
    asks = tuple(Hint(f"or ask {ask}") for ask in trials)
    return Refusal(because, (Hint("choose a newer branch, or widen the pool's `cuda`"), *asks))


def compat_releases(kind: NodeClass, asked: str) -> tuple[tuple[str, CudaVersion], ...]:
    """The forward-compatibility packages on the node whose release is of the range, with that release."""
    ranges, found = parse_ranges(asked, CudaVersion), []
    for pin in kind.compat:
        major, minor = pin.name.split("-")[-2:]
        release = CudaVersion.parse(f"{major}.{minor}")
        if release in ranges:
            found.append((pin.name, release))
    return tuple(found)


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
    branch, driver = question.known.branches.get(question.candidate.branch), question.candidate.driver
    return tuple(toolkit for toolkit in question.asked if runs(driver_fit(toolkit, driver, branch)))


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
