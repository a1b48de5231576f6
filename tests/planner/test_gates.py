"""What may begin: whatever the nodes do and in whatever order, no pool loses more than its limit and no bad driver goes on."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model.phase import Event, Phase
from muster.model.plan import Plan, WaitingOn
from muster.model.quantities import Amount
from muster.model.run import RolloutState, Run
from muster.planner.gates import decide, failed_by_driver
from muster.planner.stages import Candidate, StageWish
from tests.support.planning import staged
from tests.support.rollouts import World, away, by_chance, ended, runs_of, well
from tests.support.values import T0, later

WISHES = (
    StageWish("canary", None, 4),
    StageWish("25%", Amount.parse("25%"), 3),
    StageWish("100%", Amount.parse("100%"), 0),
)


def laid(
    nodes: int, limits: Mapping[str, int], *, strata: int = 1, seed: int = 0, wishes: tuple[StageWish, ...] = WISHES
) -> Plan:
    chance = Random(seed)
    names = [f"n{at:02}" for at in range(nodes)]
    pools = {name: chance.choice(sorted(limits)) for name in names}
    found = [
        Candidate(name, str(chance.randrange(strata)), chance.randrange(3), chance.random() < 0.5) for name in names
    ]
    return staged(found, wishes, limits, pools)


PLANS = st.builds(
    laid,
    nodes=st.integers(1, 16),
    limits=st.dictionaries(st.sampled_from(("a", "b", "c")), st.integers(1, 4), min_size=1),
    strata=st.integers(1, 8),
    seed=st.integers(0, 10**6),
)
WORLDS = st.builds(
    lambda plan, seed, trouble: World(plan, by_chance(seed, trouble)),
    PLANS,
    st.integers(0, 10**6),
    st.sampled_from((0.0, 0.02, 0.1, 0.4)),
)


@given(WORLDS)
@settings(max_examples=80, deadline=None)
def test_in_no_order_of_outcomes_does_a_pool_lose_more_than_its_limit(world: World) -> None:
    for _ in world.rounds(400):
        for limits in world.plan.pools:
            assert away(world.plan, world.runs, limits.pool) <= limits.unavailable


@given(WORLDS)
@settings(max_examples=80, deadline=None)
def test_a_group_begins_when_all_before_it_have_ended_and_the_stage_has_soaked(world: World) -> None:
    for decision in world.rounds(400):
        for run in world.runs:
            if run.run_id in decision.release:
                before = [each for each in world.runs if (each.stage, each.group) < (run.stage, run.group)]
                assert all(each.ended for each in before)
                for each in before:
                    if each.stage < run.stage:
                        soak = timedelta(seconds=world.plan.stages[each.stage].soak_s)
                        assert each.phase_since + soak <= world.now


@given(WORLDS)
@settings(max_examples=80, deadline=None)
def test_until_one_canary_has_come_through_at_most_one_node_is_exposed(world: World) -> None:
    for _ in world.rounds(400):
        if not any(run.phase is Phase.DONE for run in world.runs):
            assert sum(run.released and not run.ended for run in world.runs) <= 1
            assert not any(run.released and run.stage > 0 for run in world.runs)


@given(WORLDS)
@settings(max_examples=80, deadline=None)
def test_a_driver_that_fails_on_a_canary_or_twice_reaches_nothing_more(world: World) -> None:
    for decision in world.rounds(400):
        failures = {run.node: run.stage for run in world.runs if failed_by_driver(run)}
        if 0 in failures.values() or len(failures) >= 2:
            assert decision.release == ()
            assert world.state is RolloutState.HALTED


@given(PLANS)
@settings(max_examples=60, deadline=None)
def test_when_every_run_ends_well_the_rollout_is_done_within_its_bound(plan: Plan) -> None:
    world = World(plan, well)
    # Each node needs at most its 14 phases and a round to be released, even alone; each stage its soak and a round.
    bound = len(plan.nodes) * 15 + sum(stage.soak_s + 1 for stage in plan.stages) + 1
    decisions = list(world.rounds(bound))
    assert world.state is RolloutState.DONE
    assert all(run.phase is Phase.DONE for run in world.runs)
    assert decisions[-1].why == f"{len(plan.nodes)} of {len(plan.nodes)} nodes changed"


@given(PLANS, st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_a_driver_that_breaks_every_node_harms_exactly_one(plan: Plan, seed: int) -> None:
    chance = Random(seed)
    phases = (Phase.APPLY_REQUIRED, Phase.VERIFY_REQUIRED, Phase.VALIDATE_REQUIRED)
    bad = phases[chance.randrange(3)]
    world = World(plan, lambda run: Event.FAILED if run.phase is bad else well(run))
    for _ in world.rounds(400):
        pass
    assert world.state is RolloutState.HALTED
    assert [run.phase for run in world.runs if run.released] == [Phase.ROLLED_BACK]


@given(WORLDS)
@settings(max_examples=40, deadline=None)
def test_the_same_runs_and_time_give_the_same_decision_and_every_wait_has_words(world: World) -> None:
    for decision in world.rounds(60):
        assert decide(world.plan, world.runs, world.now, world.state) == decide(
            world.plan, world.runs, world.now, world.state
        )
        assert all(each.detail and each.subject for each in decision.waiting)
        if decision.state is RolloutState.RUNNING and not decision.release:
            assert decision.why


@pytest.mark.parametrize("state", [state for state in RolloutState if state is not RolloutState.RUNNING])
def test_a_rollout_that_does_not_run_releases_nothing_and_stays_as_it_is(state: RolloutState) -> None:
    plan = laid(6, {"a": 6})
    decision = decide(plan, runs_of(plan), T0, state)
    assert (decision.release, decision.state) == ((), state)


def after_canaries(plan: Plan) -> list[Run]:
    """All canaries done, nothing else begun, every soak over."""
    return [ended(run, Phase.DONE) if run.stage == 0 else run for run in runs_of(plan)]


PLAN = laid(12, {"a": 12})
SECOND = [run.node for run in runs_of(PLAN) if run.stage == 1]


def with_failed(nodes: list[str], phase: Phase = Phase.ROLLED_BACK) -> list[Run]:
    return [ended(run, phase, cause="GPU 3 is gone") if run.node in nodes else run for run in after_canaries(PLAN)]


def test_one_failure_after_the_canaries_does_not_halt_and_the_second_does() -> None:
    assert decide(PLAN, with_failed(SECOND[:1]), later(60)).state is RolloutState.RUNNING
    last = next(run.node for run in runs_of(PLAN) if run.stage == 2)
    decision = decide(PLAN, with_failed([SECOND[0], last]), later(60))
    assert decision.state is RolloutState.HALTED
    assert "2 nodes failed on 580.126.20" in decision.why
    assert "GPU 3 is gone" in decision.why


@pytest.mark.parametrize(
    "phase", [Phase.ROLLBACK_REQUIRED, Phase.ROLLBACK_VALIDATE_REQUIRED, Phase.ROLLED_BACK, Phase.QUARANTINED]
)
def test_a_failing_canary_halts_at_once_and_by_name(phase: Phase) -> None:
    runs = [ended(run, phase, cause="did not load") if run.stage == run.group == 0 else run for run in runs_of(PLAN)]
    decision = decide(PLAN, runs, later(60))
    assert (decision.release, decision.state) == ((), RolloutState.HALTED)
    assert decision.why == f"{runs[0].node}, a canary, failed on 580.126.20: did not load"


def test_a_node_on_its_way_back_through_the_return_still_counts() -> None:
    runs = [
        ended(run, Phase.RETURN_REQUIRED, direction="back") if run.group == run.stage == 0 else run
        for run in runs_of(PLAN)
    ]
    assert decide(PLAN, runs, later(60)).state is RolloutState.HALTED


def test_what_was_broken_before_does_not_count_against_the_driver() -> None:
    broken = [
        replace(run, notes={"broken_before": "GPU 3 is gone"}) if run.node in SECOND[:2] else run
        for run in with_failed(SECOND[:2], Phase.QUARANTINED)
    ]
    decision = decide(PLAN, broken, later(60))
    assert decision.state is RolloutState.RUNNING
    assert decision.release


@pytest.mark.parametrize("phase", [Phase.LEFT_OUT, Phase.QUARANTINED])
def test_canaries_that_proved_nothing_hold_what_comes_after_them(phase: Phase) -> None:
    broken = {"broken_before": "x"} if phase is Phase.QUARANTINED else {}
    runs = [ended(run, phase, T0, cause="the node moved", **broken) if run.stage == 0 else run for run in runs_of(PLAN)]
    decision = decide(PLAN, runs, later(600))
    assert (decision.release, decision.state) == ((), RolloutState.HALTED)
    assert "no canary came to run 580.126.20, so nothing is proved" in decision.why
    one = [ended(run, Phase.DONE) if run.group == 0 and run.stage == 0 else run for run in runs]
    assert decide(PLAN, one, later(600)).release


def test_a_stage_soaks_to_its_last_second() -> None:
    runs = after_canaries(PLAN)
    early, right = decide(PLAN, runs, later(3)), decide(PLAN, runs, later(4))
    assert early.release == ()
    assert [each.on for each in early.waiting] == [WaitingOn.SOAK]
    assert "soaks until 08:00:04 UTC" in early.why
    assert len(right.release) == len(SECOND)


def test_a_quarantined_node_keeps_its_place_in_the_budget() -> None:
    plan = laid(12, {"a": 1})
    first = [
        ended(run, Phase.DONE)
        if run.stage == 0
        else ended(run, Phase.QUARANTINED, broken_before="x")
        if run.stage == 1
        else run
        for run in runs_of(plan)
    ]
    decision = decide(plan, first, later(600))
    assert decision.release == ()
    assert {each.on for each in decision.waiting} == {WaitingOn.BUDGET}
    assert "under way or quarantined" in decision.why
