"""The phase table: every way ends, and no node comes back to service unproved."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.executor import draining, machine, phases
from muster.executor.machine import MEANING, OUT_OF_SERVICE, TRANSITIONS
from muster.executor.phases import PHASES
from muster.model.phase import BEFORE_CHANGE, Event, Phase

ENDS = frozenset(phase for phase, row in TRANSITIONS.items() if not row)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "phases.md"


def reachable(start: Phase, without: frozenset[Phase] = frozenset()) -> frozenset[Phase]:
    """Every phase that can come after `start`, on ways that avoid `without`."""
    found: set[Phase] = set()
    waiting = [start]
    while waiting:
        for after in TRANSITIONS[waiting.pop()].values():
            if after not in found and after not in without:
                found.add(after)
                waiting.append(after)
    return frozenset(found)


def test_every_phase_is_in_the_table_and_has_a_meaning() -> None:
    assert list(TRANSITIONS) == list(Phase) == list(MEANING)


def test_the_ends_are_the_phases_a_run_calls_ended() -> None:
    assert {Phase.DONE, Phase.ROLLED_BACK, Phase.LEFT_OUT, Phase.QUARANTINED} == ENDS


def test_every_phase_that_is_no_end_has_something_to_do() -> None:
    assert set(PHASES) == set(Phase) - ENDS


@pytest.mark.parametrize("phase", sorted(set(Phase) - ENDS))
def test_every_phase_is_on_the_way_to_an_end_and_on_the_way_from_the_beginning(phase: Phase) -> None:
    assert reachable(phase) & ENDS
    assert phase is Phase.PREFLIGHT_REQUIRED or phase in reachable(Phase.PREFLIGHT_REQUIRED)


def test_no_way_goes_in_a_circle() -> None:
    assert [phase for phase in Phase if phase in reachable(phase)] == []


AFTER_APPLY = reachable(Phase.APPLY_REQUIRED) | {Phase.APPLY_REQUIRED}


@pytest.mark.parametrize("phase", sorted(AFTER_APPLY))
def test_once_a_node_was_changed_it_ends_done_rolled_back_or_quarantined(phase: Phase) -> None:
    assert (reachable(phase) | {phase}) & ENDS <= {Phase.DONE, Phase.ROLLED_BACK, Phase.QUARANTINED}


def test_what_lies_before_the_change_can_come_to_it_and_ends_without_one() -> None:
    assert {phase for phase in Phase if Phase.APPLY_REQUIRED in reachable(phase)} == BEFORE_CHANGE
    for phase in BEFORE_CHANGE:
        assert (reachable(phase, frozenset({Phase.APPLY_REQUIRED})) & ENDS) <= {Phase.LEFT_OUT, Phase.QUARANTINED}


@pytest.mark.parametrize("phase", sorted(BEFORE_CHANGE))
def test_a_node_of_a_halted_rollout_is_given_back_unchanged(phase: Phase) -> None:
    after = machine.step(phase, Event.REFUSED)
    assert after in (Phase.LEFT_OUT, Phase.RELEASE_REQUIRED)
    # Whoever may have claimed it, lets go of it: the claim could be on the node before we heard of it.
    assert after is Phase.RELEASE_REQUIRED or phase is Phase.PREFLIGHT_REQUIRED


@pytest.mark.parametrize("phase", [p for p in sorted(AFTER_APPLY) if Event.FAILED in TRANSITIONS[p]])
def test_what_failed_comes_back_only_through_a_validation_on_the_old_driver(phase: Phase) -> None:
    failed = machine.step(phase, Event.FAILED)
    blocked = frozenset({Phase.ROLLBACK_VALIDATE_REQUIRED})
    assert not {failed, *reachable(failed, blocked)} & {Phase.RETURN_REQUIRED, Phase.PROBATION, Phase.DONE}


def test_nothing_comes_back_without_a_validation() -> None:
    blocked = frozenset({Phase.VALIDATE_REQUIRED, Phase.ROLLBACK_VALIDATE_REQUIRED})
    assert Phase.RETURN_REQUIRED not in reachable(Phase.APPLY_REQUIRED, blocked)


def test_out_of_service_is_from_the_cordon_until_the_return() -> None:
    from_cordon = reachable(Phase.CORDON_REQUIRED) | {Phase.CORDON_REQUIRED}
    assert from_cordon - {Phase.PROBATION, Phase.DONE, Phase.ROLLED_BACK, Phase.LEFT_OUT} == OUT_OF_SERVICE


def test_waiting_stays_and_what_is_not_in_the_table_is_our_fault() -> None:
    assert all(machine.step(phase, Event.WAITING) is phase for phase in Phase)
    with pytest.raises(KeyError):
        machine.step(Phase.DONE, Event.PASSED)


FUNCTIONS = {
    each.name: each
    for module in (draining, phases)
    for each in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
}


def events_of(name: str, known: frozenset[str] = frozenset()) -> Iterator[Event]:
    """Every event that is written in a function of phases.py or in one that it calls."""
    for node in ast.walk(FUNCTIONS[name]):
        match node:
            case ast.Attribute(value=ast.Name(id="Event"), attr=attr):
                yield Event[attr]
            case ast.Name(id=called) if called in FUNCTIONS and called not in known | {name}:
                yield from events_of(called, known | {name})
            case _:
                pass


@pytest.mark.parametrize("phase", PHASES)
def test_every_event_that_a_phase_can_come_to_is_in_the_table(phase: Phase) -> None:
    written = set(events_of(PHASES[phase].__name__)) - {Event.WAITING}
    # The runner itself refuses in phases before the change (halt), and fails any phase of a node that stays away.
    written |= {Event.FAILED} | ({Event.REFUSED} if phase in BEFORE_CHANGE else set())
    assert written <= set(TRANSITIONS[phase])


@pytest.mark.parametrize("phase", PHASES)
def test_the_table_has_no_event_that_nothing_can_bring(phase: Phase) -> None:
    written = set(events_of(PHASES[phase].__name__)) | {Event.FAILED}
    written |= {Event.REFUSED} if phase in BEFORE_CHANGE else set()
    assert set(TRANSITIONS[phase]) <= written


def test_the_diagram_shows_every_transition_once() -> None:
    arrows = [line.strip() for line in machine.diagram().splitlines() if "-->" in line]
    assert len(arrows) == len(set(arrows)) == 1 + len(ENDS) + sum(len(row) for row in TRANSITIONS.values())


def test_the_reference_page_is_as_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == machine.page(), "stale: run scripts/docs"
