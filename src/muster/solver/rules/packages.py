"""What the node's own package lists offer: the driver whole, and the way back.

The lists may be older than the repository; preflight asks the repository itself before anything is touched. What the lists say is missing is
refused here, before anybody waits for a drain; what they do not say is left to preflight, and said so.
"""

from muster.knowledge.schema import PackageRole, PackageSet
from muster.model.fact import Unknown
from muster.model.versions.driver import DriverVersion
from muster.solver.explain import Because, Hint, Observed, RuleSays
from muster.solver.hints import REFRESH_LISTS
from muster.solver.problem import Judgement, Question, Refusal, Rule

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
    if any(carries(version, driver) for version in offers.whole) or question.kind.driver == driver.text:
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
    """The driver's packages bear the same names on the new branch."""
    kind, candidate = question.kind, question.candidate
    now, then = _set(question, upstream_branch(kind.driver)), _set(question, candidate.number)
    if now is None or then is None or now is then:
        return ()
    before = {each.name_for(upstream_branch(kind.driver) or 0): each.role for each in now.members}
    after = {each.name_for(candidate.number) for each in then.members}
    moved = [pin.name for pin in kind.packages if before.get(pin.name) is PackageRole.MODULE and pin.name not in after]
    if not moved:
        return ()
    module = next(
        (each.name_for(candidate.number) for each in then.members if each.role is PackageRole.MODULE), "another"
    )
    says = RuleSays(
        "packages-keep-their-names",
        f"on {candidate.branch} the modules come as {module}, not as {moved[0]}",
        ", ".join(then.provenance.sources),
    )
    because = Because(
        f"the driver's packages have other names on {candidate.branch}",
        (
            Observed(f"package[{moved[0]}].state", "installed"),
            Observed("module.nvidia.disk_version", kind.driver),
            says,
        ),
    )
    return Refusal(
        because, (Hint("this release moves versions, not names: change the names on the nodes by hand once"),)
    )


def upstream_branch(driver: str) -> int | None:
    """The branch number at the beginning of a driver's text; None where there is none."""
    first = driver.partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() and len(first) < 6 else None


def _set(question: Question, branch: int | None) -> PackageSet | None:
    """The package set that serves the node on a branch, whatever its CPU: names do not differ by it."""
    name, _, version = question.kind.os.partition(" ")
    distribution = f"{name}{version.replace('.', '')}"
    for each in question.known.package_sets:
        if (
            branch is not None
            and distribution in each.distributions
            and each.flavour == question.kind.flavour
            and each.first_branch <= branch <= each.last_branch
        ):
            return each
    return None


RULES = (
    Rule("packages-keep-their-names", _same_names),
    Rule("repository-has-driver", _offered),
    Rule("way-back", _way_back),
)
