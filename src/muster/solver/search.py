"""Finds the best driver that every rule admits, or says why there is none. Pure; the rules are handed in."""

from collections.abc import Iterator, Sequence

from muster.knowledge.query import branch_number, releases
from muster.knowledge.schema import KnowledgeBase
from muster.model.policy import WantBranch
from muster.solver.candidates import candidates, wish_text
from muster.solver.explain import Because, Hint, Leaf, NoCandidate, RuleSays, Wanted
from muster.solver.hints import NEWER_KNOWLEDGE, few
from muster.solver.problem import (
    Answer,
    Candidate,
    Demand,
    NodeClass,
    NoSolution,
    Question,
    Refusal,
    Rule,
    Solution,
    asked_of,
    gpus_of,
)
from muster.solver.registry import RULES
from muster.solver.rules import restart


def solve(kind: NodeClass, demand: Demand, base: KnowledgeBase, rules: Sequence[Rule] = RULES) -> Answer:
    """The first candidate that all rules admit, with the rules that admit it; else NoSolution. Same input, same answer."""
    refusals: list[tuple[str, Refusal]] = []
    for question in _questions(kind, demand, base):
        judged = judge(question, rules)
        if isinstance(judged, Solution):
            return judged
        refusals.append(judged)
    return _none(kind, demand, base, refusals)


def ranked(kind: NodeClass, demand: Demand, base: KnowledgeBase, rules: Sequence[Rule] = RULES) -> tuple[Solution, ...]:
    """Every candidate that all rules admit, the best first."""
    judged = (judge(question, rules) for question in _questions(kind, demand, base))
    return tuple(each for each in judged if isinstance(each, Solution))


def judge(question: Question, rules: Sequence[Rule] = RULES) -> Solution | tuple[str, Refusal]:
    """What the rules say of one candidate: admitted by all, or the first that refuses, by name."""
    said: list[RuleSays] = []
    for rule in rules:
        judgement = rule.judge(question)
        if isinstance(judgement, Refusal):
            return rule.name, judgement
        said += judgement
    return Solution(question.candidate, tuple(dict.fromkeys(said)), restart.reasons(question))


def _questions(kind: NodeClass, demand: Demand, base: KnowledgeBase) -> Iterator[Question]:
    gpus, asked = gpus_of(kind, base), asked_of(demand, base)
    for driver in candidates(demand.wish, base):
        yield Question(Candidate(driver, demand.flavour or kind.flavour), kind, demand, base, gpus, asked)


def _known_branches(demand: Demand, base: KnowledgeBase) -> tuple[Hint, ...]:
    """The branches with builds for fleets that are nearest to one that has none."""
    if not isinstance(demand.wish, WantBranch):
        return ()
    number = branch_number(demand.wish.branch)
    having = {release.branch for release in releases(base)}
    near = sorted((b.number for b in base.branches.values() if b.name in having), key=lambda n: (abs(n - number), -n))
    return (Hint(f"the nearest branches with releases are {', '.join(f'R{n}' for n in near[:3])}"),) if near else ()


def _none(kind: NodeClass, demand: Demand, base: KnowledgeBase, refusals: Sequence[tuple[str, Refusal]]) -> NoSolution:
    """The whole proof: every candidate's refusal is in the tree, each reason once."""
    wanted = Wanted(f"pools.{demand.pool}.driver", wish_text(demand.wish))
    if not refusals:
        because = Because(
            f"no known driver is {wish_text(demand.wish)}", (wanted, NoCandidate("no release of that kind"))
        )
        return NoSolution(because, few((*_known_branches(demand, base), NEWER_KNOWLEDGE)), ("no-candidate",))
    hints = few(tuple(hint for _, refusal in refusals for hint in refusal.hints))
    rules = tuple(dict.fromkeys(name for name, _ in refusals))
    unknown = any(refusal.unknown for _, refusal in refusals)
    distinct = _merged(refusals)
    if len(distinct) == 1:
        (only,) = distinct
        tree = Because(only.conclusion, tuple(dict.fromkeys((wanted, *only.causes))))
    else:
        conclusion = f"none of the {len(refusals)} drivers that are {wish_text(demand.wish)} can run on {kind.product}"
        tree = Because(conclusion, (wanted, *distinct))
    return NoSolution(tree, hints, rules, unknown)


def _merged(refusals: Sequence[tuple[str, Refusal]]) -> tuple[Because, ...]:
    """Each reason once: what rests on the same causes is one reason, of whichever driver it is said."""
    same: dict[tuple[str, tuple[Because | Leaf, ...]], dict[str, None]] = {}
    for name, refusal in refusals:
        same.setdefault((name, refusal.because.causes), {})[refusal.because.conclusion] = None
    found = []
    for (_, causes), conclusions in same.items():
        first, *others = conclusions
        found.append(Because(first + (f" (and likewise for {len(others)} more drivers)" if others else ""), causes))
    return tuple(found)
