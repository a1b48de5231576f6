"""A fault planted in any kind of record is named with its file and line, and all of them at once."""

import pytest

from muster.documents import Map, Sequence, compose
from muster.knowledge.base import CORE, FILES, read_base
from muster.knowledge.catalog import KINDS
from muster.knowledge.loader import DATA
from muster.knowledge.reading import read_releases
from muster.knowledge.shelves import read_shelves
from muster.model.errors import DocumentFaults

TEXTS = {name: (DATA / name).read_text(encoding="utf-8") for name in FILES}
ODD = "0odd-key0"
LISTS = sorted(
    {(kind.file, kind.part) for kind in KINDS}
    | {(file, part) for file, parts in CORE.items() for part in parts if part != "open_module_required_from"}
)


def first_line(file: str, part: str) -> int:
    """The line on which the first record of a list begins, counted from nought."""
    root = compose(TEXTS[file], file).root
    assert isinstance(root, Map)
    found = root.get(part)
    assert isinstance(found, Sequence)
    return found.items[0].line - 1


def planted() -> tuple[dict[str, str], dict[tuple[str, str], int]]:
    """All files with an unknown key in the first record of each list, and the line on which it stands there."""
    texts, places = dict(TEXTS), {}
    for file in FILES:
        lines = TEXTS[file].split("\n")
        shift = 0
        for place, part in sorted((first_line(file, part), part) for name, part in LISTS if name == file):
            line = lines[place + shift]
            if line.startswith("- {"):
                lines[place + shift] = f"- {{{ODD}: x, {line.removeprefix('- {')}"
            else:
                lines[place + shift : place + shift + 1] = [f"- {ODD}: x", f"  {line.removeprefix('- ')}"]
            places[(file, part)] = place + shift + 1
            shift += not line.startswith("- {")
        texts[file] = "\n".join(lines)
    return texts, places


PLANTED, PLACES = planted()


@pytest.fixture(scope="module")
def faults() -> tuple[str, ...]:
    with pytest.raises(DocumentFaults) as raised:
        read_base(PLANTED)
    return raised.value.faults


@pytest.mark.parametrize(("file", "part"), LISTS, ids=[f"{file}:{part}" for file, part in LISTS])
def test_an_unknown_key_in_a_record_of_any_kind_is_named_with_file_and_line(
    file: str, part: str, faults: tuple[str, ...]
) -> None:
    start = f"{file}:{PLACES[(file, part)]}: {part} record has no key '{ODD}'"
    assert sum(fault.startswith(start) for fault in faults) == 1, start


def test_faults_of_all_files_are_told_at_once_and_no_others(faults: tuple[str, ...]) -> None:
    assert len(faults) == len(LISTS)


ISSUE = """\
as_of: '2026-11-30'
issues:
- id: one
  component: driver
  severity: high
  when: always
  drivers: '>=580,<580.95.05'
  condition: none
  symptom: none
  source: https://example.org
"""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("  source: https://example.org\n", "", ":3: issues record lacks the key 'source' (say where it was read)"),
        ("symptom: none", "symptom: ''", ":9: issues record: symptom must be text, not empty text"),
        ("  symptom: none\n", "", ":3: issues record lacks the key 'symptom'"),
        ("severity: high", "severity: hihg", ":5: issues record: severity cannot be 'hihg' (did you mean high?)"),
        ("when: always", "wen: always", ":6: issues record has no key 'wen' (did you mean when?)"),
        ("'>=580,<580.95.05'", "580", ":7: issues record: drivers: "),
        ("'>=580,<580.95.05'", "[a]", ":7: issues record: drivers must be one value, not a list"),
        ("condition: none", "condition: none\n  reported: ['580']", ":9: issues record: reported: '580' is not a driver version"),
        ("condition: none", "condition: none\n  reported: 580.1.1", ":9: issues record: reported must be a list"),
        ("condition: none", "condition: none\n  condition: other", ":9: key 'condition' stands twice, first on line 8"),
        ("condition: none", "condition: none\n  upgrade: {from_branch: R1, to_branch: R615}",
         ":9: issues record: upgrade record: from_branch: 'R1'"),
        ("component: driver", "component: &x driver", ":4: anchor &x is refused"),
        ("https://example.org\n", "https://example.org\n  confidence: sure\n", ":11: issues record: confidence cannot be 'sure'"),
        ("https://example.org\n", "https://example.org\n  as_of: lately\n", ":11: issues record: as_of: 'lately' is no day"),
        ("id: one", "id: One", ":3: issues record: id: 'One' is no name"),
        ("as_of: '2026-11-30'\n", "", ":1: known_issues.yaml lacks the key 'as_of'"),
        ("issues:\n", "isues:\n", ":2: known_issues.yaml has no key 'isues' (did you mean issues?)"),
        (ISSUE, f"{ISSUE}- {ISSUE[ISSUE.index('id: one'):]}", ":11: issues record 'one' stands twice, first on line 3"),
    ],
)  # fmt: skip
def test_each_kind_of_fault_is_named_at_its_line(old: str, new: str, fault: str) -> None:
    assert old in ISSUE
    with pytest.raises(DocumentFaults) as raised:
        read_shelves(compose(ISSUE.replace(old, new), "known_issues.yaml"))
    assert any(line.startswith(f"known_issues.yaml{fault}") for line in raised.value.faults), raised.value.faults


TWICE = """\
as_of: '2026-11-30'
linux_releases:
- {version: '580.1.1', branch: R580, channel: datacenter, source: x}
- {version: '580.1.2', branch: R580, channel: datacenter, source: x}
- {version: '580.1.1', branch: R580, channel: beta, source: x}
"""


def test_a_build_that_stands_twice_is_refused() -> None:
    with pytest.raises(DocumentFaults) as raised:
        read_releases(compose(TWICE, "driver_releases.yaml"))
    (fault,) = raised.value.faults
    assert fault.startswith("driver_releases.yaml:5: linux_releases record '580.1.1' stands twice, first on line 3")
