"""Any bytes given as a captured output: a value or Unknown with the text kept, in bounded time, and no guess where it is not clear."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.discovery import discover
from muster.facts import captures
from muster.model.capture import Capture, CaptureSpec, Unrecognised
from muster.model.fact import FactValue, Unknown

FIXTURES = Path(__file__).parent.parent / "fixtures"
READERS = tuple(
    reader for reader in discover("muster.facts.captures", "READER").values() if isinstance(reader, CaptureSpec)
)
KINDS = [reader.name for reader in READERS]
OUTPUTS = {
    path.name: path.read_bytes()
    for folder in (FIXTURES / "captures", FIXTURES / "facts" / "gpu")
    for path in sorted(folder.rglob("*"))
    if path.is_file() and path.suffix != ".yaml"
}
SMALL = [data for data in OUTPUTS.values() if len(data) < 20_000]

MEGABYTE = 1_000_000
GARBAGE: Mapping[str, bytes] = {
    "letters": b"a" * MEGABYTE,
    "blanks": b" " * MEGABYTE + b"x",
    "lines": b"x\n" * (MEGABYTE // 2),
    "random": bytes((value * 7919 + value // 251) % 255 + 1 for value in range(MEGABYTE)),
    "digits": b"1" * MEGABYTE,
    "one long line": b"| " * (MEGABYTE // 2),
    "brackets": b"[" * MEGABYTE,
    "braces": b'{"cuda": {"version": ' * (MEGABYTE // 21),
    "xml": b"<nvidia_smi_log>" + b"<gpu>" * (MEGABYTE // 5),
    "gpus": b"<nvidia_smi_log>" + b"<gpu/>" * (MEGABYTE // 6) + b"</nvidia_smi_log>",
    "billion laughs": b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><nvidia_smi_log>&b;</nvidia_smi_log>',
    "commas": b"name, uuid, pstate\n" + b"," * MEGABYTE,
    "columns": b"name, " * (MEGABYTE // 6),
    "rows of a table": b"|   0  NVIDIA H200                    On  |   00000000:83:00.0 Off |                   On |\n" * (MEGABYTE // 92),
    "half rows": b"|   0  NVIDIA H200" * (MEGABYTE // 18),
    "colons": b"a : b\n" * (MEGABYTE // 6),
    "deep": b"".join(b" " * depth + b"a : b\n" for depth in range(1400)),
    "xids": b"NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=a, GPU has fallen off the bus\n" * (MEGABYTE // 77),
    "almost xids": b"NVRM: Xid (PCI:0000:01:00" * (MEGABYTE // 25),
    "nvrm": b"NVRM: The NVIDIA GPU\n" * (MEGABYTE // 21),
    "stamps": b"kern  :warn  : 2025-01-21T02:21:33,498559+00:00 [ " * (MEGABYTE // 50),
    "escapes": b"\x1b[" * (MEGABYTE // 2),
    "links": b"GPU 0: a (UUID: GPU-1)\n" + b"\t Link 0: 25 GB/s\n" * (MEGABYTE // 19),
    "matrix": b"GPU0 GPU1 CPU Affinity\n" + b"GPU0 X NV1\n" * (MEGABYTE // 11),
    "packages": b"ii  nvidia-dkms-580 580.1-1 amd64 x\n" * (MEGABYTE // 36),
    "rpm": b"a-" * (MEGABYTE // 2),
    "banners": b"NVRM version: NVIDIA UNIX " * (MEGABYTE // 26),
    "errors": b"error: error: a: " * (MEGABYTE // 17),
    "switch errors": b"[Feb 25 2025 13:59:45] [ERROR] [tid 1] " + b"detected NVSwitch fatal error 1 on fid " * (MEGABYTE // 39),
    "knvlink": b"NVRM: knvlinkA: ostRxDe" * (MEGABYTE // 23),
    "makes": b"DKMS make.log for a Consult /dkms/a/" * (MEGABYTE // 36),
    "versions": b"| NVIDIA-SMI 1 " + b"Driver Version: " * (MEGABYTE // 16),
    "ports": b"CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n" * (MEGABYTE // 38),
}  # fmt: skip


def lawful(facts: Mapping[str, FactValue]) -> bool:
    """Facts as the rest of Muster takes them: dotted paths whose brackets close, bounded values of the allowed kinds."""
    return all(
        path.count("[") == path.count("]") <= 1
        and len(path) < 400
        and (
            isinstance(value, str | int | Unknown)
            or (isinstance(value, tuple) and all(isinstance(each, str) for each in value))
        )
        and (not isinstance(value, str) or len(value) <= 3_000)
        for path, value in facts.items()
    )


def read(data: bytes, kind: str | None) -> Capture | Unrecognised:
    return captures.read(data, READERS, kind=kind, cut=False)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(st.binary(max_size=400), st.sampled_from(SMALL)),
    st.binary(max_size=30),
    st.integers(0, 20_000),
    st.integers(0, 3_000),
    st.sampled_from([None, *KINDS]),
)
def test_any_bytes_give_values_or_unknown_with_the_text_kept_and_nothing_raises(
    base: bytes, splice: bytes, at: int, gap: int, kind: str | None
) -> None:
    at %= len(base) + 1
    found = read(base[:at] + splice + base[at + gap :], kind)
    if isinstance(found, Capture):
        assert lawful(found.facts)
        assert found.raw
        assert len(found.raw) < 5_000
    else:
        assert found.why


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_of_another_form_read_as_this_kind_says_nothing_but_unknown(kind: str) -> None:
    for text in (b"hello\n", b"Lorem ipsum dolor\nsit amet\n"):
        found = read(text, kind)
        assert isinstance(found, Capture)
        known = {path for path, value in found.facts.items() if not isinstance(value, Unknown)} - {
            "report.terminal_escapes"
        }
        # A log without a known message is an answer of its own: nothing of the kind happened.
        assert kind == "kernel_log" or not known
        assert found.understood is (kind == "kernel_log")
        assert found.raw == text.decode()


def assert_quick(data: bytes, limit_s: float) -> None:
    for kind in (None, *KINDS):
        before = time.process_time()
        found = read(data, kind)
        spent = time.process_time() - before
        assert spent < limit_s, f"{kind} took {spent:.2f} s of CPU"
        assert isinstance(found, Unrecognised) or lawful(found.facts)


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_read_in_bounded_time_by_every_reader(name: str) -> None:
    assert_quick(GARBAGE[name][:100_000], 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", GARBAGE)
def test_a_megabyte_of_garbage_is_read_in_less_than_a_second_by_every_reader(name: str) -> None:
    assert_quick(GARBAGE[name], 1)


def test_an_entity_in_a_report_is_never_expanded() -> None:
    found = read(GARBAGE["billion laughs"], "smi_xml")
    assert isinstance(found, Capture)
    assert isinstance(found.facts["gpu.count"], Unknown)
    outside = (
        b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><nvidia_smi_log><gpu id="&a;"/></nvidia_smi_log>'
    )
    assert isinstance(read(outside, "smi_xml").facts["gpu.count"], Unknown)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [name for name, data in OUTPUTS.items() if len(data) > 200])
def test_an_output_that_was_cut_never_says_less_gpus_than_there_are(name: str) -> None:
    whole = read(OUTPUTS[name], None)
    assert isinstance(whole, Capture)
    if whole.kind not in ("smi_xml", "smi_q"):
        return  # the other forms do not say how many there should be
    for part in (1, 3, 5, 7):
        found = read(OUTPUTS[name][: len(OUTPUTS[name]) * part // 8], whole.kind)
        assert isinstance(found, Capture)
        count = found.facts.get("gpu.count")
        assert count is None or isinstance(count, Unknown) or count == whole.facts["gpu.count"]


def test_a_text_that_two_forms_fit_is_not_guessed() -> None:
    def sure(name: str, score: int) -> CaptureSpec:
        return CaptureSpec(name, name, lambda _: score, lambda _: {"a": 1})

    assert captures.recognise("x", [sure("a", 90), sure("b", 90)]) == Unrecognised(
        "it is not clear which output this is", ("a", "b")
    )
    assert captures.recognise("x", [sure("a", 30)]) == Unrecognised("it is not clear which output this is", ("a",))
    assert captures.recognise("x", [sure("a", 0)]) == Unrecognised("no reader knows this form of output")
    found = captures.recognise("x", [sure("a", 60), sure("b", 90)])
    assert isinstance(found, CaptureSpec)
    assert found.name == "b"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"\x7fELF\x02\x01", "program"),
        (b"\x1f\x8b\x08rest", "gzip"),
        (b"\x28\xb5\x2f\xfdrest", "zstd"),
        (b"text\x00with zero bytes", "zero bytes"),
    ],
)
def test_what_is_no_text_is_said_to_be_none_whatever_kind_is_named(data: bytes, word: str) -> None:
    for kind in (None, "smi_q", "kernel_log"):
        found = read(data, kind)
        assert isinstance(found, Unrecognised)
        assert word in found.why
        assert not found.is_text


def test_a_text_saved_by_powershell_is_read_like_any_other() -> None:
    plain = OUTPUTS["win_table_idle_geforce-rtx-2080-super_591.86.txt"]
    for data in (
        plain.decode().replace("\n", "\r\n").encode("utf-16"),
        b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n"),
    ):
        found, same = read(data, None), read(plain, None)
        assert isinstance(found, Capture)
        assert isinstance(same, Capture)
        assert found.facts == same.facts
        assert found.facts["os.family"] == "windows"


def test_a_kernel_log_keeps_the_first_and_the_last_events_and_counts_all() -> None:
    lines = [f"[{number:12}.000000] NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=a, b" for number in range(5000)]
    found = read("\n".join(lines).encode(), None)
    assert isinstance(found, Capture)
    events = sorted(path for path in found.facts if path.startswith("event[") and path.endswith(".xid"))
    assert len(events) == 1000
    assert events[0] == "event[0000001].xid"
    assert events[-1] == "event[0005000].xid"
    assert found.facts["xid[0000:01:00/13].count"] == 5000
    assert (found.facts["xid[0000:01:00/13].first"], found.facts["xid[0000:01:00/13].last"]) == (
        "0.000000",
        "4999.000000",
    )


def test_one_line_has_the_same_event_under_every_stamp() -> None:
    message = "NVRM: Xid (PCI:0000:05:00): 79, pid=1173, GPU has fallen off the bus."
    stamps = {
        "": ("", ""),
        "[44643.002804] ": ("", "44643.002804"),
        "<4>[44643.002804] ": ("", "44643.002804"),
        "4,1234,44643002804,-;": ("", "44643.002804"),
        "kern  :err   : [44643.002804] ": ("", "44643.002804"),
        "kern  :err   : 2025-01-21T02:21:33,498559+00:00 ": ("2025-01-21T02:21:33,498559+00:00", ""),
        "[Sun Feb 23 16:24:18 2025] ": ("Sun Feb 23 16:24:18 2025", ""),
        "2026-09-14T20:30:27-0400 node01 kernel: ": ("2026-09-14T20:30:27-0400", ""),
        "2026-09-14T20:30:27.123456+02:00 node01 kernel: ": ("2026-09-14T20:30:27.123456+02:00", ""),
        "Jan 16 14:04:39 node01 kernel: ": ("Jan 16 14:04:39", ""),
        "Jan 16 14:04:39 node01 kernel: [44643.002804] ": ("Jan 16 14:04:39", "44643.002804"),
    }
    for stamp, (at, ktime) in stamps.items():
        found = read((stamp + message).encode(), None)
        assert isinstance(found, Capture), stamp
        facts = {
            path.removeprefix("event[0000001]."): value
            for path, value in found.facts.items()
            if path.startswith("event[")
        }
        assert (facts.get("at", ""), facts.get("ktime_s", "")) == (at, ktime), stamp
        assert (facts["xid"], facts["pci"], facts["pid"], facts["text"]) == (79, "0000:05:00", 1173, message), stamp
