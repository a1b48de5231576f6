"""Laws of `check` for other programs: a whole file or none, one printable line, an exit code that never calls unknown clean."""

import re
from pathlib import Path

import pytest

from muster.control.report import LINE_CHARS, one_line, textfile
from muster.model.finding import Finding, Severity
from tests.support.desk import Desk
from tests.support.planning import seen
from tests.support.shelf import shelf
from tests.support.values import T0

SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\[\\"n])*"(,[a-z]+="(?:[^"\\\n]|\\[\\"n])*")*\})? [0-9]+')


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return shelf(tmp_path_factory.mktemp("shelf"))


def finding(code: str = "mixed", severity: Severity = Severity.ERROR, *nodes: str, evidence: str = "seen") -> Finding:
    return Finding(code, severity, "driver", nodes or ("n1",), evidence, "do")


def test_a_textfile_counts_nodes_by_code_severity_and_pool() -> None:
    found = [finding("mixed", Severity.ERROR, "n1", "n2"), finding("lost", Severity.UNKNOWN, "n2", "n3")]
    text = textfile(found, {"n1": "train", "n2": "train", "n3": "-"}, {"n1": seen("n1", {}, age_s=60)}, T0)
    lines = text.splitlines()
    assert 'muster_findings{code="mixed",severity="error",pool="train"} 2' in lines
    assert 'muster_findings{code="lost",severity="unknown",pool="-"} 1' in lines
    assert "muster_nodes_unknown 2" in lines
    assert 'muster_nodes{pool="train"} 2' in lines
    assert f'muster_last_collect_timestamp_seconds{{node="n1"}} {int(T0.timestamp()) - 60}' in lines
    assert all(line.startswith("# ") or SAMPLE.fullmatch(line) for line in lines)


def test_a_look_that_failed_altogether_is_no_collect() -> None:
    failed = seen("n1", {}, trouble="timeout")
    never = type(failed)("n1", T0, {}, failed.trouble)
    assert "timestamp_seconds{node" not in textfile([], {"n1": "a"}, {"n1": never}, T0)


def test_no_name_breaks_a_textfile() -> None:
    odd = 'a"b\\c\nd'
    lines = textfile([finding(odd, Severity.ERROR, odd)], {odd: odd}, {odd: seen(odd, {})}, T0).splitlines()
    assert all(line.startswith("# ") or SAMPLE.fullmatch(line) for line in lines)


def test_a_textfile_is_put_in_its_place_whole_and_readable_for_all(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "muster.prom").write_text("old")
    assert desk.here("check", "--textfile", str(tmp_path)).exit_code == 5
    text = (tmp_path / "muster.prom").read_text(encoding="utf-8")
    assert 'muster_findings{code="never-seen",severity="unknown",pool="inference"} 1' in text
    assert (tmp_path / "muster.prom").stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["muster.prom"]


def test_a_folder_that_is_not_there_is_refused_by_name(desk: Desk, tmp_path: Path) -> None:
    said = desk.here("check", "--textfile", str(tmp_path / "no"), "--json")
    assert said.exit_code == 3
    assert str(tmp_path / "no") in str(said.body["message"])


@pytest.mark.parametrize(
    ("node", "code", "begins"),
    [("n1", 0, "OK n1:"), ("n3", 1, "ERROR n3: library-is-not-loaded"), ("n4", 5, "UNKNOWN n4:")],
)
def test_one_line_tells_a_scheduler_how_a_node_is(desk: Desk, node: str, code: int, begins: str) -> None:
    said = desk.here("check", "--node", node, "--oneline")
    (line,) = said.out.splitlines()
    assert line.startswith(begins)
    assert said.exit_code == code


def test_one_line_without_a_node_is_a_fault_of_usage(desk: Desk) -> None:
    assert desk.here("check", "--oneline").exit_code == 2


def test_one_line_is_one_line_whatever_was_seen() -> None:
    many = [finding(f"code-{at}", evidence="a\nb\x1b[31m\u2028" + "x" * 500) for at in range(90)]
    line = one_line("n1", many)
    assert len(line) <= LINE_CHARS
    assert line.isprintable()


def test_findings_are_chosen_by_severity_and_code(desk: Desk) -> None:
    def codes(*words: str) -> tuple[set[str], int]:
        said = desk.here("check", *words, "--json")
        found = said.body["findings"]
        assert isinstance(found, list)
        return {each["code"] for each in found}, said.exit_code

    assert codes("--code", "never-seen") == ({"never-seen"}, 5)
    assert codes("--code", "library-is-not-loaded", "--code", "never-seen") == (
        {"library-is-not-loaded", "never-seen"},
        5,
    )
    assert codes("--severity", "error") == ({"library-is-not-loaded"}, 1)
    assert codes("--severity", "note") == (set(), 0)
    assert "no finding is of this kind" in desk.here("check", "--severity", "note").out


def test_a_code_that_no_finding_can_have_is_refused_with_the_nearest(desk: Desk) -> None:
    said = desk.here("check", "--code", "next-boot-difers")
    assert said.exit_code == 3
    assert "next-boot-difers" in said.err
    assert "did you mean next-boot-differs" in said.err
    assert desk.here("check", "--code", "never-seen", "--code", "xyzzy", "--json").exit_code == 3


def test_pools_that_overlap_and_pools_without_a_node_are_findings(tmp_path: Path) -> None:
    desk = shelf(tmp_path)
    more = "  both: {match: {label.rack: r2}}\n  nobody: {match: {label.rack: r9}}\n"
    policy = (tmp_path / "fleet.yaml").read_text(encoding="utf-8")
    (tmp_path / "fleet.yaml").write_text(policy + more, encoding="utf-8")
    said = desk.here("check", "--code", "in-two-pools", "--code", "empty-pool", "--json").body["findings"]
    assert isinstance(said, list)
    assert {(each["code"], each["subject"], tuple(each["nodes"])) for each in said} == {
        ("in-two-pools", "policy", ("n2",)),
        ("in-two-pools", "policy", ("n3",)),
        ("empty-pool", "pool nobody", ()),
    }
