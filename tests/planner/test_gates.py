"""What may begin: whatever the nodes do and in whatever order, no pool loses more than its limit and no bad driver goes on."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model.phase import Event, Phase
from muster.model.plan import CHANGE_S, Plan, Span, WaitingOn
from muster.model.quantities import Amount
from muster.model.run import RolloutState, Run
from muster.planner.gates import decide, failed_by_driver
from muster.planner.stages import StageWish
from muster.planner.units import Unit
from tests.support.planning import staged
from tests.support.rollouts import World, away, by_chance, ended, runs_of, well
from tests.support.values import T0, later

WISHES = (
    StageWish("canary", None, 4),
    StageWish("25%", Amount.parse("25%"), 3),
    StageWish("100%", Amount.parse("100%"), 0),
)


def laid(
    nodes: int,
    limits: Mapping[str, int],
    *,
    strata: int = 1,
    seed: int = 0,
    racks: Mapping[str, int] | None = None,
    domains: int = 0,
    wishes: tuple[StageWish, ...] = WISHES,
    control: Amount | None = None,
) -> Plan:
    """A plan of `nodes` nodes, of which the first `domains` pairs are changed as one."""
    chance = Random(seed)
    names = [f"n{at:02}" for at in range(nodes)]
    pools = {name: chance.choice(sorted(limits)) for name in names}
    wide = {name: max(limit, 2) if domains else limit for name, limit in limits.items()}
    found: list[Unit] = []
    while names:
        members = tuple(names[: 2 if len(found) < domains else 1])
        del names[: len(members)]
        pools |= dict.fromkeys(members, pools[members[0]])
        free_s = chance.choice((0, 60, None))
        found.append(
            Unit(
                members[0] if len(members) == 1 else f"pair-{members[0]}", members, str(chance.randrange(strata)), chance.randrange(3),
                free_s, len(found), (chance.choice("pqrstuvw"),) if free_s and chance.random() < 0.3 else (),
                (chance.choice(sorted(racks)),) if racks else (),
            )
        )  # fmt: skip
    bounds = {rack: max(most, 2) if domains else most for rack, most in (racks or {}).items()}
    return staged(found, wishes, wide, pools, racks=bounds, control=control)


PLANS = st.builds(
    laid,
    nodes=st.integers(1, 16),
    limits=st.dictionaries(st.sampled_from(("a", "b", "c")), st.integers(1, 4), min_size=1),
    strata=st.integers(1, 8),
    seed=st.integers(0, 10**6),
    racks=st.none() | st.dictionaries(st.sampled_from(("r1", "r2")), st.integers(1, 3), min_size=1),
    domains=st.integers(0, 2),
    control=st.none() | st.just(Amount.parse("20%")),
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
            assert away(world.plan, world.runs, "pool", limits.pool) <= limits.unavailable
        for bound in world.plan.bounds:
            assert away(world.plan, world.runs, bound.kind, bound.name) <= bound.unavailable


@given(WORLDS)
@settings(max_examples=40, deadline=None)
def test_nodes_that_are_changed_as_one_begin_at_one_time(world: World) -> None:
    for _ in world.rounds(400):
        begun: dict[str, set[bool]] = {}
        for run in world.runs:
            begun.setdefault(world.plan.node(run.node).unit, set()).add(run.released)
        assert all(len(each) == 1 for each in begun.values())


@given(WORLDS, st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_in_no_order_of_outcomes_does_a_change_begin_outside_its_windows(world: World, seed: int) -> None:
    chance = Random(seed)
    pools = {
        limits.pool: tuple(
            Span(later(at), later(at + chance.randrange(CHANGE_S, CHANGE_S + 20))) for at in (5, 9000, 20000)
        )
        for limits in world.plan.pools
        if chance.random() < 0.7
    }
    world.plan = replace(world.plan, pools=tuple(replace(p, windows=pools.get(p.pool, ())) for p in world.plan.pools))
    world.step_s = 7
    for decision in world.rounds(400):
        for run in world.runs:
            if run.run_id in decision.release:
                windows = pools.get(world.plan.node(run.node).pool)
                assert windows is None or any(
                    span.opens <= world.now and world.now + timedelta(seconds=CHANGE_S) <= span.closes
                    for span in windows
                )


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
def test_until_one_canary_has_come_through_at_most_one_unit_is_exposed(world: World) -> None:
    for _ in world.rounds(400):
        if not any(run.phase is Phase.DONE for run in world.runs):
            assert len({world.plan.node(run.node).unit for run in world.runs if run.released and not run.ended}) <= 1
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
def test_a_driver_that_breaks_every_node_harms_exactly_one_unit(plan: Plan, seed: int) -> None:
    chance = Random(seed)
    phases = (Phase.APPLY_REQUIRED, Phase.VERIFY_REQUIRED, Phase.VALIDATE_REQUIRED)
    bad = phases[chance.randrange(3)]
    world = World(plan, lambda run: Event.FAILED if run.phase is bad else well(run))
    for _ in world.rounds(400):
        pass
    assert world.state is RolloutState.HALTED
    harmed = [run for run in world.runs if run.released]
    assert {run.phase for run in harmed} == {Phase.ROLLED_BACK}
    assert len({world.plan.node(run.node).unit for run in harmed}) == 1


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


def test_within_a_stage_what_is_idle_takes_the_room_first() -> None:
    units = [Unit(f"n{at}", (f"n{at}",), "s", 1, 0 if at > 3 else 600 - at, at) for at in range(8)]
    plan = staged(units, (StageWish("100%", Amount.parse("100%"), 0),), {"a": 3}, {f"n{at}": "a" for at in range(8)})
    order = [run.node for run in runs_of(plan)]
    released = decide(plan, sorted(runs_of(plan), key=lambda run: run.node), T0).release
    assert [name.removeprefix("run-") for name in released] == ["n4", "n5", "n6"] == order[:3]


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        ((Span(later(60), later(60 + CHANGE_S)),), "pool a may be changed again from 2026-03-01 08:01 UTC"),
        ((Span(later(-60), later(CHANGE_S - 1)),), "the windows of pool a that this plan knows are over"),
    ],
)
def test_a_closed_window_is_waited_for_and_its_words_say_until_when(spans: tuple[Span, ...], words: str) -> None:
    plan = laid(3, {"a": 3})
    plan = replace(plan, pools=(replace(plan.pools[0], windows=spans),))
    decision = decide(plan, runs_of(plan), T0)
    assert (decision.release, decision.state) == ((), RolloutState.RUNNING)
    assert {each.on for each in decision.waiting} == {WaitingOn.WINDOW}
    assert words in decision.why
