"""Laws of `muster knowledge`: what it prints, for people and for programs, and how it ends."""

from pathlib import Path

import pytest

from tests.support.desk import Desk
from tests.support.shelf import shelf

NEWER = """\
as_of: '2027-01-15'
linux_releases:
- {version: '580.199.01', branch: R580, channel: datacenter, release_date: '2027-01-14', source: our mirror}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk without a fleet.yaml."""
    (tmp_path / "here").mkdir()
    return Desk(tmp_path / "here", tmp_path / "store" / "muster.db")


def with_fleet(desk: Desk) -> Desk:
    (desk.folder / "fleet.yaml").write_text(
        "schema: 1\nfleet: lab\ninventory: [{local: true}]\npools: {all: {match: {gpu: '*'}}}\n", encoding="utf-8"
    )
    return desk


def test_info_says_how_much_is_known_how_old_and_how_well(desk: Desk) -> None:
    said = desk.here("knowledge", "info")
    assert said.exit_code == 0
    assert said.out.startswith("revision ")
    assert "stated" in said.out and "memory" in said.out and "known_issues.yaml" in said.out
    body = desk.here("knowledge", "info", "--json").body
    files, kinds, confidence = body["files"], body["kinds"], body["confidence"]
    assert isinstance(files, list) and isinstance(kinds, dict) and isinstance(confidence, dict)
    assert sum(each["records"] for each in files) == body["records"] == sum(kinds.values()) == sum(confidence.values())
    assert str(body["oldest"]) <= str(body["newest"]) == "2026-11-30"


def test_show_lists_kinds_then_records_then_one_with_its_source(desk: Desk) -> None:
    assert "known-issue" in desk.here("knowledge", "show").out
    assert "nvml-mixed-mig-570" in desk.here("knowledge", "show", "known-issues").out
    said = desk.here("knowledge", "show", "branch", "R580")
    assert said.exit_code == 0
    assert "source: https://" in said.out and "confidence: stated, read where NVIDIA says it" in said.out
    body = desk.here("knowledge", "show", "branch", "R580", "--json").body
    assert (body["kind"], body["key"]) == ("branch", "R580")
    record = body["record"]
    assert isinstance(record, dict) and record["native_cuda"] == "13.0"
    provenance = record["provenance"]
    assert isinstance(provenance, dict) and provenance["confidence"] == "stated"


def test_a_record_that_nobody_knows_is_answered_with_the_nearest_and_how_to_learn(desk: Desk) -> None:
    said = desk.here("knowledge", "show", "release", "580.126.21")
    assert said.exit_code == 3
    assert "did you mean 580.126.20" in said.err and "muster knowledge import FILE" in said.err
    said = desk.here("knowledge", "show", "relase")
    assert said.exit_code == 3
    assert "did you mean release?" in said.err


def test_verify_is_clean_for_what_was_released(desk: Desk) -> None:
    said = desk.here("knowledge", "verify")
    assert (said.exit_code, said.err) == (0, "")
    assert "fit together" in said.out
    assert desk.here("knowledge", "verify", "--json").body["faults"] == []


def test_verify_ends_with_1_and_every_fault_of_the_sites_files(desk: Desk) -> None:
    with_fleet(desk)
    site = desk.store.parent / "knowledge"
    site.mkdir(parents=True)
    (site / "driver_releases.yaml").write_text(
        NEWER.replace("channel", "chanel").replace("R580", "580"), encoding="utf-8"
    )
    said = desk.here("knowledge", "verify")
    assert said.exit_code == 1
    lines = said.out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{site}/driver_releases.yaml:3: ") for line in lines)


def test_what_is_imported_is_shown_beside_the_store_and_can_be_compared_first(desk: Desk) -> None:
    with_fleet(desk)
    (desk.folder / "driver_releases.2027.yaml").write_text(NEWER, encoding="utf-8")
    before = desk.here("knowledge", "diff", "driver_releases.2027.yaml")
    assert (before.exit_code, before.out) == (1, "added release 580.199.01\n")
    done = desk.here("knowledge", "import", "driver_releases.2027.yaml")
    assert done.exit_code == 0
    assert (desk.store.parent / "knowledge" / "driver_releases.2027.yaml").exists()
    assert desk.here("knowledge", "show", "release", "580.199.01").exit_code == 0
    again = desk.here("knowledge", "diff", "driver_releases.2027.yaml", "--json")
    assert again.exit_code == 0
    assert again.body["changes"] == []


def test_an_import_needs_to_know_the_site(desk: Desk) -> None:
    (desk.folder / "driver_releases.yaml").write_text(NEWER, encoding="utf-8")
    said = desk.here("knowledge", "import", "driver_releases.yaml")
    assert said.exit_code == 3
    assert "--fleet FILE" in said.err


def test_an_import_with_faults_changes_nothing_and_names_each(desk: Desk) -> None:
    with_fleet(desk)
    (desk.folder / "driver_releases.yaml").write_text(NEWER.replace("our mirror", ""), encoding="utf-8")
    said = desk.here("knowledge", "import", "driver_releases.yaml")
    assert said.exit_code == 3
    assert "driver_releases.yaml:3: linux_releases record: source must be text, not nothing" in said.err
    assert not (desk.store.parent / "knowledge").exists()


def test_an_export_can_be_read_again(desk: Desk) -> None:
    said = desk.here("knowledge", "export", "out")
    assert said.exit_code == 0
    assert (desk.folder / "out" / "xid.yaml").read_text(encoding="utf-8").startswith("# What Xid codes")
    assert desk.here("knowledge", "export", "out").exit_code == 3


def test_a_driver_that_a_site_made_known_can_be_asked_for(tmp_path: Path) -> None:
    desk = shelf(tmp_path)
    before = desk.here("why", "n1", "--not", "580.199.01")
    assert before.exit_code == 1
    assert "580.199.01 is not a driver that is known" in before.out and "muster knowledge import FILE" in before.out
    (desk.folder / "driver_releases.yaml").write_text(NEWER, encoding="utf-8")
    assert desk.here("knowledge", "import", "driver_releases.yaml").exit_code == 0
    after = desk.here("why", "n1", "--not", "580.199.01")
    assert after.exit_code in (0, 1)
    assert "580.199.01" in after.out and "is not a driver that is known" not in after.out
