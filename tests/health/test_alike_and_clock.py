"""Nodes held against each other and against their own past: settings in a pool, clocks, the number of GPUs, looks from the future."""

from dataclasses import replace
from datetime import timedelta

import pytest

from muster.health.consistency import STALE_AFTER_S, check
from muster.health.judgement import Subject
from muster.health.settings import SETTINGS
from muster.model.fact import FactValue, NodeFacts
from muster.model.finding import Finding, Severity
from tests.support.planning import OLD, seen
from tests.support.values import T0

YEAR_S = 365 * 86400


def subject(name: str, *, pool: str = "train", most_gpus: int | None = None, **values: FactValue | None) -> Subject:
    """A good node; of its facts some are changed, a dot written as two underscores."""
    facts = seen(name, {path.replace("__", "."): value for path, value in values.items()})
    return Subject(name, pool, facts, OLD, holds=True, most_gpus=most_gpus)


def clocked(name: str, off_s: int) -> Subject:
    return subject(name, clock__utc_s=int(T0.timestamp()) - 60 + off_s)


def found(*subjects: Subject) -> dict[str, Finding]:
    findings = check(subjects, T0)
    assert len({each.code for each in findings}) == len(findings)
    return {each.code: each for each in findings}


@pytest.mark.parametrize("path", SETTINGS)
def test_of_a_pool_the_nodes_that_are_set_otherwise_than_most_are_named(path: str) -> None:
    key = path.replace(".", "__")
    alike = [subject(f"n{at}") for at in range(3)]
    assert found(*alike) == {}
    findings = found(*alike, subject("n9", **{key: "other"}))
    assert set(findings) == {"settings-differ"}
    finding = findings["settings-differ"]
    assert (finding.severity, finding.nodes, finding.subject) == (Severity.WARNING, ("n9",), "pool train")
    assert finding.evidence.startswith(f"{SETTINGS[path]} of NVIDIA H100 PCIe: ")
    assert "other on 1" in finding.evidence
    assert finding.todo


def test_other_pools_and_other_gpus_may_be_set_otherwise() -> None:
    assert found(subject("n1"), subject("n2", pool="dev", settings__ecc="Disabled")) == {}
    assert found(subject("n1"), subject("n2", gpu__product="NVIDIA A100", settings__ecc="Disabled")) == {}
    assert found(subject("n1"), subject("n2", pool="", settings__ecc="Disabled")) == {}


def test_old_evidence_is_no_difference() -> None:
    old = subject("n2", settings__ecc="Disabled")
    assert old.facts is not None
    then = T0 - timedelta(seconds=STALE_AFTER_S + 1)
    assert set(found(subject("n1"), replace(old, facts=replace(old.facts, observed_at=then)))) == {"stale"}


def test_a_node_that_has_had_more_gpus_misses_some() -> None:
    findings = found(subject("n1", most_gpus=8, gpu__count=7, pci__gpus=7))
    assert set(findings) == {"gpu-missing"}
    assert (findings["gpu-missing"].severity, findings["gpu-missing"].evidence) == (
        Severity.ERROR,
        "7 GPUs answer, it has had 8",
    )
    assert found(subject("n1", most_gpus=8)) == {}
    assert found(subject("n1", most_gpus=4)) == {}


@pytest.mark.parametrize(
    ("off_s", "words"),
    [
        (-9 * YEAR_S, "3285 days behind"),
        (50 * YEAR_S, "18250 days ahead of"),
        (-7300, "2 hours behind"),
        (301, "5 minutes ahead of"),
    ],
)
def test_a_clock_that_is_off_is_named_with_how_much(off_s: int, words: str) -> None:
    findings = found(clocked("n1", off_s), clocked("n2", 0), clocked("n3", 300))
    assert set(findings) == {"clock-wrong"}
    assert (findings["clock-wrong"].severity, findings["clock-wrong"].nodes) == (Severity.WARNING, ("n1",))
    assert findings["clock-wrong"].evidence == f"its clock is {words} this machine's"


def test_when_most_nodes_agree_it_is_this_machines_clock() -> None:
    alike = [clocked(f"n{at}", -9 * YEAR_S - at) for at in range(4)]
    findings = found(*alike)
    assert set(findings) == {"clock-here-wrong"}
    assert findings["clock-here-wrong"].evidence == "4 of 4 nodes are 3285 days behind this machine's clock"
    both = found(*alike, clocked("n9", 0))
    assert set(both) == {"clock-here-wrong", "clock-wrong"}
    assert (both["clock-wrong"].nodes, both["clock-wrong"].evidence) == (
        ("n9",),
        "its clock is 3285 days ahead of that of most nodes",
    )


def test_of_two_nodes_nobody_says_whose_clock_is_wrong() -> None:
    assert found(clocked("n1", -YEAR_S), clocked("n2", -YEAR_S))["clock-wrong"].nodes == ("n1", "n2")


def looked_at(facts: NodeFacts, ahead_s: int) -> Subject:
    then = T0 + timedelta(seconds=ahead_s)
    return Subject("n1", "train", replace(facts, observed_at=then), OLD, holds=True)


def test_a_look_from_the_future_is_never_fresh() -> None:
    facts = seen("n1", {})
    assert set(found(looked_at(facts, 300))) == set()
    findings = found(looked_at(facts, 30 * YEAR_S))
    assert set(findings) == {"seen-in-the-future"}
    assert findings["seen-in-the-future"].severity is Severity.UNKNOWN


def test_two_nodes_with_one_machine_id_are_both_named() -> None:
    same = {"machine__id": "0" * 31 + "1"}
    findings = found(subject("n1", **same), subject("n2", **same), subject("n3", machine__id="0" * 31 + "2"))
    assert set(findings) == {"machine-id-not-unique"}
    assert findings["machine-id-not-unique"].nodes == ("n1", "n2")
