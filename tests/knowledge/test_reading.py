"""Knowledge files are read strictly: every record has its provenance, and no fault is read over."""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.documents import Document, compose
from muster.knowledge.base import FILES, revision_of
from muster.knowledge.loader import DATA, load
from muster.knowledge.reading import (
    read_architectures,
    read_branches,
    read_package_sets,
    read_releases,
    read_toolkits,
)
from muster.knowledge.schema import Confidence, KnowledgeBase, Provenance
from muster.knowledge.shelves import read_shelves
from muster.model.errors import DocumentFaults

BASE = load()


def provenances(base: KnowledgeBase) -> list[tuple[str, Provenance]]:
    found = [(f"branch {name}", branch.provenance) for name, branch in base.branches.items()]
    found += [(f"release {version}", release.provenance) for version, release in base.releases.items()]
    found += [(f"toolkit {version}", toolkit.provenance) for version, toolkit in base.toolkits.items()]
    found += [(each.id, each.provenance) for each in base.package_sets]
    for name, architecture in base.architectures.items():
        found += [(name, architecture.provenance), (f"modules of {name}", architecture.open_modules.provenance)]
        found += [(each.product, each.provenance) for each in architecture.open_modules.exceptions]
        found += [(each.name, each.provenance) for each in architecture.families]
        found += [(each.name, each.provenance) for each in architecture.products]
    return [*found, ("open only", base.open_only_from[1])]


def test_every_record_has_a_source_a_day_and_a_confidence() -> None:
    for name, provenance in provenances(BASE):
        assert provenance.sources and all(provenance.sources), name
        assert len(provenance.as_of) == len("2026-11-30"), name
        assert isinstance(provenance.confidence, Confidence), name


def test_the_base_is_as_large_as_its_files_say() -> None:
    assert len(BASE.branches) == 28
    assert len(BASE.releases) == 275
    assert len(BASE.toolkits) == 75
    assert len(BASE.architectures) == 16
    assert sum(len(each.products) for each in BASE.architectures.values()) == 110


def test_records_fit_together() -> None:
    for release in BASE.releases.values():
        assert release.version.branch == release.branch
        assert release.branch in BASE.branches
    for toolkit in BASE.toolkits.values():
        assert toolkit.branch is None or toolkit.branch in BASE.branches, toolkit.version
    for branch in BASE.branches.values():
        for version in (branch.first_datacenter_release, branch.latest_datacenter_release):
            assert version is None or version in BASE.releases, version
    assert BASE.open_only_from[0] in BASE.branches


def test_releases_branches_and_toolkits_are_in_ascending_order() -> None:
    assert list(BASE.releases) == sorted(BASE.releases)
    assert list(BASE.toolkits) == sorted(BASE.toolkits)
    numbers = [branch.number for branch in BASE.branches.values()]
    assert numbers == sorted(numbers)


def test_no_family_stands_for_two_architectures() -> None:
    names = [family.name for each in BASE.architectures.values() for family in each.families]
    assert len(names) == len(set(names))


def test_no_two_package_sets_answer_the_same_question() -> None:
    asked = [
        (each.repository, distribution, each.architecture, each.flavour, number)
        for each in BASE.package_sets
        for distribution in each.distributions
        for number in range(each.first_branch, each.last_branch + 1)
    ]
    assert len(asked) == len(set(asked))
    for each in BASE.package_sets:
        names = [member.name for member in each.members]
        assert len(names) == len(set(names)), each.id


def revision(texts: Mapping[str, str]) -> str:
    return revision_of({name: compose(text, name) for name, text in texts.items()})


def test_the_revision_follows_the_content_and_not_the_layout() -> None:
    texts = {name: (DATA / name).read_text() for name in FILES}
    assert revision(texts) == BASE.revision
    assert revision({name: f"# a comment\n{text}\n\n" for name, text in texts.items()}) == BASE.revision
    assert revision({f"/elsewhere/{name}": text for name, text in texts.items()}) != BASE.revision
    for old, new in (("'2028-06'", "'2028-08'"), ("branch: R580", "branch: R581"), ("notes: ", "notes: x")):
        changed = texts["driver_branches.yaml"].replace(old, new, 1)
        assert changed != texts["driver_branches.yaml"]
        assert revision({**texts, "driver_branches.yaml": changed}) != BASE.revision
    assert revision({**texts, "/site/limits.yaml": texts["limits.yaml"]}) != BASE.revision


@given(st.data())
def test_any_change_of_any_value_changes_the_revision_and_a_comment_does_not(data: st.DataObject) -> None:
    name = data.draw(
        st.sampled_from(("limits.yaml", "forward_compat.yaml", "fabric_manager.yaml", "kernel_support.yaml"))
    )
    lines = (DATA / name).read_text().split("\n")
    before = revision({name: "\n".join(lines)})
    values = [at for at, line in enumerate(lines) if line.startswith(("  id: ", "- id: "))]
    at = data.draw(st.sampled_from(values))
    assert revision({name: "\n".join([*lines[:at], f"{lines[at]}x", *lines[at + 1 :]])}) != before
    assert revision({name: "\n".join([*lines[:at], "# why", f"{lines[at]}  # a word", *lines[at + 1 :]])}) == before


def test_the_revision_is_a_sha256_of_all_files() -> None:
    documents = {name: compose((DATA / name).read_text(), name) for name in FILES}
    assert revision_of(documents) == BASE.revision
    assert len(BASE.revision) == 64
    assert sorted(path.name for path in DATA.glob("*.yaml")) == sorted(FILES)


@pytest.mark.parametrize("word", ["third_party", "inferred", "mixed", "single report", "certain", "Stated", ""])
def test_a_word_for_confidence_beside_the_five_is_refused(word: str) -> None:
    text = f"{BRANCH}  confidence: '{word}'\n"
    with pytest.raises(DocumentFaults) as raised:
        read_branches(compose(text, "x.yaml"))
    (fault,) = raised.value.faults
    assert fault.startswith("x.yaml:10: branches record: confidence cannot be"), fault


def test_the_collectors_own_word_is_kept_beside_the_confidence() -> None:
    noted = [each for _, each in provenances(BASE) if each.confidence_note is not None]
    assert {each.confidence for each in noted if each.confidence_note == "third_party"} == {Confidence.THIRD_PARTY}
    assert {each.confidence for each in noted if each.confidence_note == "mixed"} == {Confidence.MEMORY}
    assert {each.confidence for each in noted if each.confidence_note == "inferred"} == {Confidence.DERIVED}


BRANCH = """\
as_of: '2026-11-30'
branches:
- branch: R580
  designation: [{name: LTSB}]
  max_cuda_major_without_forward_compat: 13
  native_cuda: '13.0'
  architectures_dropped: []
  last_branch_for: []
  source: https://example.org
"""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("  source: https://example.org\n", "", "x.yaml:3: branches record lacks the key 'source'"),
        ("native_cuda:", "natve_cuda:", "x.yaml:6: branches record has no key 'natve_cuda' (did you mean native_cuda"),
        ("'13.0'", "13", "x.yaml:6: branches record: native_cuda: '13' is not a CUDA version"),
        ("R580", "580", "x.yaml:3: branches record: branch: '580' is no driver branch"),
        ("LTSB", "LTS", "x.yaml:4: designation record: name cannot be 'LTS' (did you mean LTSB?)"),
        ("'2026-11-30'", "yesterday", "x.yaml:1: x.yaml: as_of: 'yesterday' is no day"),
        ("branches:", "branchs:", "x.yaml:2: x.yaml has no key 'branchs' (did you mean branches?)"),
        ("last_branch_for: []", "last_branch_for: [{}]", "x.yaml:8: branches record: last_branch_for must be text"),
    ],
)
def test_a_broken_record_is_refused_at_its_line(old: str, new: str, fault: str) -> None:
    with pytest.raises(DocumentFaults) as raised:
        read_branches(compose(BRANCH.replace(old, new), "x.yaml"))
    assert any(line.startswith(fault) for line in raised.value.faults), raised.value.faults


READERS: Mapping[str, Callable[[Document], object]] = {
    "cuda_toolkits.yaml": read_toolkits,
    "driver_branches.yaml": read_branches,
    "driver_releases.yaml": read_releases,
    "gpu_architectures.yaml": read_architectures,
    "package_sets.yaml": read_package_sets,
}


@given(st.data())
def test_a_file_with_any_line_broken_is_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILES))
    reader = READERS.get(name, read_shelves)
    # The whole files would take minutes: their beginnings hold every kind of record's shape but the last ones'.
    lines = (DATA / name).read_text().splitlines()
    start = data.draw(st.integers(0, max(0, len(lines) - 60)))
    part = lines[start : start + 60]
    place = data.draw(st.integers(0, len(part) - 1))
    part[place] = part[place][: data.draw(st.integers(0, 30))] + data.draw(st.text(max_size=8))
    head = lines[: next(number for number, line in enumerate(lines) if line.startswith("- ")) + 1] if start else []
    try:
        reader(compose("\n".join([*head, *part]), name))
    except DocumentFaults as error:
        assert error.faults
