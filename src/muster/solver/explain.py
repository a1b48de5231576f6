"""Why an answer is what it is, as a tree of values. Words are made from it elsewhere; what could be done about it is a second list."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class RuleSays:
    """A rule: its id, what it says in a clause, and where that was read.

    `doubt` says what of it nobody found written; such a rule is never said without it, and what rests on it needs a person's word.
    `ask` says what is not decided here, and who will: the node's preflight, the first canary, a person.
    """

    rule: str
    says: str
    source: str
    doubt: str = ""
    ask: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """Something seen on the nodes of a class, by fact path; of what is unknown, why."""

    path: str
    value: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Something the policy asks for, with the path in the policy, and where that stands (`fleet.yaml:12`) once somebody has looked it up."""

    path: str
    value: str
    at: str = ""


@dataclass(frozen=True, slots=True)
class NoCandidate:
    """There is nothing to choose from."""

    what: str


Leaf: TypeAlias = RuleSays | Observed | Wanted | NoCandidate


@dataclass(frozen=True, slots=True)
class Because:
    """A conclusion and what it rests on."""

    conclusion: str
    causes: tuple["Because | Leaf", ...]


@dataclass(frozen=True, slots=True)
class Hint:
    """What would unblock, kept apart from why it is blocked."""

    says: str


def located(tree: "Because", where: Callable[[str], str]) -> "Because":
    """The tree with each `Wanted` at the place that `where` gives for its path."""
    causes: list[Because | Leaf] = []
    for cause in tree.causes:
        if isinstance(cause, Wanted):
            causes.append(Wanted(cause.path, cause.value, where(cause.path)))
        else:
            causes.append(located(cause, where) if isinstance(cause, Because) else cause)
    return Because(tree.conclusion, tuple(causes))


def leaves(tree: "Because | Leaf") -> Iterator[Leaf]:
    """The leaves of a tree, left to right."""
    if isinstance(tree, Because):
        for cause in tree.causes:
            yield from leaves(cause)
    else:
        yield tree
