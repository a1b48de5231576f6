"""Laws of the arithmetic of CUDA and drivers: one answer, whoever asks, and nothing unseen counts as good."""

from dataclasses import replace

import pytest

from muster.knowledge.loader import load
from muster.knowledge.query_cuda import Fit, fit
from muster.model.fact import Unknown
from muster.solver.fits import driver_fit, runs
from muster.solver.problem import NoSolution, Solution
from muster.solver.rules.kernel import builds
from muster.solver.search import solve
from tests.support.solving import scenarios

BASE = load()
UNSEEN = Unknown("not seen")
ADMITTED = {
    name: each for name, each in scenarios().items() if isinstance(solve(each.kind, each.demand, each.base), Solution)
}


@pytest.mark.parametrize("branch", BASE.branches)
def test_the_rules_and_the_queries_give_one_answer_for_every_toolkit(branch: str) -> None:
    record = BASE.branches[branch]
    for release in BASE.releases.values():
        if release.branch != branch:
            continue
        for version, toolkit in BASE.toolkits.items():
            ours, theirs = driver_fit(toolkit, release.version, record), fit(BASE, version, release.version).fit
            below = toolkit.minimum_driver is not None and release.version.plain < toolkit.minimum_driver
            # Below the floor of a major the query still says what the branch carries; a rule does not count on it.
            assert ours is theirs or (below and not runs(ours)), (release.version, version)


def test_a_branch_without_a_record_is_unknown_and_unknown_does_not_run() -> None:
    (toolkit, *_) = BASE.toolkits.values()
    (release, *_) = BASE.releases.values()
    assert driver_fit(toolkit, release.version, None) is Fit.UNKNOWN
    assert not runs(Fit.UNKNOWN)


MATTERS = [
    (name, field)
    for name, each in ADMITTED.items()
    for field in ("root", "runfile", "secure_boot", "kernels")
    if field != "kernels" or builds(each.kind)
]
"""Scenarios with a yes, each with a part of the class that matters there: kernels do where modules are built on the node."""


@pytest.mark.parametrize(("name", "field"), MATTERS)
def test_what_could_not_be_seen_is_never_counted_as_good(name: str, field: str) -> None:
    each = ADMITTED[name]
    answer = solve(replace(each.kind, **{field: UNSEEN}), each.demand, each.base)  # type: ignore[arg-type]
    assert isinstance(answer, NoSolution)
    assert answer.unknown


@pytest.mark.parametrize("name", ADMITTED)
def test_a_repository_that_nobody_read_is_left_to_preflight_and_said_so(name: str) -> None:
    each = ADMITTED[name]
    answer = solve(replace(each.kind, offers=UNSEEN), each.demand, each.base)
    if isinstance(answer, Solution):
        assert any(rule.rule == "repository-has-driver" and "preflight" in rule.ask for rule in answer.because)
