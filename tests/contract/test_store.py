"""The contract of `ports.Store`: every implementation below passes every test."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from muster.discovery import discover
from muster.model import audit
from muster.model.approval import Approval
from muster.model.errors import ClaimLost, UnknownName
from muster.model.fact import Fact, NodeFacts, Unknown
from muster.model.node import Node
from muster.model.phase import BEFORE_CHANGE, Phase
from muster.model.run import RolloutState
from muster.model.validation import Validated
from muster.model.verdict import Degraded, Fail, Pass, Undecided, Verdict
from muster.ports import Store
from tests.support.memory_store import MemoryStore
from tests.support.values import T0, inline, later, look, plan, record, rollout, run

_BACKENDS = discover("muster.backends.store", "BACKEND")


def _file(name: str) -> Callable[[Path], Store]:
    return lambda folder: _BACKENDS[name](str(folder / "muster.db"))  # type: ignore[operator]


IMPLEMENTATIONS: Mapping[str, Callable[[Path], Store]] = {
    **{name: _file(name) for name in _BACKENDS},
    "memory (tests)": lambda _: MemoryStore(),
    "sqlite-memory": lambda _: _BACKENDS["sqlite"](":memory:"),  # type: ignore[operator]
}


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def store(request: pytest.FixtureRequest, tmp_path: Path, covers: Callable[[str, str], None]) -> Iterator[Store]:
    covers("Store", request.param)
    opened = IMPLEMENTATIONS[request.param](tmp_path)
    yield opened
    inline(opened.close())


@pytest.fixture
def begun(store: Store) -> Store:
    """A store with a rollout of three runs: n1 in the canary stage, n2 and n3 after it, n3 not released."""
    proposal = plan()
    inline(store.save_plan(proposal))
    runs = [run("n1"), run("n2", stage=1, wake_s=5), run("n3", stage=1, group=1, released=False)]
    inline(store.begin(rollout(proposal.id), runs, record("began")))
    return store


def chain(store: Store) -> list[str]:
    return [entry.record.kind for entry in inline(store.audit("rollout-1"))]


def test_every_store_that_can_be_found_is_under_contract() -> None:
    assert set(_BACKENDS) <= set(IMPLEMENTATIONS)


def test_every_kind_of_fact_comes_back_as_it_was(store: Store) -> None:
    seen = look(
        "n1", text="1.0", number=2**70, yes=True, one=1, names=("b", "a", ""), none=(), odd="\udcff\0é", blind=Unknown("no root")
    )  # fmt: skip
    inline(store.save_facts([seen]))
    (back,) = inline(store.facts())
    assert back == seen
    assert [type(fact.value) for fact in back.facts.values()] == [type(seen.facts[path].value) for path in back.facts]


def test_facts_come_by_node_name_and_the_last_look_stands(store: Store) -> None:
    inline(store.save_facts([look("n2", driver="570"), look("n1", driver="570")]))
    inline(store.save_facts([look("n2", 60, driver="580")]))
    assert [(facts.node, facts.text("driver")) for facts in inline(store.facts())] == [("n1", "570"), ("n2", "580")]
    assert [inline(store.facts_of(name)) for name in ("n1", "n2")] == list(inline(store.facts()))
    assert inline(store.facts_of("n3")) is None


def test_a_failed_look_leaves_the_old_evidence_with_its_old_time_beside_the_trouble(store: Store) -> None:
    good = look("n1", driver="570")
    inline(store.save_facts([good]))
    inline(store.save_facts([look("n1", 600, trouble="no route")]))
    assert inline(store.facts()) == (replace(good, trouble=Unknown("no route")),)
    inline(store.save_facts([look("n1", 900, driver="570")]))
    assert inline(store.facts())[0].trouble is None
    assert inline(store.facts())[0].observed_at == later(900)


def test_a_partial_look_takes_nothing_away_from_sources_that_it_did_not_ask(store: Store) -> None:
    before = look("n1", driver="570", gone="x")
    other = Fact("kernel.next_boot", "6.1", "kernels", later(0))
    inline(store.save_facts([replace(before, facts={**before.facts, other.path: other})]))
    inline(store.save_facts([replace(look("n1", 60, driver="580"), partial=True)]))
    (kept,) = inline(store.facts())
    assert kept == replace(
        look("n1", 60, driver="580"), facts={**look("n1", 60, driver="580").facts, other.path: other}
    )
    inline(store.save_facts([look("n1", 90, driver="580")]))
    assert other.path not in inline(store.facts())[0].facts


def test_a_node_that_was_never_reached_has_its_trouble_alone(store: Store) -> None:
    inline(store.save_facts([look("n1", 5, trouble="refused")]))
    assert inline(store.facts()) == (look("n1", 5, trouble="refused"),)


def test_every_change_of_a_lasting_value_is_kept_and_nothing_else(store: Store) -> None:
    for at, driver, heat in (
        (0, "570", 40),
        (60, "570", 41),
        (120, Unknown("late"), 42),
        (180, "570", 43),
        (240, "580", 44),
    ):
        inline(store.save_facts([look("n1", at, driver=driver, temperature=heat)]))
    inline(store.save_facts([look("n1", 300, driver="570"), look("n2", 300, driver="1")]))
    assert inline(store.history("n1")) == tuple(
        Fact("driver", value, "test", later(at))
        for value, at in (("570", 0), (Unknown("late"), 120), ("570", 180), ("580", 240), ("570", 300))
    )


def test_the_most_gpus_since_a_time_are_those_that_were_there_at_it_or_came_after(store: Store) -> None:
    lost = Unknown("no answer")
    for at, n1, n2 in ((0, 8, lost), (60, 8, 4), (120, 7, lost), (180, lost, 4), (240, 7, 2)):
        inline(store.save_facts([look("n1", at, gpu__count=n1), look("n2", at, gpu__count=n2), look("n3", at)]))
    assert inline(store.most_gpus(later(0))) == {"n1": 8, "n2": 4}
    assert inline(store.most_gpus(later(119))) == {"n1": 8, "n2": 4}
    assert inline(store.most_gpus(later(120))) == {"n1": 7, "n2": 4}
    assert inline(store.most_gpus(later(9999))) == {"n1": 7, "n2": 2}
    inline(store.save_facts([look("n1", 300, trouble="timeout")]))
    assert inline(store.most_gpus(later(9999))) == {"n1": 7, "n2": 2}


def test_a_value_that_went_away_is_a_change_and_so_is_its_coming_back(store: Store) -> None:
    looks = (
        look("n1", 0, a="1", b="1"),
        look("n1", 1, a="1"),
        look("n1", 2, a="1", c=Unknown("no root")),
        look("n1", 3, trouble="no route"),
        replace(look("n1", 4, a=Unknown("late")), partial=True),
        look("n1", 5, a=Unknown("later"), b="1"),
    )
    for each in looks:
        inline(store.save_facts([each]))
    gone = Unknown("not reported any more")
    assert inline(store.history("n1")) == (
        Fact("a", "1", "test", later(0)), Fact("b", "1", "test", later(0)), Fact("b", gone, "test", later(1)),
        Fact("a", Unknown("late"), "test", later(4)), Fact("b", "1", "test", later(5)),
    )  # fmt: skip


def test_a_value_that_another_source_tells_now_has_not_gone(store: Store) -> None:
    for at, source in enumerate(("one", "two")):
        inline(store.save_facts([NodeFacts("n1", later(at), {"a": Fact("a", "1", source, later(at))})]))
    assert [fact.value for fact in inline(store.history("n1"))] == ["1"]


def test_yes_is_not_one_in_the_history(store: Store) -> None:
    inline(store.save_facts([look("n1", 0, ecc=1)]))
    inline(store.save_facts([look("n1", 1, ecc=True)]))
    assert [fact.value for fact in inline(store.history("n1"))] == [1, True]


def test_nodes_are_added_or_renewed_and_come_by_name(store: Store) -> None:
    first = Node("n2", "10.0.0.2", 22, "ops", {"rack": "r1"}, "inventory.ini:3")
    inline(store.save_nodes([first, Node("n1", "n1", None, None, {}, "fleet.yaml:9")]))
    inline(store.save_nodes([replace(first, address="10.0.0.9", port=None)]))
    found = inline(store.nodes())
    assert [(node.name, node.address, node.port) for node in found] == [("n1", "n1", None), ("n2", "10.0.0.9", None)]
    assert dict(found[1].labels) == {"rack": "r1"}


def test_plans_come_oldest_first_and_keeping_one_again_changes_nothing(store: Store) -> None:
    second, first = plan(target="580.1"), plan(target="590.2")
    for each in (first, second, first):
        inline(store.save_plan(each))
    assert inline(store.plans()) == (first, second)
    assert inline(store.plan_ids()) == (first.id, second.id)
    assert inline(store.plan(second.id)) == second
    with pytest.raises(UnknownName):
        inline(store.plan("plan-0000000000000000"))


def test_an_approver_counts_once_and_the_first_time_stands(store: Store) -> None:
    proposal = plan()
    inline(store.save_plan(proposal))
    first = Approval(proposal.id, "ann", "2026-03-01T08:00:00.000Z", "looks right")
    other = Approval(proposal.id, "ben", "2026-03-01T07:00:00.000Z", "")
    for each in (first, other, replace(first, note="again")):
        inline(store.approve(each))
    assert inline(store.approvals(proposal.id)) == (first, other)
    assert inline(store.approvals("plan-0")) == ()


def test_what_nobody_knows_is_refused_by_name(store: Store) -> None:
    for work in (
        store.approve(Approval("plan-0", "ann", "", "")),
        store.begin(rollout("plan-0"), (), record()),
        store.set_rollout("rollout-0", RolloutState.DONE, "", T0, None),
        store.run("run-0"),
        store.claim("run-0"),
        store.release(["run-0"], T0, record()),
        store.record(run("n9"), ()),
    ):
        with pytest.raises(UnknownName, match=r"-0|n9"):
            inline(work)
    assert inline(store.rollouts()) == ()


def test_a_rollout_begins_with_its_runs_and_its_first_entry(begun: Store) -> None:
    assert [each.rollout_id for each in inline(begun.rollouts())] == ["rollout-1"]
    assert inline(begun.run("run-rollout-1-n2")) == run("n2", stage=1, wake_s=5)
    assert chain(begun) == ["began"]


def test_runs_come_in_stage_group_and_name_order(store: Store) -> None:
    proposal = plan()
    inline(store.save_plan(proposal))
    runs = [run("n4", stage=1), run("n3", stage=0, group=1), run("n2"), run("n1", stage=0, group=1)]
    inline(store.begin(rollout(proposal.id), runs, record()))
    assert [each.node for each in inline(store.runs("rollout-1"))] == ["n2", "n1", "n3", "n4"]


def test_a_rollout_that_could_not_begin_left_nothing(begun: Store) -> None:
    (proposal,) = inline(begun.plans())
    with pytest.raises(TypeError):
        inline(begun.begin(rollout(proposal.id, "rollout-2"), [run("n1", "rollout-2")], record(share=0.5)))
    assert [each.rollout_id for each in inline(begun.rollouts())] == ["rollout-1"]
    assert inline(begun.runs("rollout-2")) == ()
    assert inline(begun.audit("rollout-2")) == ()


def test_a_change_of_state_and_its_entry_are_one(begun: Store) -> None:
    inline(begun.set_rollout("rollout-1", RolloutState.HALTED, "canary failed", later(9), record("halted")))
    with pytest.raises(TypeError):
        inline(begun.set_rollout("rollout-1", RolloutState.DONE, "", later(10), record("done", share=0.5)))
    inline(begun.set_rollout("rollout-1", RolloutState.HALTED, "still", later(11), None))
    (now,) = inline(begun.rollouts())
    assert (now.state, now.why, now.created_at, now.updated_at) == (RolloutState.HALTED, "still", T0, later(11))
    assert chain(begun) == ["began", "halted"]


def test_each_claim_is_one_more(begun: Store) -> None:
    assert [inline(begun.claim("run-rollout-1-n1")) for _ in range(3)] == [1, 2, 3]
    assert inline(begun.run("run-rollout-1-n2")).claim == 0


def test_a_recorded_run_comes_back_as_it_was(begun: Store) -> None:
    claim = inline(begun.claim("run-rollout-1-n1"))
    run_ = replace(
        inline(begun.run("run-rollout-1-n1")), claim=claim, phase=Phase.DRAIN_REQUIRED, lease=7, wake_at=later(30.000001),
        phase_since=later(3), attempt=2, waiting="for job 12", notes={"jobs": '["12"]', "odd": "\udcff"},
    )  # fmt: skip
    inline(begun.record(run_, [record("drain", exit=0), record("drain", exit=1)]))
    assert inline(begun.run(run_.run_id)) == run_
    entries = inline(begun.audit("rollout-1"))
    assert [(entry.seq, entry.record.kind) for entry in entries] == [(1, "began"), (2, "drain"), (3, "drain")]
    assert audit.faults(entries, head=entries[-1].hash) == ()


def test_a_lost_claim_writes_nothing(begun: Store) -> None:
    ours = replace(inline(begun.run("run-rollout-1-n1")), claim=inline(begun.claim("run-rollout-1-n1")))
    inline(begun.claim("run-rollout-1-n1"))
    theirs = inline(begun.run("run-rollout-1-n1"))
    with pytest.raises(ClaimLost, match="claim 2, ours was 1"):
        inline(begun.record(replace(ours, phase=Phase.DONE), [record("late")]))
    assert inline(begun.run("run-rollout-1-n1")) == theirs
    assert chain(begun) == ["began"]


def test_a_record_that_cannot_join_the_chain_takes_the_phase_with_it(begun: Store) -> None:
    ours = replace(inline(begun.run("run-rollout-1-n1")), claim=inline(begun.claim("run-rollout-1-n1")))
    with pytest.raises(TypeError):
        inline(begun.record(replace(ours, phase=Phase.DONE), [record("first"), record("second", share=0.5)]))
    assert inline(begun.run("run-rollout-1-n1")) == ours
    assert chain(begun) == ["began"]


def test_a_release_lets_runs_begin_from_then_and_only_once(begun: Store) -> None:
    before = inline(begun.run("run-rollout-1-n2"))
    inline(begun.release(["run-rollout-1-n2", "run-rollout-1-n3"], later(60), record("released")))
    inline(begun.release(["run-rollout-1-n3"], later(90), record("released")))
    inline(begun.release([], later(90), record("released")))
    third = inline(begun.run("run-rollout-1-n3"))
    assert (third.released, third.wake_at, third.phase_since) == (True, later(60), later(60))
    assert inline(begun.run("run-rollout-1-n2")) == before
    assert chain(begun) == ["began", "released"]


def test_a_release_with_an_unknown_run_releases_none(begun: Store) -> None:
    with pytest.raises(UnknownName):
        inline(begun.release(["run-rollout-1-n3", "run-0"], later(60), record("released")))
    assert not inline(begun.run("run-rollout-1-n3")).released


def test_a_release_is_never_taken_back_by_an_older_look(begun: Store) -> None:
    stale = inline(begun.run("run-rollout-1-n3"))
    inline(begun.release([stale.run_id], later(1), record("released")))
    inline(begun.record(stale, ()))
    assert inline(begun.run(stale.run_id)).released


def test_due_are_released_and_open_runs_the_longest_due_first(begun: Store) -> None:
    (proposal,) = inline(begun.plans())
    runs = [
        run("n1", "rollout-2", wake_s=-5), run("n2", "rollout-2", wake_s=0), run("n3", "rollout-2", wake_s=-9, phase=Phase.DONE),
        run("n4", "rollout-2", wake_s=100),
    ]  # fmt: skip
    inline(begun.begin(rollout(proposal.id, "rollout-2"), runs, record()))
    expected = ("run-rollout-2-n1", "run-rollout-1-n1", "run-rollout-2-n2", "run-rollout-1-n2")
    assert inline(begun.due(later(5), 10)) == expected
    assert inline(begun.due(later(4.999999), 10)) == expected[:3]
    assert inline(begun.due(later(5), 2)) == expected[:2]
    assert inline(begun.due(later(-6), 10)) == ()


def test_runs_of_a_paused_rollout_are_due_only_in_mid_change_and_of_a_halted_one_all(begun: Store) -> None:
    inline(begun.set_rollout("rollout-1", RolloutState.PAUSED, "", T0, None))
    assert inline(begun.due(later(100), 10)) == ()
    assert inline(begun.next_wake(later(-1))) is None
    second = inline(begun.run("run-rollout-1-n2"))
    for phase in Phase:
        changed = replace(second, phase=phase, claim=inline(begun.claim(second.run_id)))
        inline(begun.record(changed, ()))
        is_due = phase not in BEFORE_CHANGE and not changed.ended
        assert inline(begun.due(later(100), 10)) == ((second.run_id,) if is_due else ())
        assert (inline(begun.next_wake(later(-1))) is None) is not is_due
    inline(begun.record(replace(second, claim=inline(begun.claim(second.run_id))), ()))
    inline(begun.set_rollout("rollout-1", RolloutState.HALTED, "", T0, None))
    assert inline(begun.due(later(100), 10)) == ("run-rollout-1-n1", "run-rollout-1-n2")


def test_the_next_wake_is_the_earliest_later_one(begun: Store) -> None:
    assert inline(begun.next_wake(later(-1))) == T0
    assert inline(begun.next_wake(T0)) == later(5)
    assert inline(begun.next_wake(later(5))) is None


def test_an_ended_run_is_never_due_again(begun: Store) -> None:
    for phase in (Phase.DONE, Phase.ROLLED_BACK, Phase.LEFT_OUT, Phase.QUARANTINED):
        inline(begun.record(replace(inline(begun.run("run-rollout-1-n1")), phase=phase), ()))
        assert inline(begun.due(later(1), 10)) == ()


def test_a_time_without_a_zone_is_refused(begun: Store) -> None:
    with pytest.raises(ValueError, match="time zone"):
        inline(begun.due(T0.replace(tzinfo=None), 1))


def validated(node: str, seconds: float, verdict: Verdict, **figures: float) -> Validated:
    return Validated(node, later(seconds), "builtin", "NVIDIA H100", "580.126.20", verdict, figures, "rollout-1")


def test_a_validation_comes_back_as_it_was(store: Store) -> None:
    kept = [
        validated("n2", 1, Pass("8 GPUs"), matmul_tflops=51.25, h2d_gbps=1 / 3),
        validated("n1", 2, Fail("matmul: GPU 1: \udcff")), validated("n1", 3, Undecided("no python3")), validated("n2", 4, Degraded("warm")),
    ]  # fmt: skip
    for each in kept:
        inline(store.save_validation(each))
    assert inline(store.validations()) == tuple(kept)


def test_of_each_node_the_last_ten_validations_are_kept(store: Store) -> None:
    inline(store.save_validation(validated("n2", 0, Pass())))
    for number in range(25):
        inline(store.save_validation(validated("n1", number, Pass(str(number)))))
    kept = inline(store.validations())
    assert [each.node for each in kept] == ["n2", *["n1"] * 10]
    assert [each.at for each in kept[1:]] == [later(number) for number in range(15, 25)]
