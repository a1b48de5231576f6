"""What the node's own package lists offer: the driver whole, and the way back.

The lists may be older than the repository; preflight asks the repository itself before anything is touched. What the lists say is missing is
refused here, before anybody waits for a drain; what they do not say is left to preflight, and said so.
"""

from functools import lru_cache

from muster.model.fact import Unknown
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.driver import DriverVersion
from muster.solver.carried import Carried, NotNamed, carried
from muster.solver.doubt import doubt
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.hints import REFRESH_LISTS
from muster.solver.problem import Judgement, Offers, Question, Refusal, Rule

PREFLIGHT = "the node's preflight asks its repository before anything is touched"


def carries(version: str, driver: DriverVersion) -> bool:
    """Whether a package version carries a driver: `2:580.126.20-0ubuntu1` carries 580.126.20; a site's build is carried by itself alone."""
    return version.rpartition(":")[2] == driver.text if driver.revision else upstream(version) == driver.upstream


def upstream(version: str) -> str:
    """The driver version inside a package version."""
    return version.rpartition(":")[2].partition("-")[0]


def _offered(question: Question) -> Judgement:
    """Each package that carries the driver is offered in the new version."""
    offers, driver = question.kind.offers, question.candidate.driver
    if isinstance(offers, Unknown):
        words = f"whether the node's repository has {driver.text} is unknown ({offers.why})"
        return (RuleSays("repository-has-driver", words, "", ask=PREFLIGHT),)
    if question.kind.driver == driver.text or _has(offers, driver):
        return ()
    answer = _carried(question)
    if isinstance(answer, Carried) and answer.renamed:
        # The lists were read for the names of today.
        return (
            RuleSays(
                "repository-has-driver",
                "whether the repository has the packages under their new names is unknown",
                "",
                ask=PREFLIGHT,
            ),
        )
    names = ", ".join(dict.fromkeys(pin.name for pin in question.kind.packages))
    says = RuleSays("repository-has-driver", "packages are installed from the node's own repository alone", "")
    for version, missing in offers.partial:
        if carries(version, driver):
            seen = tuple(Observed(f"package[{name}].offered", "not in this version") for name in missing)
            because = Because(f"the node's repository has {driver.text} without {', '.join(missing)}", (*seen, says))
            return Refusal(because, (REFRESH_LISTS, Hint("or add the missing packages to the repository")))
    newest = offers.whole[-1] if offers.whole else "none"
    seen_newest = Observed("repository.offers", f"{newest} as the newest of {names}")
    because = Because(f"the node's repository does not have {driver.text}", (seen_newest, says))
    return Refusal(because, (REFRESH_LISTS, Hint("or add the driver to the repository")))


def _has(offers: Offers, driver: DriverVersion) -> bool:
    """Whether each package is offered in a version that carries the driver."""
    there = driver.upstream in _upstreams(offers.whole)
    return there and (driver.revision is None or any(carries(version, driver) for version in offers.whole))


@lru_cache(maxsize=256)
def _upstreams(versions: tuple[str, ...]) -> frozenset[str]:
    """The driver versions inside package versions: a node's lists have hundreds, and every candidate asks."""
    return frozenset(upstream(version) for version in versions)


def _way_back(question: Question) -> Judgement:
    """The packages of today can be had again."""
    offers, driver = question.kind.offers, question.candidate.driver
    if isinstance(offers, Unknown) or not offers.lost or question.kind.driver == driver.text:
        return ()
    lost = ", ".join(pin.name for pin in offers.lost)
    says = RuleSays("way-back", "a node is not begun with that cannot come back", "")
    seen = tuple(Observed(f"package[{pin.name}].offered", f"not {pin.version}") for pin in offers.lost)
    because = Because(f"no way back: the node's repository has lost {lost} of today", (*seen, says))
    return Refusal(because, (Hint("put the packages of today into the repository (a snapshot of it keeps them)"),))


def _named(question: Question) -> Judgement:
    """It is known what the driver's packages are called on the new branch and in the new flavour."""
    answer = _carried(question)
    if isinstance(answer, NotNamed):
        says = RuleSays(
            "packages-are-named", "a package's name on another branch is known or it is not; none is guessed", ""
        )
        seen = (
            *(Observed(f"package[{name}].state", "installed") for name in answer.packages),
            Observed("module.nvidia.disk_version", question.kind.driver),
            Observed("module.nvidia.flavour", question.kind.flavour),
            Observed("os.id", question.kind.os),
            Observed("arch", question.kind.arch),
        )
        return Refusal(
            Because(answer.why, (*seen, says)), (Hint("add the names to the knowledge base, as data: package_sets"),)
        )
    if answer is None or not answer.renamed or answer.names_from is None:
        return ()
    provenance = answer.names_from.provenance
    go = f"{len(answer.renamed)} go ({answer.renamed[0]} first)"
    words = f"packages change their names: {go}, {len(answer.packages)} carry {question.candidate.driver.text}"
    weak = doubt((f"the names of {answer.names_from.id}", provenance.confidence))
    return (RuleSays("packages-are-named", words, ", ".join(provenance.sources), weak),)


def _carried(question: Question) -> Carried | NotNamed | None:
    """What carries the candidate; None where nothing is installed by packages, or by a version that is none."""
    kind, candidate = question.kind, question.candidate
    if not kind.packages:
        return None
    try:
        return carried(kind, candidate.driver.text, candidate.flavour, "", question.known)
    except VersionSyntaxError:
        return None


RULES = (
    Rule("packages-are-named", _named),
    Rule("repository-has-driver", _offered),
    Rule("way-back", _way_back),
)
