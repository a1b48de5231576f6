"""Which drivers a wish can mean, best first. Pure."""

from muster.knowledge.query import branches_of_line, releases
from muster.knowledge.schema import KnowledgeBase
from muster.model.policy import DriverWish, WantBranch, WantNewest, WantVersion
from muster.model.versions.driver import DriverVersion


def candidates(wish: DriverWish, known: KnowledgeBase) -> tuple[DriverVersion, ...]:
    """The drivers that meet the wish, the best first; empty when the knowledge base has none.

    Only builds of channels for fleets are chosen; others must be named exactly. An older branch of the kind comes after all of a newer one.
    """
    match wish:
        case WantVersion(version=version):
            return (version,)
        case WantBranch(branch=branch):
            return _of_branch(branch, known)
        case WantNewest(line=line):
            branches = sorted(branches_of_line(known, line), key=lambda branch: branch.number, reverse=True)
            return tuple(version for branch in branches for version in _of_branch(branch.name, known))


def _of_branch(branch: str, known: KnowledgeBase) -> tuple[DriverVersion, ...]:
    return tuple(sorted((release.version for release in releases(known, branch)), reverse=True))


def wish_text(wish: DriverWish) -> str:
    """The wish as people say it."""
    match wish:
        case WantVersion(version=version):
            return version.text
        case WantBranch(branch=branch):
            return f"the newest of {branch}"
        case WantNewest(line=line):
            return f"the newest {line.value} driver"
