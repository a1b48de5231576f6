"""Questions about what must not be decided from the records. A rule that meets a limit asks instead of deciding, and cites it. Pure."""

from muster.knowledge.claims import Claim
from muster.knowledge.query import branch_number
from muster.knowledge.records import Limit, Subject
from muster.knowledge.schema import KnowledgeBase


def limits(base: KnowledgeBase, subject: Subject) -> tuple[Limit, ...]:
    """The limits about one thing, in the order of the file."""
    return tuple(limit for limit in base.of(Limit).values() if limit.subject is subject)


def limit_named(base: KnowledgeBase, name: str) -> Limit | None:
    """The limit of this id; None where the base has none."""
    return base.of(Limit).get(name)


def limit_claim(limit: Limit) -> Claim:
    """The limit as something to cite: what is not decided, and whom or what to ask."""
    return Claim(f"not decided from the records: {limit.refuses}; ask {limit.ask}", "limit", limit.id, limit.provenance)


def architecture_limit(base: KnowledgeBase, architecture: str) -> Limit | None:
    """The limit that forbids to decide anything for an architecture (Rubin); None where there is none."""
    return next((each for each in limits(base, Subject.RUBIN) if architecture in each.architectures), None)


def modules_limit(base: KnowledgeBase, branch: str) -> Limit | None:
    """The limit that forbids to fall back to proprietary modules on this branch."""
    return next((each for each in limits(base, Subject.PROPRIETARY_MODULES) if _from(each, branch)), None)


def in_place_limit(base: KnowledgeBase, before: str, after: str, *, switches: bool) -> Limit | None:
    """The limit that forbids a change of branch without a reboot.

    `switches`: the node has NVSwitches and the version of its Fabric Manager is not read back.
    """
    for each in limits(base, Subject.IN_PLACE):
        if each.from_branch is None or each.to_branch is None:
            if switches and before != after:
                return each
        elif branch_number(before) <= branch_number(each.from_branch) and _to(each, after):
            return each
    return None


def _from(limit: Limit, branch: str) -> bool:
    return limit.from_branch is not None and branch_number(branch) >= branch_number(limit.from_branch)


def _to(limit: Limit, branch: str) -> bool:
    return limit.to_branch is not None and branch_number(branch) >= branch_number(limit.to_branch)
