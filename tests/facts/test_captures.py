"""Every recorded output is recognised and read to what the index of samples expects of it, key by key; and each fact is needed for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.discovery import discover
from muster.facts import captures
from muster.model.capture import Capture, CaptureSpec
from tests.support.comparisons import Looked, holds

FIXTURES = Path(__file__).parent.parent / "fixtures"
READERS = tuple(
    reader for reader in discover("muster.facts.captures", "READER").values() if isinstance(reader, CaptureSpec)
)


def texts_of(name: str) -> Any:
    return yaml.load((FIXTURES / "captures" / name).read_text(encoding="utf-8"), Loader=yaml.BaseLoader)


SAMPLES: Mapping[str, Mapping[str, Any]] = {sample["file"]: sample for sample in texts_of("index.yaml")["samples"]}
LINES = texts_of("kernel_log/lines.yaml")["lines"]
MAPPING: Mapping[str, Mapping[str, Mapping[str, Any]]] = texts_of("mapping.yaml")["kinds"]
LINES_FILE = "kernel_log/lines.yaml"


def output(file: str) -> bytes:
    """The recorded bytes. Reports as XML lie with the node's own source; of `lines.yaml` the lines, as one log."""
    if file == LINES_FILE:
        return "\n".join(entry["line"] for entry in LINES).encode()
    here = FIXTURES / "captures" / file
    return (here if here.exists() else FIXTURES / "facts" / "gpu" / Path(file).name).read_bytes()


def read(data: bytes, kind: str | None = None) -> Capture:
    found = captures.read(data, READERS, kind=kind, cut=False)
    assert isinstance(found, Capture), found
    return found


def flat(expect: Mapping[str, Any]) -> Mapping[str, Any]:
    """A line's expectations with `nvlink5: {unit: ...}` as `nvlink5.unit`."""
    found: dict[str, Any] = {}
    for key, value in expect.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{part}": each for part, each in value.items()}
        else:
            found[key] = value
    return found


def assert_expected(kind: str, expect: Mapping[str, Any], sample: Mapping[str, Any], capture: Capture) -> None:
    """Each key holds, and does not hold once any one of the facts that it rests on is gone."""
    for key, expected in expect.items():
        comparisons = MAPPING[kind].get(key)
        assert comparisons, f"the key {key} of {kind} is mapped to no fact"
        looked = Looked(capture.facts, sample, sample.get("line", ""))
        assert holds(comparisons, expected, looked), (key, expected)
        for path in dict.fromkeys(looked.paths):
            without = {each: value for each, value in capture.facts.items() if each != path}
            assert not holds(comparisons, expected, Looked(without, sample, sample.get("line", ""))), (
                f"{key} holds without {path}"
            )


def test_every_sample_is_here_and_has_its_origin() -> None:
    assert len(SAMPLES) == 179
    assert all(sample["source"] and sample["expect"] for sample in SAMPLES.values())
    assert all(output(file) for file in SAMPLES)


@pytest.mark.parametrize("file", SAMPLES)
def test_a_recorded_output_is_recognised_and_gives_all_that_the_index_expects_and_each_fact_is_needed(
    file: str,
) -> None:
    capture = read(output(file))
    assert (
        capture.understood or file == "nvidia_smi/win_topo_geforce-rtx-2080-super_591.86.txt"
    )  # the tool refused to answer
    kind = "kernel_log_lines" if file == LINES_FILE else capture.kind
    assert_expected(kind, SAMPLES[file]["expect"], SAMPLES[file], capture)


@pytest.mark.parametrize("number", range(len(LINES)))
def test_a_single_kernel_line_is_one_event_and_gives_all_that_is_expected_of_it(number: int) -> None:
    entry = LINES[number]
    capture = read(entry["line"].encode())
    assert capture.kind == "kernel_log"
    assert capture.facts["kernel_log.events"] == 1
    assert_expected("kernel_line", flat(entry["expect"]), entry, capture)


def test_what_knowledge_adds_to_a_line_is_settled_by_what_was_parsed_of_it() -> None:
    settled: dict[tuple[str, ...], str] = {}
    for entry in LINES:
        facts = read(entry["line"].encode()).facts
        for key, expected in flat(entry["expect"]).items():
            about = MAPPING["kernel_line"][key].get("determined_by")
            if about:
                parsed = tuple(str(facts.get(f"event[0000001].{field}")) for field in about)
                assert settled.setdefault((key, *parsed), expected) == expected, entry["line"]
    assert settled


def test_no_key_of_the_index_is_unmapped_and_no_mapping_is_left_over() -> None:
    used: dict[str, set[str]] = {"kernel_line": {key for entry in LINES for key in flat(entry["expect"])}}
    for file, sample in SAMPLES.items():
        kind = "kernel_log_lines" if file == LINES_FILE else read(output(file)).kind
        used.setdefault(kind, set()).update(sample["expect"])
    assert used == {kind: set(keys) for kind, keys in MAPPING.items()}


@pytest.mark.parametrize("key", ["says"])
def test_a_reading_in_words_that_nobody_mapped_does_not_hold(key: str) -> None:
    assert not holds({key: {"one thing": {"a": "b"}}}, "another thing", Looked({"a": "b"}, {}))


def test_every_reader_has_recorded_outputs() -> None:
    assert {reader.name for reader in READERS} == {read(output(file)).kind for file in SAMPLES}
    assert {reader.name for reader in READERS} == set(discover("muster.facts.captures", "READER"))


WINDOWS = [file for file in SAMPLES if Path(file).name.startswith("win_") or "windows" in file]
SAME_ON_BOTH = ("win_L_", "win_help", "win_nvlink", "win_retired", "win_topo")


@pytest.mark.parametrize("file", WINDOWS)
def test_a_windows_capture_is_read_and_said_to_be_one_where_its_text_tells(file: str) -> None:
    capture = read(output(file))
    tells = not Path(file).name.startswith(SAME_ON_BOTH)
    assert (capture.facts.get("os.family") == "windows") is tells
    assert any("Windows" in warning for warning in capture.warnings) is tells


def test_no_linux_capture_is_taken_for_windows() -> None:
    models = {file for file, sample in SAMPLES.items() if "driver_model" in sample["expect"]}
    taken = {file for file in SAMPLES if read(output(file)).facts.get("os.family") == "windows"}
    assert taken - set(WINDOWS) == models - set(WINDOWS)


def test_the_same_gpu_has_the_same_facts_from_xml_text_and_table() -> None:
    """One fact, one path: what several forms of one machine's report say is said under one name, in one wording."""
    forms = [
        read(output(f"nvidia_smi/{form}_idle_h200-mig_590.48.01.{suffix}")).facts
        for form, suffix in (("q", "txt"), ("query-gpu", "csv"), ("table", "txt"))
    ]
    fields = [
        {path.partition("].")[2]: value for path, value in facts.items() if path.startswith("gpu[")} for facts in forms
    ]
    shared = set(fields[0]) & set(fields[1]) & set(fields[2])
    assert shared >= {"name", "bus_id", "memory", "persistence", "mig.mode", "ecc.mode", "compute_mode", "pstate"}
    for field in sorted(shared - {"fan"}):
        assert len({str(form[field]) for form in fields}) == 1, (field, [form[field] for form in fields])
    for path in ("gpu.count", "gpu.driver_version", "gpu.product"):
        assert len({facts[path] for facts in forms}) == 1


def test_the_page_lists_every_kind_of_output() -> None:
    page = (FIXTURES.parents[1] / "docs" / "reference" / "captures.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{reader.name}` | {reader.what} |" for reader in READERS]
