"""A plan is said whole: every kind of wait has words, and every node that is not planned is named with its reason."""

from dataclasses import replace

import pytest

from muster.model.plan import Waiting, WaitingOn
from muster.planner.lint import lint
from muster.planner.propose import propose
from muster.planner.words import WAITING_WORDS, few, heading, lines
from tests.support.planning import KINDS, fleet, given

NODES, FACTS = fleet(list(KINDS))
PLAN = propose(given(NODES, FACTS))


def test_every_reason_to_wait_has_its_own_words() -> None:
    assert set(WAITING_WORDS) == set(WaitingOn)
    assert len(set(WAITING_WORDS.values())) == len(WaitingOn)
    assert all(WAITING_WORDS.values())


def test_every_node_that_is_left_out_is_said_with_its_reason() -> None:
    said = lines(PLAN, lint(PLAN), approvals=0)
    for left in PLAN.left_out:
        assert any(left.subject in line and left.detail in line and WAITING_WORDS[left.on] in line for line in said)


def test_every_stage_pool_reason_and_note_is_said() -> None:
    said = "\n".join(lines(PLAN, lint(PLAN), approvals=0))
    for part in (
        *(s.name for s in PLAN.stages),
        *(p.pool for p in PLAN.pools),
        *(n.says for n in lint(PLAN)),
        *(word for because in PLAN.because for word in because.partition(": ")[2].split(" ")),
    ):
        assert part in said
    whole = "\n".join(lines(PLAN, (), approvals=0, wide=True))
    assert all(f"  admitted: {because}\n" in whole for because in PLAN.because)


def test_what_one_rule_says_of_several_kinds_of_nodes_is_one_line() -> None:
    told = (
        "580.1: R580 drives Hopper GPUs [a-rule]",
        "580.1: it is known [b-rule]",
        "580.1: R580 drives Turing GPUs [a-rule]",
    )
    said = [line for line in lines(replace(PLAN, because=told), (), approvals=0) if "admitted" in line]
    assert said == ["  admitted: R580 drives Hopper, Turing GPUs [a-rule]", "  admitted: it is known [b-rule]"]
    two = replace(PLAN, because=(*told, "570.2: R570 is old [c-rule]", "570.2: without a rule"))
    said = [line for line in lines(two, (), approvals=0) if "admitted" in line]
    assert said[0] == "  admitted: 580.1: R580 drives Hopper, Turing GPUs [a-rule]"
    assert said[-2:] == ["  admitted: 570.2: R570 is old [c-rule]", "  admitted: 570.2: without a rule"]


@pytest.mark.parametrize(("approvals", "command"), [(0, "plans approve"), (1, "apply")])
def test_the_next_command_depends_on_what_is_still_missing(approvals: int, command: str) -> None:
    assert lines(PLAN, (), approvals)[-1] == f"next: muster {command} {PLAN.id}"


def test_an_empty_plan_says_so_and_asks_for_nothing() -> None:
    empty = replace(
        PLAN, nodes=(), stages=(), pools=(), left_out=(Waiting("n1", WaitingOn.NOTHING_TO_DO, "already runs it"),)
    )
    assert heading(empty).endswith("nothing to change")
    assert not any(line.startswith("next:") for line in lines(empty, (), 0))


def test_many_names_become_a_few_and_a_number() -> None:
    assert few(("a", "b", "c", "d")) == "a, b, c, d"
    assert few(("a", "b", "c", "d", "e", "f")) == "a, b, c, d +2"
