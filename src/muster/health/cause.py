"""Who brought a node into disagreement with itself, by the package manager's own logs. Pure.

A cause is a package transaction with its place in the log, or nothing: nothing is inferred from times alone.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter

from muster.health.judgement import upstream
from muster.model.fact import NodeFacts

LIBRARY = re.compile(r"libcuda\d|libnvidia-(ml|compute)|nvidia-(driver|utils)|cuda-(drivers|compat)")
MODULE = re.compile(
    r"nvidia-(kernel|dkms|open|driver-)|linux-(modules|objects|signatures)-nvidia|kmod-nvidia|cuda-drivers"
)
FABRIC = re.compile(r"nvidia-(fabricmanager|imex)|cuda-drivers-fabricmanager")

_CHANGE = re.compile(r"(\S{1,130}) (\S{1,100}) -> (\S{1,100})")


def brought(facts: NodeFacts, version: str, packages: re.Pattern[str]) -> str:
    """The newest transaction that brought `version` of the driver to one of `packages` (to any package, where none of those is in the logs).

    In words: the package, from what to what, by whom, when, and the line of the log. Empty where the logs do not say.
    """
    ours = [each for each in _changes(facts) if upstream(each[3]) == version]
    return _words(facts, [each for each in ours if packages.match(each[1])] or ours)


def newest(facts: NodeFacts, *wanted: tuple[str, re.Pattern[str]]) -> str:
    """The newest of the transactions that brought one of several (version, packages)."""
    return _words(
        facts,
        [
            each
            for each in _changes(facts)
            if any(upstream(each[3]) == version and packages.match(each[1]) for version, packages in wanted)
        ],
    )


def installed(facts: NodeFacts, package: str) -> str:
    """The newest transaction that installed or upgraded the package of that very name."""
    return _words(facts, [each for each in _changes(facts) if each[1] == package and each[3] != "<none>"])


def kernel(facts: NodeFacts, release: str) -> str:
    """The newest transaction that brought the kernel of that release: Debian names the package so, RPM the version."""
    named = f"linux-image-{release}"
    brought_it = [
        each
        for each in _changes(facts)
        if each[3] != "<none>"
        and (each[1] == named or (each[1].startswith("kernel") and release.startswith(f"{each[3]}.")))
    ]
    return _words(facts, brought_it)


_Change = tuple[str, str, str, str]
"""(transaction, package, old, new)"""


def _changes(facts: NodeFacts) -> Iterator[_Change]:
    for key, packages in sorted(facts.column("transaction", ".packages").items(), key=itemgetter(0)):
        for text in packages if isinstance(packages, tuple) else ():
            change = _change(text)
            if change is not None:
                yield (key, *change)


@lru_cache(maxsize=4096)
def _change(text: str) -> tuple[str, str, str] | None:
    """(package, old, new); the nodes of a fleet have the same few."""
    match = _CHANGE.fullmatch(text)
    return None if match is None else (match[1], match[2], match[3])


def _words(facts: NodeFacts, changes: Sequence[_Change]) -> str:
    if not changes:
        return ""
    last = max(key for key, _, _, _ in changes)
    same = [each for each in changes if each[0] == last]
    _, package, old, new = same[0]
    more = f" (and {len(same) - 1} more packages)" if len(same) > 1 else ""
    at, by, line = (facts.text(f"transaction[{last}].{name}") or "?" for name in ("at", "by", "line"))
    command = facts.text(f"transaction[{last}].command")
    ran = f", `{command[:80]}`" if command and by != "unattended-upgrades" else ""
    return f"{package} {old} -> {new}{more}, by {by}{ran}, at {at} [{line}]"


def together(causes: Sequence[tuple[str, str]]) -> str:
    """The causes of several nodes as one text: named by node where they differ, the first three."""
    known = [(node, cause) for node, cause in sorted(causes) if cause]
    if not known:
        return ""
    if len({cause for _, cause in known}) == 1 and len(known) == len(causes):
        return known[0][1]
    more = f"; and on {len(causes) - 3} more nodes" if len(causes) > 3 else ""
    named = [(node, cause or "the logs do not say") for node, cause in sorted(causes)]
    first = sorted(named, key=lambda each: each[1] == "the logs do not say")[:3]
    return "; ".join(f"{node}: {cause}" for node, cause in first) + more
