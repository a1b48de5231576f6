"""Ids that are hashes stay as they are: a plan that was approved keeps its id over our releases."""

from dataclasses import fields, replace

import pytest

from muster.model.audit import GENESIS, append, canonical
from muster.model.plan import SCHEMA_1, Bound, Forecast, Stratum, plan_body
from muster.model.plan_form import plan_from_body
from tests.support.values import plan, record

GOLDEN_PLAN = "plan-548ab21397aa2dde"
GOLDEN_PLAN_2 = "plan-2171ef74f240feae"
GOLDEN_ENTRY = "5c33d074866d10606a34bda271cf1e5c20131169e5eb768352ba5b697183e382"
"""Computed once. A change here means that stored plans and chains lose their names: that takes a new schema, not a new constant."""


def test_the_id_of_a_plan_is_the_same_as_in_the_first_release() -> None:
    old = replace(plan(), schema=SCHEMA_1)
    assert old.id == GOLDEN_PLAN
    assert plan_from_body(plan_body(old)) == old


def test_the_id_of_a_plan_of_the_second_form_stays_as_it_is() -> None:
    assert plan().id == GOLDEN_PLAN_2


def test_the_hash_of_an_audit_entry_is_the_same_as_in_the_first_release() -> None:
    assert append("rollout-1", 1, record("begin", plan=GOLDEN_PLAN), GENESIS).hash == GOLDEN_ENTRY


def test_every_field_of_a_plan_is_in_its_id() -> None:
    base = plan()
    others = [
        replace(base, fleet="x"), replace(base, created_at="x"), replace(base, parent="x"), replace(base, target="x"),
        replace(base, flavour="x"), replace(base, policy_revision="x"), replace(base, knowledge_revision="x"),
        replace(base, facts_revision="x"), replace(base, approvals=2), replace(base, pools=()), replace(base, stages=()),
        replace(base, nodes=base.nodes[:1]), replace(base, left_out=()), replace(base, because=()),
        replace(base, control=1), replace(base, bounds=(Bound("rack", "r1", 4, 1),)), replace(base, strata=(Stratum("s", 1, 0),)),
        replace(base, forecast=Forecast(1, 0, 0, (), 0)), replace(base, schema=SCHEMA_1),
    ]  # fmt: skip
    assert len({base.id, *(other.id for other in others)}) == 1 + len(others) == 1 + len(fields(base))


def test_a_changed_copy_has_its_own_id_and_its_own_parts() -> None:
    base = plan()
    assert base.node("n2").node == "n2"
    other = replace(base, nodes=base.nodes[:1])
    assert other.id != base.id
    with pytest.raises(KeyError):
        other.node("n2")
    assert replace(other, nodes=base.nodes) == base
    assert replace(other, nodes=base.nodes).id == base.id


@pytest.mark.parametrize("value", [{1: "a"}, {"a": {None: 1}}, [{True: 1}], {("a",): 1}])
def test_a_key_that_is_no_text_has_no_canonical_json(value: object) -> None:
    with pytest.raises(TypeError, match="texts as keys"):
        canonical(value)
