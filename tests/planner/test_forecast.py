"""The forecast is simple arithmetic: nodes, rounds, drains, soaks, windows."""

from dataclasses import replace
from datetime import timedelta

from muster.model.plan import PoolLimits, Span
from muster.model.quantities import Amount
from muster.planner.forecast import CHANGE_TAKES_S, forecast
from muster.planner.stages import StageWish
from muster.planner.units import Unit
from tests.support.planning import staged
from tests.support.values import T0, later

HALF = CHANGE_TAKES_S
WISHES = (StageWish("canary", None, 600), StageWish("100%", Amount.parse("100%"), 600))
FREE: dict[str, int | None] = {f"n{at}": 0 for at in range(8)} | {"n6": 3600, "n7": None}
UNITS = [Unit(f"n{at}", (f"n{at}",), "s", 1, FREE[f"n{at}"], at) for at in range(8)]
PLAN = staged(UNITS, WISHES, {"a": 2}, dict.fromkeys(FREE, "a"))
PLAN = replace(PLAN, nodes=tuple(replace(part, gpus=8) for part in PLAN.nodes))


def of(limits: PoolLimits) -> tuple[int, ...]:
    parts = {part.node: part for part in PLAN.nodes}
    return forecast(PLAN.stages, parts, {"a": limits}, FREE, T0).stages_s


def test_canaries_go_one_after_the_other_and_the_rest_by_twos() -> None:
    limits = replace(PLAN.pools[0], drain_limit_s=3600)
    first, last = of(limits)
    assert first == 2 * HALF
    # Six nodes in three rounds, after the drain of the one whose jobs end nobody knows when.
    assert last == first + 600 + 3600 + 3 * HALF


def test_the_cost_counts_drains_up_to_the_limit_and_every_gpu_for_the_change() -> None:
    parts = {part.node: part for part in PLAN.nodes}
    found = forecast(PLAN.stages, parts, {"a": replace(PLAN.pools[0], drain_limit_s=1800)}, FREE, T0)
    assert found.drain_node_s == 2 * 1800
    assert found.lost_gpu_s == 8 * 8 * HALF
    assert found.untold == 1


def test_work_goes_on_in_windows_alone_and_a_plan_that_outlives_them_says_so() -> None:
    limits = replace(PLAN.pools[0], drain_limit_s=60)
    open_at = Span(later(3600), later(3600 + 7200))
    next_day = Span(open_at.opens + timedelta(days=1), open_at.closes + timedelta(days=1))
    assert of(replace(limits, windows=(open_at,)))[:1] == (3600 + 2 * HALF,)
    assert len(of(replace(limits, windows=(open_at,)))) == 1
    assert of(replace(limits, windows=(open_at, next_day)))[1] > 24 * 3600
