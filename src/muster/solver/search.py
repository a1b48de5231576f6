"""Finds the best driver that every rule admits, or says why there is none. Pure; the rules are handed in."""

from collections.abc import Callable, Sequence

from muster.knowledge.query import branch_number, releases
from muster.knowledge.schema import KnowledgeBase
from muster.model.policy import WantBranch
from muster.solver.candidates import candidates, wish_text
from muster.solver.explain import Because, Hint, NoCandidate, RuleSays, Wanted
from muster.solver.problem import (
    Answer,
    Candidate,
    Demand,
    Judgement,
    NodeClass,
    NoSolution,
    Question,
    Refusal,
    Solution,
)
from muster.solver.rules import architecture, cuda, flavour, known, restart

Rule = Callable[[Question], Judgement]

RULES: tuple[Rule, ...] = (known.RULE, architecture.RULE, flavour.RULE, cuda.RULE)
"""The rules, in the order in which a refusal is told: the most basic first."""

MOST_REASONS = 3
"""How many refused candidates an explanation names; the rest are refused for reasons of the same kinds."""


def solve(kind: NodeClass, demand: Demand, base: KnowledgeBase, rules: Sequence[Rule] = RULES) -> Answer:
    """The first candidate that all rules admit, with the rules that admit it; else NoSolution. Same input, same answer."""
    refusals: list[Refusal] = []
    for driver in candidates(demand.wish, base):
        question = Question(Candidate(driver, demand.flavour or kind.flavour), kind, demand, base)
        judgements = [rule(question) for rule in rules]
        refused = next((j for j in judgements if isinstance(j, Refusal)), None)
        if refused is None:
            because = tuple(j for j in judgements if isinstance(j, RuleSays))
            return Solution(question.candidate, because, restart.reasons(question))
        refusals.append(refused)
    return _none(kind, demand, base, refusals)


_NEWER = Hint("newer knowledge comes with a newer release of Muster")


def _known_branches(demand: Demand, base: KnowledgeBase) -> tuple[Hint, ...]:
    """The branches with builds for fleets that are nearest to one that has none."""
    if not isinstance(demand.wish, WantBranch):
        return ()
    number = branch_number(demand.wish.branch)
    having = {release.branch for release in releases(base)}
    near = sorted((b.number for b in base.branches.values() if b.name in having), key=lambda n: (abs(n - number), -n))
    return (Hint(f"the nearest branches with releases are {', '.join(f'R{n}' for n in near[:3])}"),) if near else ()


def _none(kind: NodeClass, demand: Demand, base: KnowledgeBase, refusals: Sequence[Refusal]) -> NoSolution:
    wanted = Wanted(f"pools.{demand.pool}.driver", wish_text(demand.wish))
    distinct = list(dict.fromkeys(refusal.because for refusal in refusals))
    if not distinct:
        because = Because(
            f"no known driver is {wish_text(demand.wish)}", (wanted, NoCandidate("no release of that kind"))
        )
        return NoSolution(because, (*_known_branches(demand, base), _NEWER))
    hints = tuple(dict.fromkeys(hint for refusal in refusals for hint in refusal.hints))
    if len(distinct) == 1:
        (only,) = distinct
        return NoSolution(Because(only.conclusion, tuple(dict.fromkeys((wanted, *only.causes)))), hints[:MOST_REASONS])
    conclusion = f"none of the {len(refusals)} drivers that are {wish_text(demand.wish)} can run on {kind.product}"
    return NoSolution(Because(conclusion, (wanted, *distinct[:MOST_REASONS])), hints[:MOST_REASONS])
