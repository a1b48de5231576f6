"""What is read in the recorded answers of `dcgmi diag -j`, 3.x and 4.x; and of each a twin with one thing changed, whose verdict changes."""

import gzip
import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.backends.validators.dcgm import DcgmValidator, unpacked
from muster.model.fact import Fact, NodeFacts
from muster.model.verdict import Degraded, Fail, Pass, Undecided, Verdict
from tests.support.values import T0

FOLDER = Path(__file__).resolve().parents[1] / "fixtures/dcgm"


def judged(text: str, status: int = 0, gpus: int = 1) -> Verdict:
    return DcgmValidator(2).judge(
        status, text.encode(), NodeFacts("n1", T0, {"gpu.count": Fact("gpu.count", gpus, "t", T0)})
    )


def sample(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def twin(name: str, change: Callable[[Any], object]) -> str:
    body = json.loads(sample(name)[sample(name).index("{") :])
    change(body)
    return json.dumps(body)


def within(body: Any, category: int) -> Any:
    return next(iter(body.values()))["test_categories"][category]["tests"]


def test_every_recorded_answer_has_its_provenance() -> None:
    listed = yaml.safe_load((FOLDER / "index.yaml").read_text(encoding="utf-8"))["samples"]
    assert sorted(each["file"] for each in listed) == sorted(
        path.name for path in FOLDER.iterdir() if path.suffix != ".yaml"
    )
    assert all(each["source"]["repo"] for each in listed)


def test_an_answer_of_3_1_with_a_line_before_it_and_nulls_in_it_passes() -> None:
    assert judged(sample("3.1.0_8gpu_pass.txt"), gpus=8) == Pass("dcgmi passes 10 tests")


def test_one_gpu_of_3_1_that_fails_fails_the_node() -> None:
    text = twin(
        "3.1.0_8gpu_pass.txt", lambda body: within(body, 1)[0]["results"][5].update(status="FAIL", warnings="ECC")
    )
    assert judged(text, 226, 8) == Fail("software, GPU 5: ECC")


def test_a_gpu_that_was_not_tested_fails_the_node() -> None:
    assert judged(sample("3.1.0_8gpu_pass.txt"), gpus=9) == Fail("dcgmi tested 8 of 9 GPUs")


def test_a_run_that_skipped_everything_is_unknown() -> None:
    assert judged(sample("3.3.1_t400_level3_skips.json")) == Undecided("dcgmi skipped every test")


@pytest.mark.parametrize(
    "name", ["4.2.3_gb10_level1.json", "4.2.3_gb10_level2_partial-skip.json", "4.5.2_gb10_level2.json"]
)
def test_a_setting_that_dcgm_wants_otherwise_is_degraded_not_broken(name: str) -> None:
    verdict = judged(sample(name), 226)
    assert isinstance(verdict, Degraded)
    assert verdict.why.startswith("software, GPU 0: Persistence Mode")


@pytest.mark.parametrize("severity", [2, 3, 4, 6, None])
def test_a_finding_of_any_other_severity_fails(severity: int | None) -> None:
    def change(body: Any) -> None:
        within(body, 0)[0]["results"][0]["warnings"][0]["error_severity"] = severity

    assert isinstance(judged(twin("4.5.2_gb10_level2.json", change), 226), Fail)


def mended(body: Any) -> None:
    """The persistence mode is on."""
    test = within(body, 0)[0]
    test["results"][0] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Pass"}
    test["test_summary"] = {"status": "Pass"}


def test_an_answer_of_4_5_without_findings_passes() -> None:
    assert judged(twin("4.5.2_gb10_level2.json", mended)) == Pass("dcgmi passes 3 tests")


def test_what_was_left_out_is_named_in_a_pass() -> None:
    verdict = judged(twin("4.2.3_gb10_level2_partial-skip.json", mended))
    assert verdict == Pass("dcgmi passes 1 tests; left out: memory, pcie")


def test_a_pass_with_a_warning_is_unknown() -> None:
    def change(body: Any) -> None:
        mended(body)
        within(body, 1)[0]["results"][0]["warnings"] = [
            {"warning": "Couldn't allocate 75% of memory", "error_severity": 1}
        ]

    verdict = judged(twin("4.5.2_gb10_level2.json", change))
    assert verdict == Undecided("memory, GPU 0 passes, but: Couldn't allocate 75% of memory")


def test_a_summary_that_alone_says_fail_fails() -> None:
    def change(body: Any) -> None:
        mended(body)
        within(body, 2)[0]["test_summary"] = {
            "status": "Fail",
            "warnings": [{"warning": "no peer", "error_severity": 2}],
        }

    assert judged(twin("4.5.2_gb10_level2.json", change), 226) == Fail("pcie: no peer")


def test_a_diagnostic_that_could_not_run_is_unknown() -> None:
    text = json.dumps({"DCGM Diagnostic": {"runtime_error": "unable to reach the host engine"}})
    assert judged(text, 1) == Undecided("dcgmi could not run its tests: unable to reach the host engine")
    plain = "Error: unable to establish a connection to the specified host: localhost"
    verdict = judged(plain, 255)
    assert isinstance(verdict, Undecided)
    assert "localhost" in verdict.why


def test_a_status_that_nobody_knows_is_unknown() -> None:
    def change(body: Any) -> None:
        mended(body)
        within(body, 1)[0]["results"][0]["status"] = "Postponed"

    assert isinstance(judged(twin("4.5.2_gb10_level2.json", change)), Undecided)


def test_what_was_packed_on_the_node_is_read_and_what_is_cut_short_is_not() -> None:
    text = sample("3.1.0_8gpu_pass.txt")
    packed = b"gzip-base64 " + b64encode(gzip.compress(text.encode()))
    assert unpacked(packed) == text
    assert unpacked(packed[:-8]) == ""
    bomb = b"gzip-base64 " + b64encode(gzip.compress(b"{" * 50_000_000))
    assert unpacked(bomb) == ""
