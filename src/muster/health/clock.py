"""Is a node's clock right, and is this machine's? Pure.

A clock that is years off breaks TLS, logs and every age that is reckoned from it. The node's time and the time of the look are both from the
same moment, but for what the look took.
"""

from collections.abc import Iterator, Mapping, Sequence

from muster.model.fact import CLOCK_SLACK_S, NodeFacts, Unknown
from muster.model.finding import Finding, Severity

FEW = 3
"""With fewer nodes than this nobody can say whose clock is wrong, and the node is named."""

_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))


def clocks(looks: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Nodes whose clock differs from this machine's by more than `CLOCK_SLACK_S`; one finding on this machine where most say the same."""
    ahead: dict[str, int] = {}
    unread: dict[str, list[str]] = {}
    for facts in looks:
        told = facts.told_at("clock.utc_s")
        if told is not None and isinstance(told[0], int):
            ahead[facts.node] = told[0] - int(told[1].timestamp())
        else:
            value = facts.value("clock.utc_s")
            unread.setdefault(value.why if isinstance(value, Unknown) else "not a number", []).append(facts.node)
    ours = _ours(ahead)
    if ours:
        alike = tuple(sorted(node for node, off in ahead.items() if abs(off - ours) <= CLOCK_SLACK_S))
        words = f"{len(alike)} of {len(ahead)} nodes are {_span(ours)} {_side(ours)} this machine's clock"
        yield Finding(
            "clock-here-wrong", Severity.WARNING, "clock", alike, words, "set this machine's clock (chronyc tracking)"
        )
    wrong: dict[str, list[str]] = {}
    whose = "that of most nodes" if ours else "this machine's"
    for node, off in [(node, off - ours) for node, off in ahead.items() if abs(off - ours) > CLOCK_SLACK_S]:
        wrong.setdefault(f"its clock is {_span(off)} {_side(off)} {whose}", []).append(node)
    for words, nodes in wrong.items():
        yield Finding(
            "clock-wrong", Severity.WARNING, "clock", tuple(sorted(nodes)), words,
            "on the node: timedatectl; chronyc tracking; collect again when it is right",
        )  # fmt: skip
    for why, nodes in unread.items():
        words = f"the clock: unknown: {why}"
        todo = "run: muster collect; muster nodes show NODE"
        yield Finding("not-judged", Severity.UNKNOWN, "clock", tuple(sorted(nodes)), words, todo)


def _ours(ahead: Mapping[str, int]) -> int:
    """How far most nodes are ahead of this machine, where most of several agree on it; else 0."""
    if len(ahead) < FEW:
        return 0
    middle = sorted(ahead.values())[(len(ahead) - 1) // 2]  # the lower median; `statistics` costs 10 ms to import
    if abs(middle) <= CLOCK_SLACK_S:
        return 0
    agree = sum(1 for off in ahead.values() if abs(off - middle) <= CLOCK_SLACK_S)
    return middle if agree * 2 > len(ahead) else 0


def _side(off: int) -> str:
    return "ahead of" if off > 0 else "behind"


def _span(off: int) -> str:
    """A span in its largest unit, whole: nodes that are off by about the same are put together."""
    for unit, length in _UNITS:
        count = abs(off) // length
        if count:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{abs(off)} seconds"
