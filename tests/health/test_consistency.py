"""Each finding has a twin: change the one fact that it is about and it is gone. What is missing is unknown, never silence."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from muster.health.consistency import check, health_words
from muster.health.judgement import Subject
from muster.model.fact import FactValue, NodeFacts, Unknown
from muster.model.finding import Finding, Severity
from tests.support.planning import GOOD, NEW, OLD, PACKAGES, carrying, seen
from tests.support.values import T0

LOST = Unknown("no answer")
DAY = 24 * 3600
Values = Mapping[str, FactValue | None]


def subject(
    values: Values | None = None, name: str = "n1", *, age_s: int = 60, wanted: str | None = OLD, holds: bool = True
) -> Subject:
    return Subject(name, "train", seen(name, values or {}, age_s=age_s), wanted, holds)


def found(*subjects: Subject) -> dict[str, Finding]:
    findings = check(subjects, T0)
    assert len({finding.code for finding in findings}) == len(findings)
    return {finding.code: finding for finding in findings}


def test_a_node_that_agrees_with_everything_has_no_finding() -> None:
    assert found(subject()) == {}


TWINS: Mapping[str, tuple[Subject, Severity, str]] = {
    "loaded-is-not-on-disk": (
        subject({"module.nvidia.disk_version": NEW}, holds=False), Severity.ERROR, f"{OLD} is loaded, {NEW} is on disk",
    ),
    "library-is-not-loaded": (subject({"library.libcuda.version": NEW}), Severity.ERROR, f"the user-space library is {NEW}"),
    "stack-unknown": (subject({"library.libcuda.version": LOST}), Severity.UNKNOWN, "the user-space library is unknown: no answer"),
    "half-installed": (
        subject({"package[nvidia-driver].state": "half-configured"}), Severity.ERROR, "nvidia-driver half-installed",
    ),
    "hold-missing": (subject({"package[nvidia-driver].hold": False}), Severity.WARNING, "1 driver packages are not held"),
    "hold-unknown": (
        subject({"package[nvidia-driver].hold": LOST}), Severity.UNKNOWN, "whether 1 driver packages are held is unknown",
    ),
    "packages-unknown": (
        subject({**{path: None for path in GOOD if path.startswith("package[")}, "package[*].version": LOST}),
        Severity.UNKNOWN, "the installed packages are unknown: no answer",
    ),
    "gpu-unknown": (subject({"gpu.count": LOST}), Severity.UNKNOWN, "the GPUs cannot be read: no answer"),
    "no-gpu": (subject({"gpu.count": 0}), Severity.ERROR, "no GPU answers"),
    "no-driver-fits": (replace(subject(), problem="V100 is dropped by R590"), Severity.WARNING, "V100 is dropped by R590"),
    "not-as-wanted": (subject(wanted=NEW), Severity.WARNING, f"{OLD} is loaded, {NEW} is wanted"),
    "stale": (subject(age_s=DAY + 1), Severity.UNKNOWN, "last seen 2026-02-28 07:59 UTC"),
    "never-seen": (replace(subject(), facts=None), Severity.UNKNOWN, "was never looked at"),
    "unreachable": (
        replace(subject(), facts=seen("n1", {}, trouble="timeout")), Severity.UNKNOWN, "timeout",
    ),
}  # fmt: skip
"""Each finding on one node: the good node (which has none) with one thing changed."""


@pytest.mark.parametrize("code", TWINS)
def test_one_thing_changed_gives_this_finding_and_no_other(code: str) -> None:
    changed, severity, evidence = TWINS[code]
    findings = found(changed)
    assert set(findings) == {code}
    assert findings[code].severity is severity
    assert evidence in findings[code].evidence
    assert findings[code].nodes == ("n1",)
    assert findings[code].todo


def test_a_pool_with_two_drivers_is_mixed_and_with_one_it_is_not() -> None:
    other = {name: subject(carrying(NEW), name, wanted=NEW) for name in ("n4", "n5")}
    same = [subject(name=name) for name in ("n1", "n2", "n3")]
    (finding,) = check([*same, *other.values()], T0)
    assert (finding.code, finding.severity, finding.nodes) == ("mixed-drivers", Severity.WARNING, ("n4", "n5"))
    assert finding.evidence == f"{OLD} on 3, {NEW} on 2"
    assert check(same, T0) == ()
    assert check([*same, *(replace(each, pool="dev") for each in other.values())], T0) == ()
    assert check([*same, *(replace(each, pool="") for each in other.values())], T0) == ()


def test_of_three_drivers_all_but_the_most_frequent_are_named_and_of_equals_the_older() -> None:
    three = [
        subject(name="n1"), subject(name="n2"),
        subject(carrying(NEW), "n3", wanted=NEW), subject(carrying("580.95.05"), "n4", wanted="580.95.05"),
    ]  # fmt: skip
    assert found(*three)["mixed-drivers"].nodes == ("n3", "n4")
    assert found(*three[1:3])["mixed-drivers"].nodes == ("n2",)


def test_old_evidence_does_not_make_a_pool_mixed() -> None:
    old = replace(subject(carrying(NEW), "n2", wanted=NEW), facts=seen("n2", carrying(NEW), age_s=DAY + 1))
    gone = replace(old, facts=seen("n2", carrying(NEW), trouble="timeout"))
    assert "mixed-drivers" not in found(subject(), old)
    assert "mixed-drivers" not in found(subject(), gone)


JUDGED = (
    "module.nvidia.loaded_version", "module.nvidia.disk_version", "library.libcuda.version", "gpu.count", "packages.manager",
    *(f"package[{name}].hold" for name in PACKAGES),
)  # fmt: skip


@pytest.mark.parametrize("path", JUDGED)
@pytest.mark.parametrize("how", [LOST, None])
def test_a_missing_fact_gives_an_unknown_and_never_silence(path: str, how: FactValue | None) -> None:
    findings = check([subject({path: how})], T0)
    assert [finding.severity for finding in findings] == [Severity.UNKNOWN] * len(findings)
    assert findings
    assert (
        "no answer" in findings[0].evidence
        or "unknown" in findings[0].evidence
        or "not collected" in findings[0].evidence
    )


def test_holds_that_nobody_asks_for_are_not_missed() -> None:
    assert found(subject({"package[nvidia-driver].hold": False}, holds=False)) == {}


def test_a_site_build_that_is_wanted_is_met_by_the_version_it_is_made_from() -> None:
    assert found(subject(wanted=f"{OLD}-1+site1")) == {}


def test_findings_are_the_worst_first_and_the_same_on_many_nodes_is_one() -> None:
    many = [subject({"gpu.count": 0}, name) for name in ("n3", "n1", "n2")]
    findings = check([subject({"gpu.count": LOST}, "n0"), subject(name="n9", wanted=NEW), *many], T0)
    assert [(f.code, f.nodes) for f in findings] == [
        ("no-gpu", ("n1", "n2", "n3")),
        ("not-as-wanted", ("n9",)),
        ("gpu-unknown", ("n0",)),
    ]
    assert health_words(findings) == {"n1": "error", "n2": "error", "n3": "error", "n9": "warning", "n0": "unknown"}


def test_a_node_is_as_bad_as_the_worst_that_was_found_on_it() -> None:
    facts: NodeFacts = seen("n1", {"gpu.count": LOST, "library.libcuda.version": NEW})
    assert health_words(check([Subject("n1", "train", facts, NEW, holds=True)], T0)) == {"n1": "error"}
