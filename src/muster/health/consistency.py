"""Does what a node runs agree with itself, with its pool, and with what is wanted? Pure; from facts alone.

Every node is judged on every question: a question whose facts are missing gives a finding of severity `unknown`, never silence.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from operator import attrgetter

from muster.health import boot, cause, companions
from muster.health.clock import clocks
from muster.health.identity import one_machine
from muster.health.judgement import Gap, Question, Seen, Subject, answered, gap, upstream
from muster.health.settings import settings
from muster.model.fact import CLOCK_SLACK_S, NodeFacts, Unknown
from muster.model.finding import Finding, Severity
from muster.model.memo import Remembered, RememberedTogether
from muster.model.stack import BROKEN_STATES

STALE_AFTER_S = 24 * 3600
"""After a day the node has had its nightly jobs: what was seen before may not hold any more."""


def check(subjects: Sequence[Subject], now: datetime) -> tuple[Finding, ...]:
    """All findings, the worst first, nodes with the same finding put together."""
    fresh, rest = _alike(subjects, now)
    judge = _Judge()
    said: dict[int, tuple[tuple[Seen, ...], list[str]]] = {}
    for group in fresh:
        for answer, nodes in judge.group(group):
            said.setdefault(id(answer), (answer, []))[1].extend(nodes)
    for subject in rest:
        answer = (*_unseen(subject, now), *(judge(subject) if _is_looked_at(subject) else ()))
        said[id(answer)] = (answer, [subject.node])
    grouped: dict[Seen, list[tuple[str, list[str]]]] = {}
    for answer, nodes in said.values():
        for seen in answer:
            grouped.setdefault(seen, []).append((seen.cause, nodes))
    findings = [
        Finding(s.code, s.severity, s.subject, tuple(sorted(n for _, nodes in by for n in nodes)), s.evidence, s.todo, _cause(by))
        for s, by in grouped.items()
    ]  # fmt: skip
    looks = [subject.facts for group in fresh for subject in group if subject.facts is not None]
    findings += (*_pools(fresh), *settings(fresh), *clocks(looks), *one_machine(looks))
    order = list(Severity)
    return tuple(sorted(findings, key=lambda f: (order.index(f.severity), f.code, f.subject, f.nodes)))


def _cause(by: Sequence[tuple[str, Sequence[str]]]) -> str:
    if not any(said for said, _ in by):
        return ""
    return cause.together([(node, said) for said, nodes in by for node in nodes])


def _alike(subjects: Sequence[Subject], now: datetime) -> tuple[Sequence[Sequence[Subject]], Sequence[Subject]]:
    """Those whose facts can be held against others, put together where all that is asked is alike; and the rest: old evidence is no evidence."""
    groups: dict[object, list[Subject]] = {}
    rest: list[Subject] = []
    oldest, newest = now - timedelta(seconds=STALE_AFTER_S), now + timedelta(seconds=CLOCK_SLACK_S)
    for subject in subjects:
        facts = subject.facts
        if facts is None or facts.trouble is not None or not oldest <= facts.observed_at <= newest:
            rest.append(subject)
            continue
        alike = facts.alike
        key = (id(facts) if alike is None else alike, _OTHERS(subject))
        if key in groups:
            groups[key].append(subject)
        else:
            groups[key] = [subject]
    return tuple(groups.values()), rest


def _is_looked_at(subject: Subject) -> bool:
    return subject.facts is not None and subject.facts.trouble is None


def _unseen(subject: Subject, now: datetime) -> tuple[Seen, ...]:
    """Why what is known of a node, if anything, is no evidence."""
    facts = subject.facts
    if facts is None:
        return _NEVER_SEEN
    if facts.trouble is not None:
        todo = "mend the connection, then: muster collect"
        return (Seen("unreachable", Severity.UNKNOWN, "node", facts.trouble.why, todo),)
    seen = f"last seen {facts.observed_at:%Y-%m-%d %H:%M} UTC"
    if facts.is_from_the_future(now):
        words = f"{seen}, which is not yet: this machine's clock was set back, or was wrong then"
        todo = "set this machine's clock, then: muster collect"
        return (Seen("seen-in-the-future", Severity.UNKNOWN, "node", words, todo),)
    return (Seen("stale", Severity.UNKNOWN, "node", seen, "run: muster collect"),)


class _Judge:
    """What the questions find on a node: one tuple for all that are alike. No question may ask when something was seen, or on which node."""

    def __init__(self) -> None:
        self._ask = RememberedTogether([_answers(question) for question in _QUESTIONS])
        self._bare: dict[object, Subject] = {}
        self._made: dict[int, tuple[tuple[tuple[Seen | Gap, ...], ...], tuple[Seen, ...]]] = {}

    def __call__(self, subject: Subject) -> tuple[Seen, ...]:
        assert subject.facts is not None
        others = _OTHERS(subject)
        if others not in self._bare:
            self._bare[others] = replace(subject, node="", facts=None)
        answers = self._ask(subject.facts, self._bare[others])
        if (
            id(answers) not in self._made
        ):  # the answers are kept beside what was made of them, so that no other ones get their id
            self._made[id(answers)] = (answers, _put_together(answers))
        return self._made[id(answers)][1]

    def group(self, group: Sequence[Subject]) -> Iterator[tuple[tuple[Seen, ...], Sequence[str]]]:
        """What is found on each of several nodes that are alike, with their names."""
        first = self(group[0])
        facts, bare = group[0].facts, self._bare[_OTHERS(group[0])]
        if facts is not None and self._ask.is_shared(facts, bare):
            yield first, [subject.node for subject in group]
            return
        for subject in group:
            yield self(subject), (subject.node,)


def _answers(question: Question) -> Callable[[NodeFacts, Subject], tuple[Seen | Gap, ...]]:
    return lambda facts, subject: tuple(question(subject, facts))


def _put_together(answers: Sequence[Sequence[Seen | Gap]]) -> tuple[Seen, ...]:
    """All that was seen, and what could not be judged by reason."""
    found: list[Seen] = []
    gaps: dict[str, list[str]] = {}
    for said in (each for answer in answers for each in answer):
        if isinstance(said, Seen):
            found.append(said)
        else:
            gaps.setdefault(said.why, []).append(said.what)
    for why, whats in gaps.items():
        words = f"{', '.join(dict.fromkeys(whats))}: unknown: {why}"
        found.append(Seen("not-judged", Severity.UNKNOWN, "node", words, "run: muster collect; muster nodes show NODE"))
    return tuple(found)


_NEVER_SEEN = (Seen("never-seen", Severity.UNKNOWN, "node", "was never looked at", "run: muster collect"),)
_OTHERS = attrgetter(*(each.name for each in fields(Subject) if each.name not in ("node", "facts")))


def _stack(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
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
            yield Seen(
                "stack-unknown", Severity.UNKNOWN, path, f"{name} is unknown: {why}", "look on the node: " + path
            )
    if loaded and disk and loaded != disk:
        yield Seen(
            "loaded-is-not-on-disk", Severity.ERROR, "driver", f"{loaded} is loaded, {disk} is on disk: the next reload or boot changes it",
            "muster plan, then reload or reboot the node in a rollout", cause.brought(facts, disk, cause.MODULE),
        )  # fmt: skip
    if loaded and library and loaded != library:
        yield Seen(
            "library-is-not-loaded", Severity.ERROR, "driver", f"{loaded} is loaded, the user-space library is {library}: CUDA does not start",
            "muster plan: bring the whole stack to one version",
            cause.newest(facts, (library, cause.LIBRARY), (loaded, cause.MODULE)),
        )  # fmt: skip


def _packages(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    manager = facts.value("packages.manager")
    why = facts.unread("package") or (manager.why if isinstance(manager, Unknown) else None)
    if why is not None:
        words = f"the installed packages are unknown: {why}"
        yield Seen("packages-unknown", Severity.UNKNOWN, "packages", words, "on the node: dpkg-query -W, or rpm -qa")
        return
    broken = [n for n in facts.members("package") if facts.text(f"package[{n}].state") in BROKEN_STATES]
    if broken:
        yield Seen(
            "half-installed",
            Severity.ERROR,
            "packages",
            f"{', '.join(broken)} half-installed",
            "on the node: dpkg --audit, or rpm -V PACKAGE",
        )
    if not subject.holds:
        return
    yield from _holds(facts)


def _holds(facts: NodeFacts) -> Iterator[Seen | Gap]:
    disk = facts.text("module.nvidia.disk_version")
    if disk is None:
        return  # `stack-unknown` has said so
    carriers = [n for n in facts.members("package") if upstream(facts.text(f"package[{n}].version")) == disk]
    holds = [facts.value(f"package[{name}].hold") for name in carriers]
    free = [hold for hold in holds if hold is False]
    unknown = [hold for hold in holds if not isinstance(hold, bool)]
    if unknown:
        words = f"whether {len(unknown)} driver packages are held is unknown"
        yield Seen(
            "hold-unknown", Severity.UNKNOWN, "packages", words, "on the node: apt-mark showhold, or dnf versionlock"
        )
    if free:
        yield Seen(
            "hold-missing", Severity.WARNING, "packages", f"{len(free)} driver packages are not held: an upgrade may change them",
            "a rollout holds them; by hand: apt-mark hold, or dnf versionlock add",
        )  # fmt: skip


def _gpus(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    count = facts.value("gpu.count")
    if not isinstance(count, int):
        why = count.why if isinstance(count, Unknown) else "not a number"
        yield Seen("gpu-unknown", Severity.UNKNOWN, "gpu", f"the GPUs cannot be read: {why}", "on the node: nvidia-smi")
    elif count == 0:
        yield Seen("no-gpu", Severity.ERROR, "gpu", "no GPU answers", "on the node: nvidia-smi, dmesg | grep NVRM")
    else:
        yield from _missing(subject, facts, count)


def _missing(subject: Subject, facts: NodeFacts, count: int) -> Iterator[Seen | Gap]:
    """As many GPUs answer as the node has had, and as are on its PCI bus."""
    on_bus = facts.value("pci.gpus")
    if isinstance(on_bus, int) and on_bus > count:
        words = f"{_gpu_words(count)}, {on_bus} are on the PCI bus"
    elif subject.most_gpus is not None and subject.most_gpus > count:
        words = f"{_gpu_words(count)}, it has had {subject.most_gpus}"
    else:
        if not isinstance(on_bus, int):
            yield gap("how many GPUs are on the PCI bus", on_bus)
        return
    todo = (
        "on the node: dmesg | grep -i xid; lspci -d 10de:; a GPU that was taken out for good is forgotten after 30 days"
    )
    yield Seen("gpu-missing", Severity.ERROR, "gpu", words, todo)


def _gpu_words(count: int) -> str:
    return f"{count} GPU answers" if count == 1 else f"{count} GPUs answer"


def _wanted(subject: Subject, facts: NodeFacts) -> Iterator[Seen | Gap]:
    if subject.problem:
        yield Seen("no-driver-fits", Severity.WARNING, f"pool {subject.pool}", subject.problem, "run: muster why NODE")
    loaded = facts.text("module.nvidia.loaded_version")
    if subject.wanted and loaded and loaded != subject.wanted.partition("-")[0]:
        yield Seen(
            "not-as-wanted", Severity.WARNING, f"pool {subject.pool}", f"{loaded} is loaded, {subject.wanted} is wanted", "run: muster plan"
        )  # fmt: skip


_QUESTIONS: tuple[Question, ...] = (_stack, _packages, _gpus, _wanted, *boot.QUESTIONS, *companions.QUESTIONS)


def _pools(alike: Sequence[Sequence[Subject]]) -> Iterator[Finding]:
    """One driver version in each pool: named are the nodes that run another one than most, the newest of several equally frequent."""
    seen: dict[str, dict[str, list[str]]] = {}
    looks: dict[str, NodeFacts] = {}
    running = Remembered[str, str | None](lambda facts, path: facts.text(path))
    for group in alike:
        for loaded, subjects in answered(running, group, "module.nvidia.loaded_version"):
            pool = subjects[0].pool
            if loaded and pool:
                seen.setdefault(pool, {}).setdefault(loaded, []).extend([subject.node for subject in subjects])
                looks.update({subject.node: subject.facts for subject in subjects if subject.facts is not None})
    for pool, versions in seen.items():
        if len(versions) > 1:
            words = ", ".join(f"{version} on {len(nodes)}" for version, nodes in sorted(versions.items()))
            most = max(versions, key=lambda version: (len(versions[version]), _order(version)))
            minority = [(node, version) for version, nodes in versions.items() if version != most for node in nodes]
            causes = [(node, cause.brought(looks[node], version, cause.MODULE)) for node, version in minority]
            yield Finding(
                "mixed-drivers",
                Severity.WARNING,
                f"pool {pool}",
                tuple(sorted(node for node, _ in minority)),
                words,
                "muster plan: one version a pool",
                cause.together(causes),
            )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version))


def health_words(findings: Sequence[Finding]) -> Mapping[str, str]:
    """For each node the worst severity of its findings; nodes without one are not in it."""
    worst: dict[str, str] = {}
    for finding in reversed(findings):  # the worst come first
        worst.update(dict.fromkeys(finding.nodes, finding.severity.value))
    return worst
