"""Are nodes that should be alike set alike? MIG, ECC, persistence, compute mode, power limit and clocks, over the nodes of a pool. Pure.

A job that spans nodes runs at the pace of the one that is set otherwise, and a scheduler that counts MIG slices believes what is most.
"""

from collections.abc import Iterator, Mapping, Sequence

from muster.health.judgement import Subject, answered
from muster.model.fact import FactValue, NodeFacts, Unknown
from muster.model.finding import Finding, Severity
from muster.model.memo import Remembered

SETTINGS: Mapping[str, str] = {
    "settings.mig": "MIG mode",
    "settings.mig_devices": "MIG devices",
    "settings.ecc": "ECC",
    "settings.persistence": "persistence mode",
    "settings.compute_mode": "compute mode",
    "settings.power_limit": "power limit",
    "settings.clocks": "application clocks",
}
"""Fact of the whole node -> what people call it."""

_Group = dict[str, dict[str, list[str]]]
_Told = tuple[str | None, Mapping[str, FactValue]]


def settings(alike: Sequence[Sequence[Subject]]) -> Iterator[Finding]:
    """For each pool, model of GPU and setting with several values: the nodes that have another one than most, the later one of equals.

    The nodes come put together where their facts are `alike`.
    """
    groups: dict[tuple[str, str], _Group] = {}
    unread: dict[tuple[str, str], list[str]] = {}
    told = Remembered[str, _Told](_told)
    answers = [each for group in alike if group[0].pool for each in answered(told, group, "")]
    for (product, shown), subjects in answers:
        pool, nodes = subjects[0].pool, [subject.node for subject in subjects]
        if product is None:
            continue  # of GPUs that did not answer `gpu-unknown` speaks
        group = groups.setdefault((pool, product), {})
        for path, value in shown.items():
            if isinstance(value, Unknown):
                unread.setdefault((path, value.why), []).extend(nodes)
            else:
                group.setdefault(path, {}).setdefault(str(value), []).extend(nodes)
    for (pool, product), group in groups.items():
        for path, values in group.items():
            if len(values) > 1:
                yield _differs(f"pool {pool}", product, SETTINGS[path], values)
    yield from _unjudged(unread)


def _told(facts: NodeFacts, _: str) -> _Told:
    return facts.text("gpu.product"), {path: facts.value(path) for path in SETTINGS}


def _differs(pool: str, product: str, name: str, values: Mapping[str, Sequence[str]]) -> Finding:
    most = max(values, key=lambda value: (len(values[value]), value))
    others = tuple(sorted(node for value, nodes in values.items() if value != most for node in nodes))
    counted = ", ".join(f"{value} on {len(nodes)}" for value, nodes in sorted(values.items())[:5])
    more = f" and {len(values) - 5} other values" if len(values) > 5 else ""
    todo = "set it as on the others (nvidia-smi -mig, -e, -pm, -c, -pl, -ac), or put them into a pool of their own"
    return Finding("settings-differ", Severity.WARNING, pool, others, f"{name} of {product}: {counted}{more}", todo)


def _unjudged(unread: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[Finding]:
    by_reason: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (path, why), nodes in unread.items():
        by_reason.setdefault((why, tuple(sorted(nodes))), []).append(SETTINGS[path])
    for (why, nodes), names in by_reason.items():
        words = f"{', '.join(names)}: unknown: {why}"
        yield Finding(
            "not-judged", Severity.UNKNOWN, "settings", nodes, words, "run: muster collect; muster nodes show NODE"
        )
