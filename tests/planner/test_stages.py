"""Stages hold every node once, expose one node first, and leave running jobs for later."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from muster.model.quantities import Amount
from muster.planner.stages import CANARY_GROUPS, Candidate, StageWish, canary_count, lay_out

CANDIDATES = st.lists(
    st.builds(
        Candidate,
        node=st.uuids().map(str),
        stratum=st.sampled_from("abcdefghij"),
        tier=st.integers(0, 2),
        busy=st.booleans(),
    ),
    max_size=40,
    unique_by=lambda each: each.node,
)
SHARES = st.lists(
    st.builds(Amount, basis_points=st.integers(1, 10_000)) | st.builds(Amount, count=st.integers(1, 50)), max_size=4
)
WISHES = st.tuples(st.lists(st.none() | SHARES.filter(bool).map(lambda s: s[0]), max_size=4)).map(
    lambda each: [StageWish("canary" if share is None else str(share), share, 1) for share in each[0]]
)
USUAL = (
    StageWish("canary", None, 60),
    StageWish("25%", Amount.parse("25%"), 10),
    StageWish("100%", Amount.parse("100%"), 10),
)


@given(CANDIDATES, WISHES)
def test_stages_partition_the_candidates_whatever_was_wished(
    candidates: Sequence[Candidate], wishes: Sequence[StageWish]
) -> None:
    stages = lay_out(candidates, wishes)
    assert sorted(name for stage in stages for name in stage.nodes) == sorted(each.node for each in candidates)
    for stage in stages:
        assert stage.nodes
        assert tuple(name for group in stage.groups for name in group) == stage.nodes
        assert all(stage.groups)


@given(CANDIDATES)
def test_canaries_go_alone_then_one_then_two_then_four(candidates: Sequence[Candidate]) -> None:
    stages = lay_out(candidates, USUAL)
    assert bool(stages) == bool(candidates)
    if stages:
        sizes = [len(group) for group in stages[0].groups]
        assert stages[0].canary
        assert sizes[0] == 1
        assert sizes[:-1] == list(CANARY_GROUPS[: len(sizes) - 1])
        assert sizes[-1] <= CANARY_GROUPS[len(sizes) - 1]
        assert not any(stage.canary for stage in stages[1:])


def test_eight_strata_have_eight_canaries_one_one_two_and_four_at_a_time() -> None:
    (canaries, *_) = lay_out([Candidate(f"n{at}", str(at % 9), 1, False) for at in range(20)], USUAL)
    assert [len(group) for group in canaries.groups] == [1, 1, 2, 4]


@given(CANDIDATES)
def test_canaries_cover_as_many_strata_as_they_can(candidates: Sequence[Candidate]) -> None:
    strata = {each.node: each.stratum for each in candidates}
    for stage in lay_out(candidates, USUAL)[:1]:
        assert len(stage.nodes) == canary_count(candidates)
        assert len({strata[name] for name in stage.nodes}) == min(len(set(strata.values())), len(stage.nodes))


@given(CANDIDATES)
def test_after_the_canaries_idle_goes_before_busy_and_among_equals_development_before_critical(
    candidates: Sequence[Candidate],
) -> None:
    known = {each.node: each for each in candidates}
    later = [known[name] for stage in lay_out(candidates, USUAL)[1:] for name in stage.nodes]
    assert later == sorted(later, key=lambda each: (each.busy, each.tier))


@given(CANDIDATES)
def test_a_canary_is_busy_only_where_its_stratum_has_nothing_idle(candidates: Sequence[Candidate]) -> None:
    if len({each.stratum for each in candidates}) < 2:
        return  # with one stratum there are two canaries, and the second takes what there is
    known = {each.node: each for each in candidates}
    for name in lay_out(candidates, USUAL)[0].nodes:
        if known[name].busy:
            assert all(each.busy for each in candidates if each.stratum == known[name].stratum)


@given(CANDIDATES)
def test_the_first_canary_is_idle_where_anything_is(candidates: Sequence[Candidate]) -> None:
    known = {each.node: each for each in candidates}
    for stage in lay_out(candidates, USUAL)[:1]:
        assert known[stage.nodes[0]].busy == all(each.busy for each in candidates)


@given(CANDIDATES, st.integers(1, 10_000))
def test_a_share_is_of_all_that_are_changed_when_it_ends(candidates: Sequence[Candidate], points: int) -> None:
    share = Amount(basis_points=points)
    stages = lay_out(candidates, (USUAL[0], StageWish("share", share, 1), USUAL[2]))
    upto = sum(len(stage.nodes) for stage in stages if stage.name in ("canary", "share"))
    assert upto == max(canary_count(candidates), share.of(len(candidates)))
