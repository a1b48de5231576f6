"""Stages hold every unit once, expose one node first, leave running jobs for later and whole, and keep some of each kind back for comparison."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster.model.plan import STRATUM_AT_LEAST
from muster.model.quantities import Amount
from muster.planner.stages import CANARY_GROUPS, Layout, StageWish, canary_count, held_back, lay_out
from muster.planner.units import Unit, gangs
from tests.support.planning import unit

NONE = st.just(())
JOBS = st.lists(st.sampled_from("pqrs"), max_size=2, unique=True).map(tuple)


def numbered(units: Sequence[Unit]) -> list[Unit]:
    """The units in the order of chance; one that has jobs is busy, and one with several nodes is a domain."""
    made = []
    for at, each in enumerate(units):
        free_s = each.free_s if not each.jobs or each.free_s != 0 else 60
        nodes = tuple(f"{each.name}-{n}" for n in range(len(each.nodes)))
        made.append(replace(each, chance=at, free_s=free_s, nodes=nodes))
    return made


UNITS = st.lists(
    st.builds(
        Unit,
        name=st.uuids().map(str),
        nodes=st.sampled_from((("x",), ("x",), ("x",), ("x", "x"))),
        stratum=st.sampled_from("abcdefghij"),
        tier=st.integers(0, 2),
        free_s=st.sampled_from((0, 0, 600, 7200, None)),
        chance=st.just(0),
        jobs=st.one_of(NONE, NONE, JOBS),
        racks=st.one_of(NONE, st.sampled_from("123").map(lambda each: (each,))),
        zones=st.one_of(NONE, st.sampled_from("hc").map(lambda each: (each,))),
    ),
    max_size=40,
    unique_by=lambda each: each.name,
).map(numbered)
SHARES = st.lists(
    st.builds(Amount, basis_points=st.integers(1, 10_000)) | st.builds(Amount, count=st.integers(1, 50)), max_size=4
)
WISHES = st.tuples(st.booleans(), SHARES).map(
    lambda each: [
        *([StageWish("canary", None, 1)] if each[0] else []),
        *(StageWish(str(share), share, 1) for share in each[1]),
    ]
)
CONTROL = st.none() | st.builds(Amount, basis_points=st.integers(1, 5000))
USUAL = (
    StageWish("canary", None, 60),
    StageWish("25%", Amount.parse("25%"), 10),
    StageWish("100%", Amount.parse("100%"), 10),
)
FIVE = Amount.parse("5%")


def staged(laid: Layout) -> dict[str, int]:
    return {node: at for at, stage in enumerate(laid.stages) for node in stage.nodes}


@given(UNITS, WISHES, CONTROL)
def test_stages_partition_the_units_whatever_was_wished(
    units: Sequence[Unit], wishes: Sequence[StageWish], control: Amount | None
) -> None:
    laid = lay_out(units, wishes, control)
    names = [node for stage in laid.stages for node in stage.nodes]
    waiting = [node for each in laid.waiting for node in each.nodes]
    assert sorted(names + waiting) == sorted(node for each in units for node in each.nodes)
    assert not (names and waiting)
    for stage in laid.stages:
        assert stage.nodes
        assert tuple(name for group in stage.groups for name in group) == stage.nodes
        assert all(stage.groups)


@given(UNITS, WISHES, CONTROL)
def test_a_job_is_never_split_over_stages(
    units: Sequence[Unit], wishes: Sequence[StageWish], control: Amount | None
) -> None:
    stage_of = staged(lay_out(units, wishes, control))
    for job in "pqrs":
        assert (
            len({stage_of[node] for each in units if job in each.jobs for node in each.nodes if node in stage_of}) <= 1
        )


@given(UNITS, WISHES, CONTROL)
def test_what_is_changed_as_one_is_released_as_one(
    units: Sequence[Unit], wishes: Sequence[StageWish], control: Amount | None
) -> None:
    laid = lay_out(units, wishes, control)
    groups = [set(group) for stage in laid.stages for group in stage.groups]
    for each in units:
        assert sum(set(each.nodes) <= group for group in groups) == (0 if laid.waiting else 1)


@given(UNITS)
def test_canaries_go_alone_then_one_then_two_then_four(units: Sequence[Unit]) -> None:
    laid = lay_out(units, USUAL, FIVE)
    name_of = {node: each.name for each in units for node in each.nodes}
    if laid.stages:
        sizes = [len({name_of[node] for node in group}) for group in laid.stages[0].groups]
        assert laid.stages[0].canary
        assert sizes[0] == 1
        assert sizes[:-1] == list(CANARY_GROUPS[: len(sizes) - 1])
        assert sizes[-1] <= CANARY_GROUPS[len(sizes) - 1]
        assert not any(stage.canary for stage in laid.stages[1:])


def test_eight_strata_have_eight_canaries_one_one_two_and_four_at_a_time() -> None:
    laid = lay_out([unit(f"n{at}", stratum=str(at % 9), chance=at) for at in range(20)], USUAL)
    assert [len(group) for group in laid.stages[0].groups] == [1, 1, 2, 4]


@given(UNITS)
def test_canaries_cover_as_many_strata_as_they_can(units: Sequence[Unit]) -> None:
    free = [replace(each, jobs=()) for each in units]  # jobs of many nodes may be too large for a canary
    strata = {node: each.stratum for each in free for node in each.nodes}
    for stage in lay_out(free, USUAL).stages[:1]:
        names = {node.rpartition("-")[0] for node in stage.nodes}
        assert len(names) == canary_count(free)
        assert len({strata[name] for name in stage.nodes}) == min(len(set(strata.values())), len(names))


@given(UNITS)
def test_a_canary_is_busy_only_where_a_stratum_that_its_job_touches_has_nothing_idle(units: Sequence[Unit]) -> None:
    if len({each.stratum for each in units}) < 2:
        return  # with one stratum there are two canaries, and the second takes what there is
    for stage in lay_out(units, USUAL).stages[:1]:
        for gang in gangs(units):
            if not all(each.idle for each in gang) and set(gang[0].nodes) <= set(stage.nodes):
                # The whole of a job goes at once: a part of it may stand beside idle nodes of its own kind.
                left = {each.stratum for each in units if each.idle and not set(each.nodes) <= set(stage.nodes)}
                assert {each.stratum for each in gang} - left


@given(UNITS)
def test_the_first_canary_is_idle_where_any_canary_is(units: Sequence[Unit]) -> None:
    known = {node: each for each in units for node in each.nodes}
    for stage in lay_out(units, USUAL).stages[:1]:
        assert known[stage.nodes[0]].idle == any(known[node].idle for node in stage.nodes)


def test_a_job_that_is_larger_than_the_canaries_keeps_the_rollout_from_beginning() -> None:
    running = [unit(f"n{at}", jobs=("big",), free_s=600, chance=at) for at in range(20)]
    laid = lay_out(running, USUAL, FIVE)
    assert (laid.stages, len(laid.waiting)) == ((), 20)
    spare = lay_out([*running, unit("spare", chance=20)], USUAL)
    assert [len(stage.nodes) for stage in spare.stages] == [1, 20]


@given(UNITS)
def test_after_the_canaries_development_goes_before_critical_idle_before_busy_and_soon_before_late(
    units: Sequence[Unit],
) -> None:
    alone = [replace(each, jobs=(), nodes=each.nodes[:1]) for each in units]
    known = {each.nodes[0]: each for each in alone}
    later = [known[name] for stage in lay_out(alone, USUAL).stages[1:] for name in stage.nodes]
    assert later == sorted(later, key=lambda each: (each.tier, each.free_s is None, each.free_s or 0, each.chance))


@given(UNITS, st.integers(1, 10_000))
def test_a_share_is_of_all_nodes_that_are_changed_when_it_ends(units: Sequence[Unit], points: int) -> None:
    alone = [replace(each, jobs=(), nodes=each.nodes[:1]) for each in units]
    share = Amount(basis_points=points)
    laid = lay_out(alone, (USUAL[0], StageWish("share", share, 1), USUAL[2]))
    upto = sum(len(stage.nodes) for stage in laid.stages if stage.name in ("canary", "share"))
    assert upto == max(canary_count(alone), share.of(len(alone)))


@given(UNITS, st.integers(1, 10_000))
def test_no_stage_is_larger_than_its_share_for_the_sake_of_a_job(units: Sequence[Unit], points: int) -> None:
    share = Amount(basis_points=points)
    laid = lay_out(units, (StageWish("share", share, 1), USUAL[2]))
    total = sum(len(each.nodes) for each in units)
    assert sum(len(stage.nodes) for stage in laid.stages if stage.name == "share") <= share.of(total)


@given(UNITS, CONTROL)
def test_of_each_stratum_the_share_is_held_back_until_the_last_stage(
    units: Sequence[Unit], control: Amount | None
) -> None:
    laid = lay_out(units, USUAL, control)
    if laid.waiting:
        return
    of = {node: each for each in units for node in each.nodes}
    held = {of[node].name: of[node].stratum for stage in laid.stages if stage.control for node in stage.nodes}
    exposed = {of[node].name: of[node].stratum for stage in laid.stages if stage.canary for node in stage.nodes}
    assert [stage.control for stage in laid.stages] == [False] * (len(laid.stages) - bool(held)) + [True] * bool(held)
    for stratum in laid.strata:
        there = Counter(held.values())[stratum.name]
        canaries = Counter(exposed.values())[stratum.name]
        assert stratum.control == there
        assert there >= min(held_back(stratum.units, control.basis_points if control else 0), stratum.units - canaries)
        if stratum.units >= STRATUM_AT_LEAST and control is not None and there:
            assert 10_000 * there >= stratum.units * control.basis_points or there >= stratum.units - max(1, canaries)


def test_a_stratum_too_small_to_compare_holds_nobody_back() -> None:
    assert [held_back(units, 500) for units in (1, 2, 3, 20, 21, 100)] == [0, 0, 1, 1, 2, 5]
    laid = lay_out([unit("a", stratum="x"), unit("b", stratum="y", chance=1)], USUAL, FIVE)
    assert not any(stage.control for stage in laid.stages)


def racked(count: int, racks: Sequence[str], **more: object) -> list[Unit]:
    return [unit(f"n{at:02}", racks=(racks[at % len(racks)],), chance=at, **more) for at in range(count)]


def test_canaries_are_spread_over_racks_and_cooling_zones() -> None:
    units = [replace(each, stratum=str(each.chance % 6), zones=(str(each.chance % 4),)) for each in racked(60, "12345")]
    canaries = {node: each for each in units for node in each.nodes}
    stage = lay_out(units, USUAL).stages[0]
    assert len(stage.nodes) == 6
    assert max(Counter(canaries[node].racks for node in stage.nodes).values()) <= 2
    assert max(Counter(canaries[node].zones for node in stage.nodes).values()) <= 2


def test_a_canary_that_stood_in_a_full_rack_is_exchanged_for_one_elsewhere() -> None:
    # The only unit of `rare` stands in rack 1, which the first two strata have filled: one of those moves.
    units = [unit(f"a{at}", stratum="a", racks=("1",) if at < 3 else ("2",), chance=at) for at in range(6)]
    units += [unit(f"b{at}", stratum="b", racks=("1",) if at < 3 else ("3",), chance=10 + at) for at in range(6)]
    units.append(unit("rare", stratum="rare", racks=("1",), chance=20))
    stage = lay_out(units, USUAL).stages[0]
    known = {node: each for each in units for node in each.nodes}
    assert "rare" in stage.nodes
    assert sorted(known[node].racks for node in stage.nodes) == [("1",), ("2",), ("3",)]


def test_a_busy_node_is_no_canary_for_the_sake_of_the_spread() -> None:
    units = [unit("a", racks=("1",)), unit("b", racks=("1",), chance=1), unit("c", racks=("2",), free_s=None, chance=2)]
    assert sorted(lay_out(units, USUAL).stages[0].nodes) == ["a", "b"]


def test_units_that_share_a_job_over_a_third_are_one_gang() -> None:
    units = [unit("a", jobs=("1",)), unit("b", jobs=("1", "2")), unit("c", jobs=("2",)), unit("d", jobs=("3",))]
    assert sorted(sorted(each.name for each in gang) for gang in gangs(units)) == [["a", "b", "c"], ["d"]]
