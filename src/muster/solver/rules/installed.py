"""How the driver came onto the node. Only what packages own can be changed by packages, and brought back by them."""

from muster.knowledge.schema import Channel
from muster.model.fact import Unknown
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.driver import DriverVersion
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.hints import LOOK_AGAIN
from muster.solver.problem import Judgement, Question, Refusal, Rule


def _no_run_file(question: Question) -> Judgement:
    """NVIDIA's own installer has not written its files onto the node."""
    there = question.kind.runfile
    says = RuleSays(
        "run-over-packages", "a .run install writes over files of packages, and no package manager knows of it", ""
    )
    if isinstance(there, Unknown):
        seen = Observed("runfile.installed", there.why)
        return Refusal(
            Because("whether a .run install lies on it is unknown", (seen, says)), (LOOK_AGAIN,), unknown=True
        )
    if not there:
        return ()
    because = Because(
        "a .run install lies on it: packages would be mixed with it", (Observed("runfile.installed", "true"), says)
    )
    return Refusal(because, (Hint("on the node: nvidia-uninstall, then install the driver's packages"),))


def _packaged(question: Question) -> Judgement:
    """Some installed package carries the driver that is there."""
    kind = question.kind
    if kind.packages:
        return ()
    says = RuleSays(
        "carried-by-packages", "what no package owns cannot be changed by packages, nor brought back by them", ""
    )
    seen = (
        Observed("module.nvidia.disk_version", kind.driver),
        Observed("package[*].version", f"none carries {kind.driver}"),
    )
    because = Because(f"no installed package carries {kind.driver}: not installed by packages", (*seen, says))
    return Refusal(because, (Hint("install the driver by packages once, by hand"),))


def _developer(question: Question) -> Judgement:
    """A build that a toolkit brought is on the node now: the way back leads to it. It warns, and refuses nothing."""
    kind = question.kind
    release = question.known.releases.get(_plain(kind.driver) or question.candidate.driver.plain)
    if release is None or release.channel is not Channel.DEVELOPER:
        return ()
    words = f"{kind.driver} on the node is a developer build that came with a CUDA toolkit; the way back leads to it"
    return (RuleSays("developer-driver-now", words, ", ".join(release.provenance.sources)),)


def _plain(driver: str) -> DriverVersion | None:
    try:
        return DriverVersion.parse(driver).plain
    except VersionSyntaxError:
        return None


RULES = (
    Rule("run-over-packages", _no_run_file),
    Rule("carried-by-packages", _packaged),
    Rule("developer-driver-now", _developer),
)
