"""Every source of facts against its recorded outputs, and against any bytes at all."""

import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.discovery import discover
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

SPECS: Mapping[str, FactSpec] = {
    spec.name: spec for spec in discover("muster.facts", "FACT").values() if isinstance(spec, FactSpec)
}

FIXTURES = Path(__file__).parent.parent / "fixtures" / "facts"

CASES = {f"{path.parent.name}/{path.stem}": path for path in sorted(FIXTURES.glob("*/*.yaml"))}


def recorded(case: str) -> tuple[FactSpec, RawOutput, Mapping[str, object]]:
    """The source, the recorded output, and what is said beside it (all texts)."""
    about = CASES[case]
    told = yaml.load(about.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    (output,) = (path for path in about.parent.glob(f"{about.stem}.*") if path.suffix != ".yaml")
    return SPECS[about.parent.name], RawOutput(int(told["exit_status"]), output.read_bytes()), told


def shown(value: FactValue | None) -> object:
    """A value as the expectations write it."""
    if isinstance(value, Unknown):
        return {"unknown": value.why}
    return list(value) if isinstance(value, tuple) else str(value)


def test_every_source_is_found_under_its_own_name_and_has_recorded_outputs() -> None:
    assert set(SPECS) == set(discover("muster.facts", "FACT"))
    assert set(SPECS) == {case.partition("/")[0] for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_output_gives_what_is_expected_of_it(case: str) -> None:
    spec, raw, told = recorded(case)
    found = spec.parse(raw)
    expected = told.get("expect", {})
    assert isinstance(expected, Mapping)
    assert {path: shown(found.get(path)) for path in expected} == expected
    assert told["source"], "where it was recorded is not said"


# What the index of samples says of a report, and the facts that must say the same.
COUNTED = {
    "products": ("name",),
    "mig_current": ("mig.mode",),
    "ecc_current": ("ecc.mode",),
    "gpu_recovery_action": ("recovery_action",),
    "addressing_mode": ("addressing_mode",),
    "virtualization_mode": ("virtualization",),
    "driver_model": ("driver_model",),
    "fabric_state_status": ("fabric.state", "fabric.status"),
    "row_remap_pending/failure": ("row_remap.pending", "row_remap.failure"),
}
SAME = {
    "driver_version": "gpu.driver_version", "cuda_version": "gpu.cuda_version", "attached_gpus": "gpu.attached", "gpu_elements": "gpu.count",
}  # fmt: skip
NOT_YET_READ = {"dtd", "power_block", "throttle_block", "process_entries", "fields_reading_GPU_is_lost"}

REPORTS = [case for case in CASES if case.startswith("gpu/q-x_")]


@pytest.mark.parametrize("case", REPORTS)
def test_a_recorded_report_gives_what_the_index_of_samples_says_of_it(case: str) -> None:
    spec, raw, told = recorded(case)
    found, index = spec.parse(raw), told["index"]
    assert isinstance(index, Mapping)
    gpus = list(dict.fromkeys(path.partition("]")[0][4:] for path in found if path.startswith("gpu[")))
    for key, said in index.items():
        if key in SAME:
            assert shown(found[SAME[key]]) == said, key
        elif key == "first_bus_id":
            assert shown(found[f"gpu[{gpus[0]}].bus_id"]) == said
        elif key == "fb_total":
            assert {_word(found.get(f"gpu[{gpu}].memory")) for gpu in gpus} == set(said)
        elif key in COUNTED:
            seen = Counter("/".join(_word(found.get(f"gpu[{gpu}].{field}")) for field in COUNTED[key]) for gpu in gpus)
            assert {value: str(count) for value, count in seen.items()} == said, key
        else:
            assert key in NOT_YET_READ


def _word(value: FactValue | None) -> str:
    return value.why if isinstance(value, Unknown) else str(value)


def test_the_reports_are_all_there_and_every_key_of_the_index_is_used() -> None:
    keys = {key for case in REPORTS for key in recorded(case)[2]["index"]}  # type: ignore[attr-defined]
    assert len(REPORTS) == 31
    assert keys == {*COUNTED, *SAME, *NOT_YET_READ, "first_bus_id", "fb_total"}


def test_a_lost_gpu_leaves_the_other_ones_readable() -> None:
    spec, raw, _ = recorded("gpu/q-x_mock_gb200_gpu-lost")
    found = spec.parse(raw)
    memory = sorted(_word(value) for path, value in found.items() if path.endswith(".memory"))
    assert memory == ["196608 MiB", "GPU is lost"]
    assert found["gpu.count"] == 2


def test_two_gpus_that_claim_one_uuid_are_two() -> None:
    spec, raw, _ = recorded("gpu/q-x_2x-rtx-2080_v13")
    found = spec.parse(raw)
    assert len([path for path in found if path.endswith("].name")]) == found["gpu.count"] == 2


def lawful(spec: FactSpec, found: Mapping[str, FactValue]) -> bool:
    """Every path is one the source says it provides, every value is of the allowed kinds."""
    provided = [re.compile(re.escape(path).replace(r"\*", r"[^\]\[]+")) for path in spec.provides]
    return all(
        any(pattern.fullmatch(path) for pattern in provided)
        and (
            isinstance(value, str | int | Unknown)
            or (isinstance(value, tuple) and all(isinstance(each, str) for each in value))
        )
        for path, value in found.items()
    )


@pytest.mark.parametrize("name", SPECS)
def test_any_bytes_give_values_or_unknown_and_nothing_raises(name: str) -> None:
    spec = SPECS[name]
    outputs = [recorded(case)[1].stdout for case in CASES if case.startswith(f"{name}/")]

    @settings(max_examples=60, deadline=None)
    @given(
        st.one_of(st.binary(max_size=300), st.sampled_from(outputs)),
        st.binary(max_size=20),
        st.integers(0, 200_000),
        st.integers(0, 20_000),
        st.sampled_from([None, 0, 1, 2, 9, 126, 127, 255]),
        st.booleans(),
    )
    def holds(base: bytes, splice: bytes, at: int, gap: int, exit_status: int | None, truncated: bool) -> None:
        at %= len(base) + 1
        assert lawful(spec, spec.parse(RawOutput(exit_status, base[:at] + splice + base[at + gap :], truncated)))

    holds()


REPORTED = [case for case in CASES if case.startswith("gpu/")]


@pytest.mark.parametrize("case", REPORTED)
def test_what_is_left_out_of_a_report_before_it_is_read_changes_nothing_that_is_said(case: str) -> None:
    spec, raw, _ = recorded(case)

    def read(output: bytes) -> Mapping[str, str]:
        return {
            path: re.sub(r"after \d+ bytes", "", repr(value))
            for path, value in spec.parse(RawOutput(0, output)).items()
        }

    def whole(output: bytes) -> Mapping[str, str]:
        # In a report with a comment an element may be a text, so none is left out of it.
        root, end, rest = output.partition(b"<nvidia_smi_log>")
        return read(root + end + b"<!-- -->" + rest if end else output)

    assert read(raw.stdout) == whole(raw.stdout)
    pieces = (
        b"",
        b"<",
        b">",
        b"</",
        b"</gpu>",
        b"<gpu>",
        b"</fabric>",
        b"<fabric>",
        b"&amp;",
        b"\x0b",
        b"]]>",
        b"<x y='1'>",
        b"\xff",
    )

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 200_000), st.integers(0, 60), st.sampled_from(pieces))
    def holds(at: int, gap: int, piece: bytes) -> None:
        at %= len(raw.stdout) + 1
        output = raw.stdout[:at] + piece + raw.stdout[at + gap :]
        assert read(output) == whole(output)

    holds()


HOSTILE = (
    b"<nvidia_smi_log>" + b"<a>" * 600_000 + b"</nvidia_smi_log>",
    b"<nvidia_smi_log>" + b"<b><a>1</a><a>1</a><a>1</a>" * 80_000 + b"</nvidia_smi_log>",
    b"<nvidia_smi_log>" + b"<gpu><supported_clocks><supported_mem_clock>" * 40_000 + b"</nvidia_smi_log>",
    b"<nvidia_smi_log>" + b"<gpu/>" * 300_000 + b"</nvidia_smi_log>",
    b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><nvidia_smi_log>&b;</nvidia_smi_log>',
    b"{" * 500_000,
    b"[" * 500_000,
    b"1 " * 1_000_000,
    b"1" * 2_000_000,
    b"var " + b"9" * 4000 + b" 1 " * 1000,
    b"ii  " * 500_000,
    b"\t" * 2_000_000,
    b"\n" * 2_000_000,
)


@pytest.mark.parametrize("name", SPECS)
def test_an_output_made_to_be_hard_is_read_in_bounded_time(name: str) -> None:
    spec = SPECS[name]
    before = time.process_time()
    for output in HOSTILE:
        assert lawful(spec, spec.parse(RawOutput(0, output[: spec.cap_bytes])))
    assert time.process_time() - before < 15


@pytest.mark.parametrize("name", SPECS)
def test_without_an_answer_everything_the_source_provides_is_unknown_with_the_reason(name: str) -> None:
    spec = SPECS[name]
    for raw, word in ((RawOutput(None, b""), "deadline"), (RawOutput(127, b""), "not installed")):
        found = spec.parse(raw)
        assert set(found) == {path for path in spec.provides if "*" not in path}
        assert all(isinstance(value, Unknown) and word in value.why for value in found.values())


@pytest.mark.parametrize("case", CASES)
def test_a_report_that_was_cut_never_gives_a_smaller_count(case: str) -> None:
    spec, raw, _ = recorded(case)
    whole = spec.parse(raw).get("gpu.count")
    for part in range(1, 8):
        cut = RawOutput(raw.exit_status, raw.stdout[: len(raw.stdout) * part // 8], truncated=True)
        count = spec.parse(cut).get("gpu.count")
        assert count == whole or count is None or isinstance(count, Unknown)


@pytest.mark.parametrize("name", SPECS)
def test_every_path_on_the_node_starts_at_its_root(name: str) -> None:
    absolute = re.findall(r"(?<![\w\"}/*<$.])/(?:proc|sys|var|etc|usr|run|boot|lib|tmp)\b", SPECS[name].command)
    assert absolute == []
