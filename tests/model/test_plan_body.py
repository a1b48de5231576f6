"""A plan's body and its way back."""

import json
from dataclasses import replace
from datetime import UTC, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.audit import canonical
from muster.model.plan import (
    SCHEMA_1,
    Bound,
    Expectation,
    Forecast,
    KernelMove,
    NodePlan,
    Plan,
    PoolLimits,
    Span,
    Stage,
    Step,
    Stratum,
    Waiting,
    WaitingOn,
    plan_body,
)
from muster.model.plan_form import plan_from_body
from muster.model.stack import PackagePin
from tests.support.values import T0, plan

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
WHOLE = st.integers(-(2**70), 2**70)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)


def pairs(kind: type[PackagePin] | type[Expectation]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.dictionaries(TEXT, TEXT, max_size=3).map(lambda each: tuple(kind(key, each[key]) for key in sorted(each)))


KERNEL = st.builds(KernelMove, from_kernel=TEXT, to_kernel=TEXT, packages=pairs(PackagePin))
STEP = st.builds(
    Step, from_driver=TEXT, to_driver=TEXT, flavour=TEXT, manager=TEXT, packages=pairs(PackagePin), back=pairs(PackagePin),
    restart=TEXT, expects=pairs(Expectation), done_when=pairs(Expectation), kernel=st.none() | KERNEL,
)  # fmt: skip
STAGE = st.builds(
    Stage, name=TEXT, nodes=TEXTS, groups=st.lists(TEXTS, max_size=3).map(tuple), soak_s=WHOLE, canary=st.booleans(),
    control=st.booleans(),
)  # fmt: skip
TIME = st.datetimes(timezones=st.just(UTC))
POOL = st.builds(
    PoolLimits, pool=TEXT, nodes=WHOLE, unavailable=WHOLE, drain_policy=TEXT, drain_limit_s=WHOLE, tier=TEXT,
    windows=st.lists(st.builds(Span, TIME, TIME), max_size=2).map(tuple),
)  # fmt: skip
NODE = st.builds(
    NodePlan, node=TEXT, pool=TEXT, step=STEP, stratum=TEXT, rack=TEXT, zone=TEXT, tenant=TEXT, domain=TEXT, gpus=WHOLE, jobs=TEXTS,
    free_at=TEXT, drain=TEXT,
)  # fmt: skip
PLAN = st.builds(
    Plan, fleet=TEXT, created_at=TEXT, parent=st.none() | TEXT, target=TEXT, flavour=TEXT, policy_revision=TEXT,
    knowledge_revision=TEXT, facts_revision=TEXT, approvals=WHOLE, pools=st.lists(POOL, max_size=2).map(tuple),
    stages=st.lists(STAGE, max_size=2).map(tuple),
    nodes=st.lists(NODE, max_size=3).map(tuple),
    left_out=st.lists(st.builds(Waiting, subject=TEXT, on=st.sampled_from(WaitingOn), detail=TEXT), max_size=2).map(tuple),
    because=TEXTS, control=WHOLE, bounds=st.lists(st.builds(Bound, TEXT, TEXT, WHOLE, WHOLE), max_size=2).map(tuple),
    strata=st.lists(st.builds(Stratum, TEXT, WHOLE, WHOLE), max_size=2).map(tuple),
    forecast=st.none() | st.builds(Forecast, WHOLE, WHOLE, WHOLE, st.lists(WHOLE, max_size=2).map(tuple), WHOLE),
)  # fmt: skip


@given(PLAN)
def test_a_plan_comes_back_from_its_body_through_json_with_the_same_id(proposal: Plan) -> None:
    back = plan_from_body(json.loads(canonical(plan_body(proposal))))
    assert back == proposal
    assert back.id == proposal.id


def test_pins_out_of_order_come_back_in_name_order_under_the_same_id() -> None:
    proposal = plan()
    (first, *others) = proposal.nodes
    turned = replace(first, step=replace(first.step, packages=first.step.packages[::-1]))
    assert plan_from_body(plan_body(replace(proposal, nodes=(turned, *others)))) == proposal
    assert replace(proposal, nodes=(turned, *others)).id == proposal.id


def places(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [at] if at else []
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        found += places(member, (*at, key))
    return found


def written(at: tuple[str | int, ...]) -> str:
    return "plan" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in at)


def whole() -> Plan:
    """A plan with something in every field."""
    base = plan()
    span = Span(T0, T0 + timedelta(hours=6))
    nodes = (replace(base.nodes[0], jobs=("7",), free_at="unknown", rack="r1"), *base.nodes[1:])
    return replace(
        base, pools=(replace(base.pools[0], windows=(span,)),), nodes=nodes, control=500, bounds=(Bound("rack", "r1", 3, 1),),
        strata=(Stratum("", 3, 0),), forecast=Forecast(1, 2, 3, (1, 1), 1),
    )  # fmt: skip


BODY = json.loads(canonical(plan_body(whole())))


def test_a_plan_of_the_first_form_comes_back_under_its_id() -> None:
    old = replace(plan(), schema=SCHEMA_1)
    assert plan_from_body(json.loads(canonical(plan_body(old)))) == old


def test_nodes_that_are_alike_share_a_step_in_the_body() -> None:
    body = plan_body(plan())
    assert isinstance(body["steps"], list)
    assert len(body["steps"]) == 1


def changed(at: tuple[str | int, ...], value: object) -> object:
    body = json.loads(json.dumps(BODY))
    inner = body
    for key in at[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return body


@pytest.mark.parametrize("at", places(BODY), ids=written)
def test_a_field_of_another_form_is_named(at: tuple[str | int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^plan") as caught:
        plan_from_body(changed(at, 0.5))
    assert str(caught.value).startswith(written(at) + ":")


NAMES = ("packages", "back", "expects", "done_when")
"""The mappings whose keys are free."""

FIELDS = [at for at in places(BODY) if isinstance(at[-1], str) and (len(at) < 2 or at[-2] not in NAMES)]


@pytest.mark.parametrize("at", FIELDS, ids=written)
def test_a_field_that_is_missing_is_named(at: tuple[str | int, ...]) -> None:
    with pytest.raises(ValueError, match="is missing") as caught:
        plan_from_body(changed(at, ...))
    assert str(caught.value).startswith(written(at) + ":")


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (("approvals",), True, "plan.approvals: must be a whole number"),
        (("stages", 0, "canary"), 1, "plan.stages[0].canary: must be true or false"),
        (("schema",), "muster.plan/3", "plan.schema: must be muster.plan/2, not 'muster.plan/3'"),
        (("left_out", 0, "on"), "luck", "plan.left_out[0].on: 'luck' is no reason to wait"),
        (("steps", 0, "haste"), "yes", "plan.steps[0].haste: is not known"),
        (("nodes", 1, "step"), 7, "plan.nodes[1].step: there is no step 7"),
        (("nodes", 1, "step"), -1, "plan.nodes[1].step: there is no step -1"),
        (("pools", 0, "windows", 0), ["2026-03-07T01:00:00+00:00"], "plan.pools[0].windows[0]: must be two times"),
        (("pools", 0, "windows", 0, 0), "soon", "plan.pools[0].windows[0][0]: 'soon' is no time"),
        (
            ("pools", 0, "windows", 0, 1),
            "2026-03-07T02:00:00+01:00",
            "plan.pools[0].windows[0][1]: '2026-03-07T02:00:00+01:00' is not in the form of UTC that a plan has",
        ),
        (("because",), "it is a text", "plan.because: must be a list"),
    ],
)
def test_what_looks_right_and_is_not_is_named(at: tuple[str | int, ...], value: object, says: str) -> None:
    with pytest.raises(ValueError, match=r"^plan") as caught:
        plan_from_body(changed(at, value))
    assert str(caught.value) == says


@pytest.mark.parametrize("body", [None, [], "plan", 3])
def test_what_is_no_object_is_no_plan(body: object) -> None:
    with pytest.raises(ValueError, match=r"^plan: must be an object$"):
        plan_from_body(body)
