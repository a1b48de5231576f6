"""A change begins inside its pool's windows or not at all; one that has begun is not stopped by the end of a window."""

from dataclasses import replace
from typing import cast

import pytest

from muster.backends.packages.apt import BACKEND as APT
from muster.executor.runner import Runner, Tools
from muster.model.command import Command, Outcome, Unreachable
from muster.model.node import Node
from muster.model.phase import BEFORE_CHANGE, Phase
from muster.model.plan import CHANGE_S, Span
from muster.ports import Clock, Ids, Scheduler, Transport, Validator
from tests.support.memory_store import MemoryStore
from tests.support.rollouts import runs_of
from tests.support.values import T0, inline, later, plan, record, rollout


class Still:
    """A clock that stands at T0, and a giver of one id."""

    def now(self) -> object:
        return T0

    def monotonic(self) -> float:
        return 0.0

    def new(self, kind: str) -> str:
        return f"{kind}-00000001"


class Silent:
    """A transport that counts what it was asked and reaches nobody."""

    name = "none"

    def __init__(self) -> None:
        self.asked = 0

    async def run(self, node: Node, command: Command) -> Outcome:
        self.asked += 1
        return Unreachable("timeout", "nobody answers", "")

    async def uncordon(self, node: Node, reason: str) -> Outcome:
        return Unreachable("timeout", "nobody answers", "")


def after(phase: Phase, *windows: Span) -> tuple[Phase, str, int]:
    """The phase of a run after one advance from `phase`, its words, and how often the node was asked."""
    proposal = plan()
    proposal = replace(proposal, pools=(replace(proposal.pools[0], windows=windows),))
    store, transport = MemoryStore(), Silent()
    inline(store.save_plan(proposal))
    inline(store.save_nodes([Node(name, name, None, None, {}, "hosts:1") for name in ("n1", "n2", "n3")]))
    (first, *_) = runs_of(proposal)
    inline(store.begin(rollout(proposal.id), [replace(first, phase=phase, released=True, claim=1)], record()))
    tools = Tools(
        store=store, transport=cast(Transport, transport), clock=cast(Clock, Still()), ids=cast(Ids, Still()), specs=(),
        managers={"apt": APT}, scheduler=lambda _: cast(Scheduler, transport), validator=cast(Validator, None), holder="me",
    )  # fmt: skip
    inline(Runner(tools).advance(first.run_id, 1))
    moved = inline(store.run(first.run_id))
    return moved.phase, moved.notes.get("cause", "") or moved.waiting, transport.asked


@pytest.mark.parametrize("phase", sorted(BEFORE_CHANGE))
@pytest.mark.parametrize("closes_s", [-60, 60, CHANGE_S - 1])
def test_a_run_that_has_changed_nothing_is_given_back_when_too_little_of_the_window_is_left(
    phase: Phase, closes_s: int
) -> None:
    found, words, asked = after(phase, Span(later(-7200), later(closes_s)))
    assert found is (Phase.LEFT_OUT if phase is Phase.PREFLIGHT_REQUIRED else Phase.RELEASE_REQUIRED)
    assert "the window of pool train closes too soon" in words
    assert asked == 0


@pytest.mark.parametrize("windows", [(), (Span(later(-60), later(CHANGE_S)),)])
def test_inside_a_window_or_without_any_the_node_is_asked(windows: tuple[Span, ...]) -> None:
    _, words, asked = after(Phase.PREFLIGHT_REQUIRED, *windows)
    assert asked == 1
    assert "nobody answers" in words
