"""Floors: the least that a validation must measure. Learnt from the fleet, and held against what a node measured. Pure; sets no policy.

A floor is learnt from each node's last passed validation: the median of the nodes of one kind, less a tenth, or less three robust standard
deviations where the kind spreads wider. The median, because a few bad nodes must not lower what good ones are held to; never one node's own
best, because the first node would then judge all others. Until enough nodes were measured there is no floor, and that is said.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from muster.model.validation import Floors, Learnt, Validated
from muster.model.verdict import Fail, Pass, Undecided, Verdict, worst

NODES_LEAST = 5
"""With fewer nodes two bad ones would be the half, and drag the median down with them."""

MARGIN = 0.10
"""Figures of one healthy GPU differ by a few percent from run to run (clocks, temperature); the fail-slow faults worth a node's return start
at about a tenth."""

SPREAD = 3 * 1.4826
"""Three standard deviations, estimated by the median absolute deviation (1.4826 makes it one for normal data)."""

SPREAD_MOST = 0.5
"""However wide a kind spreads, half of its median is too little."""


def learn(past: Sequence[Validated]) -> Mapping[tuple[str, str], Learnt]:
    """What can be learnt from validations in order of time, by kind of node and metric."""
    last = {each.node: each for each in past if isinstance(each.verdict, Pass) and each.kind}
    seen: dict[tuple[str, str], list[float]] = {}
    for each in last.values():
        for metric, value in each.figures.items():
            seen.setdefault((each.kind, metric), []).append(value)
    return {key: _learnt(sorted(values)) for key, values in sorted(seen.items())}


def _learnt(values: Sequence[float]) -> Learnt:
    middle = median(values)
    if len(values) < NODES_LEAST:
        return Learnt(None, middle, len(values))
    spread = SPREAD * median(abs(value - middle) for value in values)
    return Learnt(middle - max(MARGIN * middle, min(spread, SPREAD_MOST * middle)), middle, len(values))


def held_against(floors: Floors, kind: str, figures: Mapping[str, float], before: Mapping[str, float]) -> Verdict:
    """The figures of a node of `kind` against their floors; `before` is what it measured itself before a change. Passes with its words.

    A figure that is not above 0 fails without any floor. A fixed floor whose figure was not measured is Unknown; one to be learnt is not
    missed, but said.
    """
    verdicts: list[Verdict] = [
        Fail(f"{metric} is {value:g}") for metric, value in sorted(figures.items()) if not value > 0
    ]
    verdicts += [_fixed(metric, minimum, figures) for metric, minimum in sorted(floors.fixed.items())]
    verdicts += [_learning(metric, floors, kind, figures, before) for metric in sorted(floors.learning)]
    if not verdicts:
        return Pass("")
    last = worst(verdicts)
    same = [each.why for each in verdicts if type(each) is type(last) and isinstance(each, Pass | Fail | Undecided)]
    why = "; ".join(words for words in same if words)
    return Fail(why) if isinstance(last, Fail) else Undecided(why) if isinstance(last, Undecided) else Pass(why)


def _fixed(metric: str, minimum: float, figures: Mapping[str, float]) -> Verdict:
    value = figures.get(metric)
    if value is None:
        return Undecided(f"{metric} was not measured, and the policy wants {minimum:g}")
    if value < minimum:
        return Fail(f"{metric} is {value:g}, the policy wants {minimum:g}")
    return Pass(f"{metric} {value:g} (policy: {minimum:g})")


def _learning(
    metric: str, floors: Floors, kind: str, figures: Mapping[str, float], before: Mapping[str, float]
) -> Verdict:
    value, own = figures.get(metric), before.get(metric)
    if value is None:
        return Pass(f"{metric} was not measured")
    if own is not None and value < own * (1 - MARGIN):
        less = round(100 * (1 - value / own))
        return Fail(f"{metric} is {value:g}, {less} % less than this node's own {own:g} before the change")
    learnt = floors.learnt.get((kind, metric))
    if learnt is None or learnt.minimum is None:
        known = learnt.nodes if learnt else 0
        return Pass(f"{metric} {value:g} (no floor yet: {known} of {NODES_LEAST} nodes of its kind measured)")
    if value < learnt.minimum:
        return Fail(
            f"{metric} is {value:g}, the floor is {learnt.minimum:g}: learnt from {learnt.nodes} nodes of its kind, median {learnt.median:g}"
        )
    return Pass(f"{metric} {value:g} (floor {learnt.minimum:.4g}, from {learnt.nodes} nodes)")
