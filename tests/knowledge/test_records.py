"""Every record of every file is read, with where it comes from; what rests on memory decides nothing."""

from collections import Counter
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from muster.knowledge.base import CORE, FILES
from muster.knowledge.catalog import FACTS, KINDS
from muster.knowledge.claims import Claim
from muster.knowledge.listing import KindView, kind_named, line_of, lines_of, record_named, views
from muster.knowledge.loader import DATA, load
from muster.knowledge.records import KnownIssue, Limit
from muster.knowledge.records_more import Fact
from muster.knowledge.schema import Confidence, Provenance
from muster.model.errors import UnknownName

BASE = load()
PAGE = (Path(__file__).parents[2] / "docs/reference/knowledge.md").read_text(encoding="utf-8")
COUNTS = {
    "container_toolkit.yaml": 57, "cuda_toolkits.yaml": 83, "cudnn.yaml": 82, "dcgm.yaml": 37, "driver_branches.yaml": 33,
    "driver_releases.yaml": 325, "fabric_manager.yaml": 31, "forward_compat.yaml": 32, "frameworks.yaml": 130,
    "gpu_architectures.yaml": 38, "gpu_operator.yaml": 72, "host_firmware.yaml": 29, "kernel_support.yaml": 35, "known_issues.yaml": 33,
    "limits.yaml": 30, "nccl.yaml": 57, "ngc_images.yaml": 209, "nvidia_require_cuda.yaml": 119, "package_sets.yaml": 46,
    "security_bulletins.yaml": 67, "wheel_libs.yaml": 91, "xid.yaml": 188,
}  # fmt: skip


def provenances(record: Any) -> list[Provenance]:
    """The provenance of a record and of everything inside it."""
    if isinstance(record, Provenance):
        return [record]
    if isinstance(record, tuple):
        return [found for each in record for found in provenances(each)]
    if is_dataclass(record):
        return [found for field in fields(record) for found in provenances(getattr(record, field.name))]
    return []


def test_every_file_of_the_folder_is_read_and_every_record_of_it_loads() -> None:
    assert sorted(path.name for path in DATA.glob("*.yaml")) == sorted(FILES) == sorted(COUNTS)
    found: Counter[str] = Counter()
    for view in views(BASE):
        for key in view.records:
            found[view.file or f"{key.partition(':')[0]}.yaml"] += 1
    assert dict(found) == COUNTS


@pytest.mark.parametrize("view", views(BASE), ids=lambda view: str(view.name))
def test_every_record_has_a_source_a_day_and_one_of_five_confidences(view: KindView) -> None:
    assert view.records, view.name
    for key, record in view.records.items():
        found = provenances(record)
        assert found, key
        for each in found:
            assert each.sources and all(each.sources), key
            assert each.as_of[:2] == "20", key
            assert isinstance(each.confidence, Confidence), key


@pytest.mark.parametrize("view", views(BASE), ids=lambda view: str(view.name))
def test_every_record_can_be_shown_and_says_what_its_word_is_worth(view: KindView) -> None:
    for key, record in view.records.items():
        text = "\n".join(lines_of(record))
        assert "confidence: " in text and "source: " in text, key
        assert "Provenance(" not in text and "mappingproxy" not in text, key
        assert len(line_of(record)) <= 100, key
        assert record_named(view, key)[1] is record


def test_a_record_of_memory_or_with_sources_that_disagree_can_decide_nothing() -> None:
    for view in views(BASE):
        for key, record in view.records.items():
            for each in provenances(record):
                weak = each.confidence in (Confidence.MEMORY, Confidence.CONFLICTING)
                assert each.can_decide is not weak, key
                assert Claim("it is so", view.name, key, each).can_decide is each.can_decide


@pytest.mark.parametrize("confidence", Confidence)
def test_a_claim_is_as_good_as_its_record(confidence: Confidence) -> None:
    provenance = replace(next(iter(BASE.branches.values())).provenance, confidence=confidence)
    claim = Claim("R580 drives Hopper", "branch", "R580", provenance)
    assert claim.can_decide is (confidence not in (Confidence.MEMORY, Confidence.CONFLICTING))
    assert claim.source == ", ".join(provenance.sources)


def test_each_kind_has_a_class_a_name_and_a_list_of_its_own() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert len({kind.record for kind in KINDS}) == len(KINDS)
    lists = [(kind.file, kind.part) for kind in KINDS]
    lists += [(file, part) for file, parts in CORE.items() for part in parts]
    lists += [(file, "facts") for file in FACTS]
    assert len(set(lists)) == len(lists)


def test_records_are_asked_for_by_their_class() -> None:
    assert BASE.of(Limit)["rubin"].architectures == ("Rubin GR100",)
    assert next(iter(BASE.of(KnownIssue))) == "nvml-mixed-mig-570"
    assert BASE.of(str) == {}
    assert all(key.partition(":")[0] + ".yaml" in FACTS for key in BASE.of(Fact))


def test_a_kind_is_found_by_its_name_and_its_plural_and_the_nearest_is_named() -> None:
    assert kind_named(BASE, "known-issues").name == "known-issue"
    assert kind_named(BASE, "branches").name == "branch"
    with pytest.raises(UnknownName) as raised:
        kind_named(BASE, "relase")
    assert raised.value.hint == "did you mean release?"


def test_a_record_is_found_by_a_unique_beginning_and_else_the_nearest_are_named() -> None:
    assert record_named(kind_named(BASE, "known-issue"), "b200")[0] == "b200-uptime-66-days"
    assert record_named(kind_named(BASE, "branch"), "r580")[0] == "R580"
    with pytest.raises(UnknownName) as raised:
        record_named(kind_named(BASE, "release"), "580.126.21")
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("did you mean 580.126.20")
    assert "muster knowledge import" in raised.value.hint


def test_the_page_lists_the_kinds_and_the_limits_that_there_are() -> None:
    for view in views(BASE):
        file = f"`{view.file}`" if view.file else "any file with `facts`"
        assert f"| `{view.name}` | {file} | {view.about} |" in PAGE, view.name
    section = PAGE.split("\n## What must not be decided from it\n")[1]
    for limit in BASE.of(Limit).values():
        assert f"| `{limit.id}` | {limit.refuses} | {limit.ask} |" in section, limit.id
    assert section.count("\n| `") == len(BASE.of(Limit))
    for each in Confidence:
        assert f"| `{each.value}` |" in PAGE
