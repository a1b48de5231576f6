"""Makes sentences and JSON values from explanations. The only place where the solver speaks. Pure."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from muster.solver.explain import Because, Leaf, NoCandidate, Observed, RuleSays, Wanted

DOUBT = "rests on memory, a site must confirm it"
"""Stands in every sentence about a rule that nobody found written; `planner.lint` looks for it."""

ASK = "not decided here"
"""Stands in every sentence about what others decide, with who they are."""


def sentence(tree: Because | Leaf) -> str:
    """One clause for the top of a tree, without its causes."""
    match tree:
        case Because(conclusion=conclusion, causes=causes):
            doubts = [cause.doubt for cause in causes if isinstance(cause, RuleSays) and cause.doubt]
            return conclusion + (f" ({DOUBT}: {'; '.join(doubts)})" if doubts else "")
        case RuleSays(says=says, rule=rule, doubt=doubt, ask=ask):
            weak = f" ({DOUBT}: {doubt})" if doubt else ""
            return f"{says} [{rule}]{weak}" + (f" ({ASK}: {ask})" if ask else "")
        case Observed(path=path, value=value):
            return f"the node shows {path} = {value}"
        case Wanted(path=path, value=value, at=at):
            asks = f"it was asked with {path}" if path.startswith("--") else f"the policy asks for {path} ="
            return f"{asks} {value}" + (f" ({at})" if at else "")
        case NoCandidate(what=what):
            return f"nothing to choose from: {what}"
        case _:
            assert_never(tree)


MOST_CAUSES = 6
"""So many causes of one conclusion are said; --json has them all."""


def paragraphs(tree: Because | Leaf, depth: int = 0, most: int | None = None) -> tuple[str, ...]:
    """The tree as indented lines, a conclusion before what it rests on; with `most`, so many causes of each conclusion and how many more."""
    lead = "" if depth == 0 else "  " * depth + "because "
    lines = [lead + sentence(tree)]
    if isinstance(tree, RuleSays) and tree.source:
        lines.append("  " * (depth + 1) + f"source: {tree.source}")
    if isinstance(tree, Because):
        for cause in tree.causes[:most]:
            lines += paragraphs(cause, depth + 1, most)
        left = len(tree.causes) - (len(tree.causes) if most is None else most)
        if left > 0:
            lines.append("  " * (depth + 1) + f"and {left} more of the kind: --json has them")
    return tuple(lines)


def body(tree: Because | Leaf) -> Mapping[str, object]:
    """The tree as JSON values."""
    match tree:
        case Because(conclusion=conclusion, causes=causes):
            return {"conclusion": conclusion, "causes": [body(cause) for cause in causes]}
        case RuleSays(rule=rule, says=says, source=source, doubt=doubt, ask=ask):
            more = {key: value for key, value in (("doubt", doubt), ("ask", ask)) if value}
            return {"rule": rule, "says": says, "source": source, **more}
        case Observed(path=path, value=value):
            return {"observed": path, "value": value}
        case Wanted(path=path, value=value, at=at):
            return {"wanted": path, "value": value} | ({"at": at} if at else {})
        case NoCandidate(what=what):
            return {"no_candidate": what}
        case _:
            assert_never(tree)


def listing(names: Sequence[str], most: int = 4) -> str:
    """Names for a sentence: all of them, or the first ones and how many more."""
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join(names[:most]) + f" and {len(names) - most} more"
