"""What the consistency questions share: the node they judge, what they say of it, and what they could not see. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TypeAlias, TypeVar

from muster.model.fact import FactValue, NodeFacts, Unknown
from muster.model.finding import Severity
from muster.model.frozen import dataclass
from muster.model.memo import Remembered


@dataclass(frozen=True, slots=True)
class Subject:
    """A node to be judged: its facts (None: never collected), its pool, what its pool wants (None: nothing), whether holds are asked for.

    `problem` says why the wanted driver cannot run here; empty where it can, or where nothing is wanted. `hold_kernel` and
    `upgrades_forbidden` are what the policy asks beside the driver's hold, `developer_forbidden` whether a driver that came with a CUDA
    toolkit is. `most_gpus` is how many the node has had lately; None where that is not known.
    """

    node: str
    pool: str
    facts: NodeFacts | None
    wanted: str | None
    holds: bool
    problem: str = ""
    hold_kernel: bool = False
    upgrades_forbidden: bool = False
    developer_forbidden: bool = False
    most_gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One judgement on one node, before nodes with the same judgement are put together. A cause is each node's own."""

    code: str
    severity: Severity
    subject: str
    evidence: str
    todo: str
    cause: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Gap:
    """A question that could not be judged, and why. Gaps of one node with the same reason are said together."""

    what: str
    why: str


Question: TypeAlias = Callable[[Subject, NodeFacts], Iterator[Seen | Gap]]


_R = TypeVar("_R")


def answered(ask: Remembered[str, _R], alike: Sequence[Subject], key: str) -> Iterator[tuple[_R, Sequence[Subject]]]:
    """The answers for nodes whose facts have one `alike`, none of them None: one for all where nothing that is each node's own was read."""
    first = alike[0].facts
    if first is None:
        return
    answer = ask(first, key)
    if len(alike) == 1 or ask.is_shared(first, key):
        yield answer, alike
        return
    for subject in alike:
        if subject.facts is not None:
            yield ask(subject.facts, key), (subject,)


def gap(what: str, value: FactValue) -> Gap:
    """The gap that `value` leaves."""
    return Gap(what, value.why if isinstance(value, Unknown) else "its value is of another kind than expected")


def upstream(version: str | None) -> str:
    """The driver's own version inside a package's: without epoch and revision."""
    return version.rpartition(":")[2].partition("-")[0] if version else ""
