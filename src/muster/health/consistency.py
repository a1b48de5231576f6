"""Does what a node runs agree with itself, with its pool, and with what is wanted? Pure; from facts alone.

Every node is judged on every question: a question whose facts are missing gives a finding of severity `unknown`, never silence.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from muster.health.identity import one_machine
from muster.model.fact import NodeFacts, Unknown
from muster.model.finding import Finding, Severity
from muster.model.stack import BROKEN_STATES

STALE_AFTER_S = 24 * 3600
"""After a day the node has had its nightly jobs: what was seen before may not hold any more."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A node to be judged: its facts (None: never collected), its pool, what its pool wants (None: nothing), whether holds are asked for.

    `problem` says why the wanted driver cannot run here; empty where it can, or where nothing is wanted.
    """

    node: str
    pool: str
    facts: NodeFacts | None
    wanted: str | None
    holds: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One judgement on one node, before nodes with the same judgement are put together."""

    code: str
    severity: Severity
    subject: str
    evidence: str
    todo: str


def check(subjects: Sequence[Subject], now: datetime) -> tuple[Finding, ...]:
    """All findings, the worst first, nodes with the same finding put together."""
    grouped: dict[_Seen, list[str]] = {}
    for subject in subjects:
        for seen in _judge(subject, now):
            grouped.setdefault(seen, []).append(subject.node)
    findings = [
        Finding(s.code, s.severity, s.subject, tuple(sorted(nodes)), s.evidence, s.todo) for s, nodes in grouped.items()
    ]
    fresh = [subject for subject in subjects if _fresh(subject, now)]
    findings += _pools(fresh)
    findings += one_machine([subject.facts for subject in fresh if subject.facts is not None])
    order = list(Severity)
    return tuple(sorted(findings, key=lambda f: (order.index(f.severity), f.code, f.subject, f.nodes)))


def _fresh(subject: Subject, now: datetime) -> bool:
    """Whether what is known of a node can be held against others: old evidence is no evidence."""
    facts = subject.facts
    return facts is not None and facts.trouble is None and now - facts.observed_at <= timedelta(seconds=STALE_AFTER_S)


def _judge(subject: Subject, now: datetime) -> Iterator[_Seen]:
    facts = subject.facts
    if facts is None:
        yield _Seen("never-seen", Severity.UNKNOWN, "node", "was never looked at", "run: muster collect")
        return
    if facts.trouble is not None:
        yield _Seen(
            "unreachable", Severity.UNKNOWN, "node", facts.trouble.why, "mend the connection, then: muster collect"
        )
        return
    if now - facts.observed_at > timedelta(seconds=STALE_AFTER_S):
        seen = f"last seen {facts.observed_at:%Y-%m-%d %H:%M} UTC"
        yield _Seen("stale", Severity.UNKNOWN, "node", seen, "run: muster collect")
    for question in _QUESTIONS:
        yield from question(subject, facts)


def _stack(subject: Subject, facts: NodeFacts) -> Iterator[_Seen]:
    """Loaded module, module on disk and user-space library say one version."""
    loaded, disk = facts.text("module.nvidia.loaded_version"), facts.text("module.nvidia.disk_version")
    library = facts.text("library.libcuda.version")
    for name, path, value in (
        ("the loaded module", "module.nvidia.loaded_version", loaded),
        ("the module on disk", "module.nvidia.disk_version", disk),
        ("the user-space library", "library.libcuda.version", library),
    ):
        if value is None:
            why = getattr(facts.value(path), "why", "not a text")
            yield _Seen(
                "stack-unknown", Severity.UNKNOWN, path, f"{name} is unknown: {why}", "look on the node: " + path
            )
    if loaded and disk and loaded != disk:
        yield _Seen(
            "loaded-is-not-on-disk", Severity.ERROR, "driver", f"{loaded} is loaded, {disk} is on disk: the next reload or boot changes it",
            "muster plan, then reload or reboot the node in a rollout",
        )  # fmt: skip
    if loaded and library and loaded != library:
        yield _Seen(
            "library-is-not-loaded", Severity.ERROR, "driver", f"{loaded} is loaded, the user-space library is {library}: CUDA does not start",
            "muster plan: bring the whole stack to one version",
        )  # fmt: skip


def _packages(subject: Subject, facts: NodeFacts) -> Iterator[_Seen]:
    manager = facts.value("packages.manager")
    why = facts.unread("package") or (manager.why if isinstance(manager, Unknown) else None)
    if why is not None:
        words = f"the installed packages are unknown: {why}"
        yield _Seen("packages-unknown", Severity.UNKNOWN, "packages", words, "on the node: dpkg-query -W")
        return
    broken = [n for n in facts.members("package") if facts.text(f"package[{n}].state") in BROKEN_STATES]
    if broken:
        yield _Seen(
            "half-installed",
            Severity.ERROR,
            "packages",
            f"{', '.join(broken)} half-installed",
            "on the node: dpkg --audit",
        )
    if not subject.holds:
        return
    yield from _holds(facts)


def _holds(facts: NodeFacts) -> Iterator[_Seen]:
    disk = facts.text("module.nvidia.disk_version")
    if disk is None:
        return  # `stack-unknown` has said so
    carriers = [n for n in facts.members("package") if _upstream(facts.text(f"package[{n}].version")) == disk]
    holds = [facts.value(f"package[{name}].hold") for name in carriers]
    free = [hold for hold in holds if hold is False]
    unknown = [hold for hold in holds if not isinstance(hold, bool)]
    if unknown:
        words = f"whether {len(unknown)} driver packages are held is unknown"
        yield _Seen("hold-unknown", Severity.UNKNOWN, "packages", words, "on the node: apt-mark showhold")
    if free:
        yield _Seen(
            "hold-missing", Severity.WARNING, "packages", f"{len(free)} driver packages are not held: an upgrade may change them",
            "a rollout holds them; by hand: apt-mark hold",
        )  # fmt: skip


def _gpus(subject: Subject, facts: NodeFacts) -> Iterator[_Seen]:
    count = facts.value("gpu.count")
    if not isinstance(count, int):
        why = count.why if isinstance(count, Unknown) else "not a number"
        yield _Seen(
            "gpu-unknown", Severity.UNKNOWN, "gpu", f"the GPUs cannot be read: {why}", "on the node: nvidia-smi"
        )
    elif count == 0:
        yield _Seen("no-gpu", Severity.ERROR, "gpu", "no GPU answers", "on the node: nvidia-smi, dmesg | grep NVRM")


def _wanted(subject: Subject, facts: NodeFacts) -> Iterator[_Seen]:
    if subject.problem:
        yield _Seen("no-driver-fits", Severity.WARNING, f"pool {subject.pool}", subject.problem, "run: muster why NODE")
    loaded = facts.text("module.nvidia.loaded_version")
    if subject.wanted and loaded and loaded != subject.wanted.partition("-")[0]:
        yield _Seen(
            "not-as-wanted", Severity.WARNING, f"pool {subject.pool}", f"{loaded} is loaded, {subject.wanted} is wanted", "run: muster plan"
        )  # fmt: skip


_QUESTIONS: tuple[Callable[[Subject, NodeFacts], Iterator[_Seen]], ...] = (_stack, _packages, _gpus, _wanted)


def _pools(subjects: Sequence[Subject]) -> Iterator[Finding]:
    """One driver version in each pool: named are the nodes that run another one than most, the newest of several equally frequent."""
    seen: dict[str, dict[str, list[str]]] = {}
    for subject in subjects:
        loaded = subject.facts.text("module.nvidia.loaded_version") if subject.facts else None
        if loaded and subject.pool:
            seen.setdefault(subject.pool, {}).setdefault(loaded, []).append(subject.node)
    for pool, versions in seen.items():
        if len(versions) > 1:
            words = ", ".join(f"{version} on {len(nodes)}" for version, nodes in sorted(versions.items()))
            most = max(versions, key=lambda version: (len(versions[version]), _order(version)))
            minority = [node for version, nodes in versions.items() if version != most for node in nodes]
            yield Finding(
                "mixed-drivers",
                Severity.WARNING,
                f"pool {pool}",
                tuple(sorted(minority)),
                words,
                "muster plan: one version a pool",
            )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version))


def _upstream(version: str | None) -> str:
    return version.rpartition(":")[2].partition("-")[0] if version else ""


def health_words(findings: Sequence[Finding]) -> Mapping[str, str]:
    """For each node the worst severity of its findings; nodes without one are not in it."""
    worst: dict[str, str] = {}
    for finding in findings:
        for node in finding.nodes:
            worst.setdefault(node, finding.severity.value)
    return worst
