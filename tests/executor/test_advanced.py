"""The run after a result: it never raises, keeps what later phases need, and bounds silence and nothing else."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.executor.machine import TRANSITIONS
from muster.executor.phases import PHASES
from muster.executor.runner import (
    POLL_FIRST_S,
    POLL_MOST_S,
    UNREACHABLE_BEFORE_LEASE_S,
    UNREACHABLE_LIMIT_S,
    advanced,
    stamp,
)
from muster.executor.scene import Result
from muster.model.phase import BEFORE_CHANGE, Event, Phase
from muster.model.run import Run
from muster.planner.gates import failed_by_driver
from tests.support.rollouts import possible, result
from tests.support.values import T0, later, run

AWAY = Result(Event.WAITING, "unreachable (timeout): no answer", notes={"unreachable": "timeout"})
BUSY = Result(Event.WAITING, "is under way")
PAIRS = [(phase, event) for phase in PHASES for event in (*TRANSITIONS[phase], Event.WAITING)]


def at(phase: Phase, **notes: str) -> Run:
    return replace(run("n1", phase=phase), notes=notes)


def after_silence(before: Run, first_s: float, last_s: float) -> Run:
    return advanced(advanced(before, AWAY, later(first_s)), AWAY, later(last_s))


@pytest.mark.parametrize(("phase", "event"), PAIRS)
def test_every_pair_that_can_come_leads_where_the_table_says(phase: Phase, event: Event) -> None:
    after = advanced(at(phase), result(at(phase), event), later(5))
    assert after.phase is (phase if event is Event.WAITING else TRANSITIONS[phase][event])
    assert (after.phase_since == later(5)) == (after.phase is not phase)


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 4000)), max_size=40))
@settings(max_examples=60, deadline=None)
def test_no_course_of_events_raises_or_loses_the_lease(course: list[tuple[int, bool, int]]) -> None:
    now, each = T0, replace(run("n1"), lease=0)
    for choice, away, seconds in course:
        now += timedelta(seconds=seconds)
        if each.ended:
            break
        events = possible(each)
        told = AWAY if away else result(each, events[choice % len(events)])
        if each.phase is Phase.LEASE_REQUIRED and told.event is Event.PASSED:
            told = replace(told, lease=7)
        each = advanced(each, told, now)
        assert each.phase is Phase.PREFLIGHT_REQUIRED or each.lease in (0, 7)
        assert each.wake_at >= now
        if each.phase in (Phase.LEFT_OUT, Phase.QUARANTINED, Phase.ROLLBACK_REQUIRED):
            assert each.notes["cause"]
        if each.phase is Phase.QUARANTINED:
            assert failed_by_driver(each) == ("direction" in each.notes or "broken_before" not in each.notes)


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase is not Phase.PREFLIGHT_REQUIRED])
def test_a_node_that_does_not_answer_for_an_hour_fails_its_phase(phase: Phase) -> None:
    assert after_silence(at(phase), 10, 10 + UNREACHABLE_LIMIT_S).phase is phase
    gone = after_silence(at(phase), 10, 11 + UNREACHABLE_LIMIT_S)
    assert gone.phase is TRANSITIONS[phase][Event.FAILED]
    assert "unreachable" in gone.notes.get("cause", "unreachable")


def test_a_node_that_never_answered_is_left_out_soon() -> None:
    before = at(Phase.PREFLIGHT_REQUIRED)
    assert after_silence(before, 0, UNREACHABLE_BEFORE_LEASE_S).phase is Phase.PREFLIGHT_REQUIRED
    assert after_silence(before, 0, UNREACHABLE_BEFORE_LEASE_S + 1).phase is Phase.LEFT_OUT


@pytest.mark.parametrize("phase", PHASES)
def test_a_lost_packet_after_a_long_wait_ends_nothing(phase: Phase) -> None:
    long = advanced(at(phase), BUSY, later(20 * UNREACHABLE_LIMIT_S))
    assert advanced(long, AWAY, later(20 * UNREACHABLE_LIMIT_S + 1)).phase is phase


@pytest.mark.parametrize("phase", PHASES)
def test_silence_is_counted_without_its_breaks(phase: Phase) -> None:
    each = at(phase)
    for hour in range(5):
        each = advanced(each, AWAY, later(hour * UNREACHABLE_LIMIT_S))
        each = advanced(each, BUSY, later(hour * UNREACHABLE_LIMIT_S + 5))
        assert "unreachable" not in each.notes
    assert each.phase is phase


@pytest.mark.parametrize("phase", sorted(BEFORE_CHANGE | {Phase.RELEASE_REQUIRED}))
def test_what_breaks_before_the_change_never_counts_against_the_driver(phase: Phase) -> None:
    for failed in (
        advanced(at(phase), result(at(phase), Event.FAILED), later(1)),
        after_silence(at(phase), 0, UNREACHABLE_LIMIT_S + 1),
    ):
        assert not failed_by_driver(failed)


@pytest.mark.parametrize(
    "phase",
    [p for p in PHASES if p not in BEFORE_CHANGE | {Phase.RELEASE_REQUIRED}],
)
def test_what_breaks_from_the_change_on_counts_against_the_driver(phase: Phase) -> None:
    assert failed_by_driver(advanced(at(phase), result(at(phase), Event.FAILED), later(1)))


def test_the_first_cause_is_kept_on_the_way_back() -> None:
    each = at(Phase.VALIDATE_REQUIRED)
    each = advanced(each, result(each, Event.FAILED), later(1))
    assert each.notes["failed_in"] == Phase.VALIDATE_REQUIRED.value
    each = advanced(each, Result(Event.WAITING, "the way back is under way"), later(2))
    each = advanced(each, Result(Event.FAILED, "the way back failed 3 times"), later(3))
    assert each.phase is Phase.QUARANTINED
    assert each.notes["cause"] == "n1 went wrong"
    assert each.notes["failed_in"] == Phase.VALIDATE_REQUIRED.value


def test_another_try_counts_within_its_phase_only() -> None:
    each = at(Phase.FETCH_REQUIRED)
    each = advanced(each, Result(Event.WAITING, "is tried again", retry=True), later(1))
    assert each.attempt == 1
    assert advanced(each, BUSY, later(2)).attempt == 1
    assert advanced(each, result(each, Event.PASSED), later(2)).attempt == 0


@given(st.integers(-100, 10**6))
def test_a_wait_is_looked_at_again_soon_and_at_the_latest_after_the_longest_pause(waited_s: int) -> None:
    delay = (advanced(at(Phase.DRAIN_REQUIRED), BUSY, later(waited_s)).wake_at - later(waited_s)).total_seconds()
    assert POLL_FIRST_S <= delay <= POLL_MOST_S


def test_a_time_is_written_with_milliseconds() -> None:
    assert stamp(later(1.0625)) == "2026-03-01T08:00:01.062Z"
