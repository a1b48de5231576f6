"""Which drivers a wish can mean, best first. Pure."""

from muster.knowledge.schema import BranchKind, Channel, KnowledgeBase
from muster.model.policy import DriverWish, ReleaseLine, WantBranch, WantNewest, WantVersion
from muster.model.versions.driver import DriverVersion

FOR_FLEETS = (Channel.DATACENTER, Channel.NEW_FEATURE)
"""Channels whose builds are chosen by themselves; others only when a policy names them exactly."""

_KINDS = {ReleaseLine.LONG_TERM_SUPPORT: BranchKind.LONG_TERM_SUPPORT, ReleaseLine.PRODUCTION: BranchKind.PRODUCTION}


def candidates(wish: DriverWish, known: KnowledgeBase) -> tuple[DriverVersion, ...]:
    """The drivers that meet the wish, the best first; empty when the knowledge base has none."""
    match wish:
        case WantVersion(version=version):
            return (version,)
        case WantBranch(branch=branch):
            return _of_branch(branch, known)
        case WantNewest(line=line):
            branches = sorted(
                (b for b in known.branches.values() if b.kind is _KINDS[line]), key=lambda b: b.number, reverse=True
            )
            return tuple(version for branch in branches for version in _of_branch(branch.name, known))


def _of_branch(branch: str, known: KnowledgeBase) -> tuple[DriverVersion, ...]:
    builds = [r.version for r in known.releases.values() if r.branch == branch and r.channel in FOR_FLEETS]
    return tuple(sorted(builds, reverse=True))


def wish_text(wish: DriverWish) -> str:
    """The wish as people say it."""
    match wish:
        case WantVersion(version=version):
            return version.text
        case WantBranch(branch=branch):
            return f"the newest of {branch}"
        case WantNewest(line=line):
            return f"the newest {line.value} driver"
