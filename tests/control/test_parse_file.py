"""`muster facts parse`: a file is read bounded, named for what it is, and an unclear one is answered with who it may be."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import main
from muster.control.bootstrap import capture_readers, fact_specs
from muster.control.captures import READ_BYTES, parse_file
from muster.model.errors import BadInput, UnknownName
from muster.model.fact import RawOutput

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
BAD_INPUT, PARTIAL = 3, 5


def printed(capsys: pytest.CaptureFixture[str]) -> Mapping[str, Any]:
    body = json.loads(capsys.readouterr().out)
    assert isinstance(body, dict)
    return body


def test_a_capture_is_named_and_its_facts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["facts", "parse", str(CAPTURES / "nvidia_smi" / "L_h200-mig_590.48.01.txt"), "--json"]) == 0
    body = printed(capsys)
    assert body["schema"] == "muster.capture/1"
    assert body["data"]["kind"] == "smi_list"
    assert body["data"]["facts"]["mig.count"] == 5
    assert body["data"]["raw"].startswith("GPU 0: NVIDIA H200")
    assert body["warnings"] == []
    assert main(["facts", "parse", str(CAPTURES / "nvidia_smi" / "L_h200-mig_590.48.01.txt")]) == 0
    assert "read as smi_list" in capsys.readouterr().err


def test_what_could_not_be_read_is_unknown_with_the_tools_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["facts", "parse", str(CAPTURES / "nvidia_smi" / "table_geforce_ecc-on_ERR-fan_525.125.06.txt"), "--json"])
        == 0
    )
    assert printed(capsys)["data"]["facts"]["gpu[00000000:01:00.0].fan"] == {"unknown": "ERR!"}


def test_a_windows_capture_is_read_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "facts",
                "parse",
                str(CAPTURES / "nvidia_smi" / "win_table_idle_geforce-rtx-2080-super_591.86.txt"),
                "--json",
            ]
        )
        == 0
    )
    body = printed(capsys)
    assert "Windows" in body["warnings"][0]
    assert body["data"]["facts"]["os.family"] == "windows"


def test_an_unclear_file_ends_with_bad_input_and_names_the_kinds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unclear = tmp_path / "out"
    unclear.write_text("hello\n")
    assert main(["facts", "parse", str(unclear), "--json"]) == BAD_INPUT
    out, err = capsys.readouterr()
    assert "no reader knows this form" in json.loads(out)["data"]["message"]
    assert "--kind" in err
    assert "smi_q" in err


def test_a_log_with_one_known_line_among_many_is_only_a_candidate(tmp_path: Path) -> None:
    mixed = tmp_path / "out"
    mixed.write_text("something\n" * 20 + "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus\n")
    with pytest.raises(BadInput) as caught:
        parse_file(str(mixed), kind=None, readers=capture_readers())
    assert caught.value.hint == "name it with --kind, one of: kernel_log"
    assert parse_file(str(mixed), kind="kernel_log", readers=capture_readers()).facts["kernel_log.count[xid]"] == 1


def test_a_kind_that_does_not_fit_says_nothing_but_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "out"
    other.write_text("hello\n")
    assert main(["facts", "parse", str(other), "--kind", "smi_q", "--json"]) == PARTIAL
    body = printed(capsys)
    assert body["data"]["raw"] == "hello\n"
    assert "nothing in it was understood" in body["warnings"][0]


def test_a_kind_may_be_shortened_and_a_wrong_one_is_answered_with_the_nearest(tmp_path: Path) -> None:
    sample = str(CAPTURES / "packages" / "dkms-status_forms.txt")
    assert parse_file(sample, kind="dkms_s", readers=capture_readers()).kind == "dkms_status"
    with pytest.raises(UnknownName, match="smi_qq"):
        parse_file(sample, kind="smi_qq", readers=capture_readers())


@pytest.mark.parametrize(
    ("data", "word"),
    [(b"", "empty"), (b"\xff\xfe", "empty"), (b"\x7fELF\x00\x00", "program"), (b"\x00" * 100, "zero bytes")],
)
def test_a_file_that_is_no_text_is_bad_input(tmp_path: Path, data: bytes, word: str) -> None:
    file = tmp_path / "out"
    file.write_bytes(data)
    with pytest.raises(BadInput, match=word) as caught:
        parse_file(str(file), kind=None, readers=capture_readers())
    assert caught.value.hint == "give the text that the tool printed"


def test_a_missing_file_and_a_folder_are_bad_input(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput, match=path.name):
            parse_file(str(path), kind=None, readers=capture_readers())


def test_of_a_file_of_a_gigabyte_only_the_beginning_is_read(tmp_path: Path) -> None:
    huge = tmp_path / "dmesg"
    line = b"[    1.000000] NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=a, GPU has fallen off the bus\n"
    with huge.open("wb") as file:
        file.write(line + b"[    2.000000] usb 1-2: Product: ASM107x of some maker\n" * 300_000)
        file.truncate(1 << 30)  # sparse: the disk holds only what was written
    capture = parse_file(str(huge), kind=None, readers=capture_readers())
    assert capture.facts["kernel_log.count[xid]"] == 1
    assert any("longer than what was read" in warning for warning in capture.warnings)
    assert READ_BYTES < 1 << 25


def test_what_a_nodes_own_source_printed_is_read_when_it_is_named(tmp_path: Path) -> None:
    for spec in fact_specs():
        for output in sorted((CAPTURES.parent / "facts" / spec.name).iterdir()):
            data = output.read_bytes()
            if output.suffix == ".yaml" or not data.strip():
                continue
            capture = parse_file(str(output), kind=f"source_{spec.name}", readers=capture_readers())
            assert dict(spec.parse(RawOutput(0, data))).items() <= capture.facts.items(), output.name
