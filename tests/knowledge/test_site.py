"""A site's own records stand beside the release's, under the same rules, and can confirm what nobody wrote down."""

from pathlib import Path

import pytest

from muster.control import knowledge as use
from muster.control.policy import read_policy
from muster.knowledge import query
from muster.knowledge.loader import load
from muster.knowledge.records import KnownIssue
from muster.knowledge.schema import Confidence
from muster.model.errors import BadInput, DocumentFaults, Refused
from muster.model.policy import Flavour
from muster.model.versions.driver import DriverVersion

NEWER = """\
as_of: '2027-01-15'
linux_releases:
- version: '580.199.01'
  branch: R580
  channel: datacenter
  release_date: '2027-01-14'
  source: https://docs.nvidia.com/datacenter/tesla/tesla-release-notes-580-199-01
"""
CONFIRMED = """\
as_of: '2027-01-15'
issues:
- id: gsp-xid-119-early
  component: GSP firmware
  severity: high
  when: condition
  drivers: '>=525,<525.85.12'
  condition: A100 with GSP on, NVML polled ten times a second
  symptom: Xid 119, GPU unusable until reset
  source: our own trial of 2027-01-10 on eight nodes
"""
OWN_SET = """\
as_of: '2027-01-15'
package_sets:
- id: site-debian12
  repository: nvidia-cuda
  distributions: [debian12]
  architecture: amd64
  first_branch: R580
  last_branch: R580
  flavour: open
  revision: '-1+site1'
  members:
  - {role: module, need: always, names: [nvidia-kernel-open-dkms]}
  source: the list of our mirror
"""


def written(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_an_import_adds_records_and_changes_the_revision(tmp_path: Path) -> None:
    site = tmp_path / "store" / "knowledge"
    version = DriverVersion.parse("580.199.01")
    assert query.find_release(load(site), version) is None
    done = use.bring_in(written(tmp_path, "driver_releases.2027.yaml", NEWER), site)
    assert [(each.what, each.kind, each.key) for each in done.changes] == [("added", "release", "580.199.01")]
    assert done.before == load().revision != done.after
    base = load(site)
    assert base.revision == done.after
    found = query.find_release(base, version)
    assert found is not None
    assert found.provenance.as_of == "2027-01-15"
    assert list(base.releases) == sorted(base.releases)
    assert use.faults(site) == ()
    assert [path.name for path in site.iterdir()] == ["driver_releases.2027.yaml"]
    assert use.summed_up(base, site).site_files == (str((site / "driver_releases.2027.yaml").resolve()),)


def test_a_comparison_tells_the_same_and_writes_nothing(tmp_path: Path) -> None:
    site = tmp_path / "knowledge"
    done = use.compare(written(tmp_path, "driver_releases.yaml", NEWER), site)
    assert [each.key for each in done.changes] == ["580.199.01"]
    assert not site.exists()


def test_a_site_confirms_what_was_only_remembered(tmp_path: Path) -> None:
    assert not load().of(KnownIssue)["gsp-xid-119-early"].provenance.can_decide
    site = tmp_path / "knowledge"
    done = use.bring_in(written(tmp_path, "known_issues.yaml", CONFIRMED), site)
    (change,) = done.changes
    assert (change.what, change.kind, change.key) == ("changed", "known-issue", "gsp-xid-119-early")
    assert {name for name, _, _ in change.fields} >= {"drivers", "provenance"}
    issue = load(site).of(KnownIssue)["gsp-xid-119-early"]
    assert issue.provenance.confidence is Confidence.STATED
    assert issue.provenance.can_decide
    assert list(load(site).of(KnownIssue)) == list(load().of(KnownIssue))


def test_a_sites_package_names_answer_before_the_releases(tmp_path: Path) -> None:
    use.bring_in(
        written(tmp_path, "package_sets.site.yaml", OWN_SET.replace("nvidia-cuda", "mirror")), tmp_path / "knowledge"
    )
    base = load(tmp_path / "knowledge")
    sets = query.package_sets(base, "debian12", "amd64", "R580", Flavour.OPEN)
    assert sets[0].id == "site-debian12"
    assert query.package_set(base, "debian12", "amd64", "R580", Flavour.OPEN, "mirror") is sets[0]


def test_records_that_answer_a_question_twice_are_not_imported(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        use.bring_in(written(tmp_path, "package_sets.site.yaml", OWN_SET), tmp_path / "knowledge")
    assert "package-set nvidia-debian12-amd64-open-580: site-debian12 answers for R580 on debian12 too" in str(
        raised.value
    )
    assert not (tmp_path / "knowledge").exists()


def test_files_with_faults_are_told_with_all_of_them_and_none_is_imported(tmp_path: Path) -> None:
    written(tmp_path / "new", "driver_releases.yaml", NEWER.replace("channel", "chanel"))
    written(tmp_path / "new", "known_issues.yaml", CONFIRMED.replace("severity: high", "severity: hihg"))
    written(tmp_path / "new", "limits.yaml", "as_of: '2027-01-15'\nrefusals: []\n")
    with pytest.raises(DocumentFaults) as raised:
        use.bring_in(tmp_path / "new", tmp_path / "knowledge")
    assert any(
        "driver_releases.yaml:5: linux_releases record has no key 'chanel'" in each for each in raised.value.faults
    )
    assert any("known_issues.yaml:5: issues record: severity cannot be 'hihg'" in each for each in raised.value.faults)
    assert not (tmp_path / "knowledge").exists()


@pytest.mark.parametrize("name", ["driver_relases.yaml", "notes.txt", "nothing.yaml", "driver_releases.yml"])
def test_a_file_is_called_as_one_of_the_releases(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput) as raised:
        use.bring_in(written(tmp_path, name, NEWER), tmp_path / "knowledge")
    assert raised.value.hint is not None
    assert "driver_releases.yaml" in raised.value.hint


def test_a_folder_without_files_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "xid.yaml"):
        with pytest.raises(BadInput):
            use.bring_in(path, tmp_path / "knowledge")


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    written(tmp_path, "file", "")
    with pytest.raises(Refused, match="file/knowledge"):
        use.bring_in(written(tmp_path, "driver_releases.yaml", NEWER), tmp_path / "file" / "knowledge")


def test_what_an_editor_leaves_in_the_folder_is_no_record(tmp_path: Path) -> None:
    site = tmp_path / "knowledge"
    written(site, ".driver_releases.yaml.swp", "\x00")
    written(site, ".#driver_releases.yaml", "no: yaml: at all")
    assert load(site) is load()


def test_a_file_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    site = tmp_path / "knowledge"
    use.bring_in(written(tmp_path, "driver_releases.yaml", NEWER), site)
    done = use.bring_in(written(tmp_path, "driver_releases.yaml", NEWER.replace("580.199.01", "580.199.02")), site)
    assert [(each.what, each.key) for each in done.changes] == [("removed", "580.199.01"), ("added", "580.199.02")]


def test_an_export_holds_all_files_and_reads_as_the_same_base(tmp_path: Path) -> None:
    site = tmp_path / "knowledge"
    use.bring_in(written(tmp_path, "driver_releases.yaml", NEWER), site)
    names = use.write_out(tmp_path / "out", site)
    assert "site/driver_releases.yaml" in names and "xid.yaml" in names
    assert (tmp_path / "out/site/driver_releases.yaml").read_text() == NEWER
    with pytest.raises(BadInput):
        use.write_out(tmp_path / "out", site)


def test_a_damaged_file_of_a_site_is_found_by_verify_with_its_line(tmp_path: Path) -> None:
    site = tmp_path / "knowledge"
    written(site, "driver_releases.yaml", NEWER.replace("branch: R580", "branch: R599"))
    (found, second) = use.faults(site)
    assert found.endswith(": release 580.199.01: it belongs to R580, not to R599")
    assert f"{site.resolve()}/driver_releases.yaml:3: " in found
    assert second.endswith("branch R599 is not known")
    written(site, "driver_releases.yaml", NEWER.replace("'580.199.01'", "newest"))
    (found,) = use.faults(site)
    assert found.startswith(
        f"{site.resolve()}/driver_releases.yaml:3: linux_releases record: version: 'newest' is not a driver version"
    )


POLICY = "schema: 1\nfleet: lab\ninventory: [{local: true}]\npools: {all: {match: {gpu: Z9000}}}\nknowledge: own\n"
Z9000 = """\
as_of: '2027-01-15'
architectures:
- architecture: Zeta
  compute_capabilities: ['13.0']
  last_driver_branch: ongoing
  open_kernel_modules: {requirement: required}
  families: [{names: [Z9000]}]
  products: []
  source: the vendor's note
"""


def test_a_family_that_only_the_sites_folder_knows_can_be_matched(tmp_path: Path) -> None:
    policy = written(tmp_path, "fleet.yaml", POLICY)
    (tmp_path / "own").mkdir()
    with pytest.raises(DocumentFaults, match="'Z9000' is no GPU family"):
        read_policy(policy)
    written(tmp_path / "own", "gpu_architectures.yaml", Z9000)
    assert read_policy(policy).knowledge == "own"


def test_a_folder_of_knowledge_that_is_not_there_is_a_fault_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DocumentFaults) as raised:
        read_policy(written(tmp_path, "fleet.yaml", POLICY.replace("Z9000", "H100")))
    (fault,) = raised.value.faults
    assert ":5: policy: knowledge: there is no folder 'own' beside this file" in fault
