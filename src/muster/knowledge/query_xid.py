"""Questions about Xids: what a code means, and whether anything may be done about it without a person. Pure."""

from muster.knowledge.query_limits import limit_named
from muster.knowledge.records import Limit
from muster.knowledge.records_libs import Xid, XidAction
from muster.knowledge.schema import KnowledgeBase


def xid_meaning(base: KnowledgeBase, code: int) -> Xid | None:
    """The record of a code; None for one that is not recorded, which is never "ignore"."""
    return base.of(Xid).get(str(code))


def xid_limit(base: KnowledgeBase, code: int, architecture: str) -> Limit | None:
    """The limit that forbids an automatic action for this code on a GPU of this architecture; None where none does."""
    old, new = limit_named(base, "xid-before-ampere"), limit_named(base, "xid-from-162")
    if old is not None and architecture in old.architectures:
        return old
    if new is not None and new.xid_from is not None and code >= new.xid_from:
        return new
    found = xid_meaning(base, code)
    if found is None:
        return limit_named(base, "xid-unknown")
    return limit_named(base, "xid-workflow") if found.action is XidAction.WORKFLOW else None
