"""What the node's own package lists offer: the driver whole, and the way back.

The lists may be older than the repository; preflight asks the repository itself before anything is touched. What the lists say is missing is
refused here, before anybody waits for a drain; what they do not say is left to preflight, and said so.
"""

from collections.abc import Iterator
from functools import lru_cache

from muster.knowledge.schema import PackageRole, PackageSet
from muster.model.fact import Unknown
from muster.model.versions.driver import DriverVersion
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


def _same_names(question: Question) -> Judgement:
    """The driver's packages bear the same names on the new branch, in the repository from which they came."""
    kind, candidate = question.kind, question.candidate
    branch = _branch_number(kind.driver)
    now = None if branch is None else _installed_set(question, branch)
    then = None if now is None else _set_on(question, candidate.number, now.repository)
    if branch is None or now is None or then is None:
        return ()
    modules = {each.name_for(branch) for each in now.members if each.role is PackageRole.MODULE}
    after = [each.name_for(candidate.number) for each in then.members]
    moved = [pin.name for pin in kind.packages if pin.name in modules and pin.name not in after]
    if not moved:
        return ()
    module = next(each.name_for(candidate.number) for each in then.members if each.role is PackageRole.MODULE)
    says = RuleSays(
        "packages-keep-their-names", f"on {candidate.branch} the modules come as {module}, not as {moved[0]}",
        ", ".join(then.provenance.sources), doubt((f"the names on {candidate.branch}", then.provenance.confidence)),
    )  # fmt: skip
    seen = (
        Observed(f"package[{moved[0]}].state", "installed"), Observed("module.nvidia.disk_version", kind.driver),
        Observed("os.id", kind.os), Observed("module.nvidia.flavour", kind.flavour),
    )  # fmt: skip
    because = Because(f"the driver's packages have other names on {candidate.branch}", (*seen, says))
    return Refusal(
        because, (Hint("this release moves versions, not names: change the names on the nodes by hand once"),)
    )


def _branch_number(driver: str) -> int | None:
    """The branch number at the beginning of a driver's text; None where there is none."""
    first = driver.partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() and len(first) < 6 else None


def _sets(question: Question, branch: int) -> Iterator[PackageSet]:
    """The package sets that serve the node on a branch, whatever its CPU: names do not differ by it."""
    name, _, version = question.kind.os.partition(" ")
    distribution = f"{name}{version.replace('.', '')}"
    for each in question.known.package_sets:
        serves = distribution in each.distributions and each.flavour == question.kind.flavour
        if serves and each.first_branch <= branch <= each.last_branch:
            yield each


def _installed_set(question: Question, branch: int) -> PackageSet | None:
    """The set most of whose packages the node has, its module's among them: it tells from which repository the driver came."""
    names = {pin.name for pin in question.kind.packages}
    best, most = None, 0
    for each in _sets(question, branch):
        own = [member for member in each.members if member.name_for(branch) in names]
        if len(own) > most and any(member.role is PackageRole.MODULE for member in own):
            best, most = each, len(own)
    return best


def _set_on(question: Question, branch: int, repository: str) -> PackageSet | None:
    return next((each for each in _sets(question, branch) if each.repository == repository), None)


RULES = (
    Rule("packages-keep-their-names", _same_names),
    Rule("repository-has-driver", _offered),
    Rule("way-back", _way_back),
)
