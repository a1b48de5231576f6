"""An approval covers an envelope: nodes may come, go and move inside it, and whatever goes beyond needs somebody's word again."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from muster.model.plan import Plan, Stratum
from muster.planner.envelope import outside
from muster.planner.propose import propose
from muster.solver.words import DOUBT
from tests.support.planning import fleet, given

APPROVED = propose(given(*fleet(["good"] * 8)))
POOL = APPROVED.pools[0]


def test_the_same_plan_and_one_of_fewer_or_other_nodes_are_within() -> None:
    assert outside(APPROVED, APPROVED) == ()
    for kinds in (["good"] * 6, ["good"] * 8 + ["busy"] * 2, ["as wanted"] * 4 + ["good"] * 4):
        assert outside(propose(given(*fleet(kinds))), APPROVED) == ()


WIDER: dict[str, Callable[[Plan], Plan]] = {
    "its target is 590.1, and 580.126.20 was approved": lambda plan: replace(plan, target="590.1"),
    "its flavour is proprietary": lambda plan: replace(plan, flavour="proprietary"),
    "its fleet is other": lambda plan: replace(plan, fleet="other"),
    "the policy has changed": lambda plan: replace(plan, policy_revision="p2"),
    "the knowledge base is another one": lambda plan: replace(plan, knowledge_revision="k2"),
    "it needs 2 approvals, and 1 were asked for": lambda plan: replace(plan, approvals=2),
    "pool other was not part of it": lambda plan: replace(plan, pools=(*plan.pools, replace(POOL, pool="other"))),
    f"of pool {POOL.pool} 3 nodes may be away, and 2 were approved": lambda plan: replace(plan, pools=(replace(POOL, unavailable=3),)),
    "it holds back fewer nodes for comparison": lambda plan: replace(plan, control=0),
    "it has no canaries": lambda plan: replace(plan, stages=plan.stages[1:]),
    "it rests on more that is from memory": lambda plan: replace(plan, because=(f"x ({DOUBT}: y)",)),
    "a kind of node without a statistical gate has joined: odd": lambda plan: replace(plan, strata=(Stratum("odd", 2, 0),)),
}  # fmt: skip


@pytest.mark.parametrize("says", WIDER)
def test_what_goes_beyond_is_named(says: str) -> None:
    found = outside(WIDER[says](APPROVED), APPROVED)
    assert len(found) == 1
    assert found[0].startswith(says)


def test_a_pool_that_has_grown_may_lose_its_share_of_what_has_joined() -> None:
    grown = replace(APPROVED, pools=(replace(POOL, nodes=POOL.nodes * 2, unavailable=4), *APPROVED.pools[1:]))
    assert outside(grown, APPROVED) == ()
