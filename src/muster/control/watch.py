"""The use case `watch`: what is new and what is gone since the last round, and who was told of it. Looks; changes nothing on a node.

What was printed and what was told are kept beside the store, so that a restart neither prints nor alerts again, and an alert that could not be
delivered is tried again at the next round, together with what came since.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from muster.control.collect import carried_facts, collect
from muster.control.planning import findings
from muster.control.site import Site
from muster.model.errors import StoreBroken
from muster.model.fact import NodeFacts
from muster.model.finding import Finding, Severity
from muster.model.frozen import dataclass
from muster.ports import Notifier

STATE_FORM = 1

Key = tuple[str, str, str, str]
"""One finding on one node: code, severity, subject, node (empty: it names none). Words that count or tell the time are no part of it."""


@dataclass(frozen=True, slots=True)
class Item:
    """A finding as far as it is new, or what is left of one that is gone. `evidence` and `todo` are empty for those that are gone."""

    code: str
    severity: Severity
    subject: str
    nodes: tuple[str, ...]
    evidence: str = ""
    todo: str = ""

    def body(self) -> Mapping[str, object]:
        """As JSON's values."""
        shared = {
            "code": self.code, "severity": self.severity.value, "subject": self.subject, "nodes": list(self.nodes),
        }  # fmt: skip
        return {**shared, "evidence": self.evidence, "todo": self.todo} if self.evidence else shared


@dataclass(frozen=True, slots=True)
class Changes:
    """What came and what went between two rounds."""

    new: tuple[Item, ...]
    gone: tuple[Item, ...]

    def __bool__(self) -> bool:
        return bool(self.new or self.gone)


@dataclass(frozen=True, slots=True)
class State:
    """What was printed, and what those who are alerted were told."""

    shown: frozenset[Key] = frozenset()
    told: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to. `looked` and `away` count nodes; `troubles` says which alerts were not delivered, and why."""

    changes: Changes
    findings: tuple[Finding, ...]
    looked: int
    away: int
    troubles: tuple[str, ...]


def keys(findings: Sequence[Finding]) -> frozenset[Key]:
    """All that these findings say, node by node."""
    return frozenset(
        (each.code, each.severity.value, each.subject, node) for each in findings for node in each.nodes or ("",)
    )


def changes(before: frozenset[Key], findings: Sequence[Finding]) -> Changes:
    """What is new in `findings`, and what of `before` is gone: in their order, the worst first."""
    return Changes(tuple(_new(before, findings)), _gone(before - keys(findings)))


def _new(before: frozenset[Key], findings: Sequence[Finding]) -> Iterator[Item]:
    for each in findings:
        fresh = keys((each,)) - before
        if fresh:
            nodes = tuple(sorted(key[3] for key in fresh if key[3]))
            yield Item(each.code, each.severity, each.subject, nodes, each.evidence, each.todo)


def _gone(left: frozenset[Key]) -> tuple[Item, ...]:
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for code, severity, subject, node in sorted(left):
        grouped.setdefault((code, severity, subject), []).append(node)
    order = list(Severity)
    items = [Item(c, Severity(s), about, tuple(n for n in nodes if n)) for (c, s, about), nodes in grouped.items()]
    return tuple(sorted(items, key=lambda item: (order.index(item.severity), item.code, item.subject)))


async def look_again(site: Site, state: State, notifiers: Sequence[Notifier]) -> tuple[Round, State]:
    """Collect, check, tell: one round, and the state after it. One whose alerts were not all delivered keeps what was told as it was."""
    carried = carried_facts(site.nodes, site.caller(), site.carried, None)
    seen = await collect(
        site.nodes, specs=site.specs, transport=site.transport, store=site.store, clock=site.clock, ids=site.ids,
        concurrency=site.policy.ssh.concurrency, seen=_nothing, carried={each.node: each for each in carried.facts},
        program=site.program,
    )  # fmt: skip
    found = await findings(site)
    untold = changes(state.told, found)
    troubles: list[str] = []
    if untold and notifiers:
        body = alert(site.policy.fleet, untold, site.clock.now())
        for each in notifiers:
            why = await each.send(body)
            if why:
                troubles.append(f"{each.name} was not reached: {why}; it is tried again at the next round")
    away = sum(1 for each in seen if each.trouble is not None)
    now = keys(found)
    told = state.told if troubles else now
    return Round(changes(state.shown, found), found, len(seen), away, tuple(troubles)), State(now, told)


def _nothing(_: NodeFacts) -> None:
    """Nobody watches the single nodes of a round."""


def alert(fleet: str, what: Changes, now: datetime) -> bytes:
    """What a notifier is given: one JSON object, `muster.alert/1`."""
    at = now.astimezone(UTC)
    body = {
        "schema": "muster.alert/1",
        "generated_at": at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z",
        "data": {
            "fleet": fleet,
            "new": [each.body() for each in what.new],
            "gone": [each.body() for each in what.gone],
        },
        "warnings": [],
    }
    return json.dumps(body, default=dict).encode()


def read_state(file: Path) -> State:
    """The state that was kept; an empty one where there is none yet. Raises StoreBroken for a file that is something else."""
    try:
        body = json.loads(file.read_bytes())
        if body["form"] != STATE_FORM:
            raise ValueError(f"form {body['form']}")
        return State(_keys(body["shown"]), _keys(body["told"]))
    except FileNotFoundError:
        return State()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreBroken(
            f"{file}: what was told already cannot be read ({error})",
            hint="remove the file; the next round then tells everything that is found, as if it were new",
        ) from error


def _keys(rows: Sequence[Sequence[str]]) -> frozenset[Key]:
    found = frozenset((code, Severity(severity).value, subject, node) for code, severity, subject, node in rows)
    if not all(isinstance(word, str) for key in found for word in key):
        raise ValueError("a key is not of texts")
    return found


def write_state(file: Path, state: State) -> None:
    """Keep the state, whole or not at all (mode 0600). Raises StoreBroken when it cannot be kept."""
    part = file.with_name(file.name + ".new")
    body = {"form": STATE_FORM, "shown": sorted(state.shown), "told": sorted(state.told)}
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as out:
            json.dump(body, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, file)
    except OSError as error:
        raise StoreBroken(
            f"{file}: {error.strerror or error}", hint="without it the next start would alert again"
        ) from error
