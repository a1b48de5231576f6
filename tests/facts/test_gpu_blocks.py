"""A report read by what it has in common with others says what the XML parser says of it, whatever was read before."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.facts import _gpu_blocks, gpu
from muster.facts._gpu_blocks import Gpu

FOLDER = Path(__file__).resolve().parents[1] / "fixtures/facts/gpu"
REPORTS = sorted(FOLDER.glob("*.xml"))
HGX = (FOLDER / "q-x_8x-h100-hbm3_570.86.15.xml").read_text(encoding="utf-8")
BODY = HGX[HGX.index("<nvidia_smi_log") :].rstrip()


def understood(element: ET.Element) -> Gpu:
    return Gpu(gpu._leaves(element), len(element.findall("mig_devices/mig_device")), element.get("id", ""))


def by_parser(body: str) -> list[Gpu] | None:
    try:
        return [understood(each) for each in ET.fromstring(body).findall("gpu")]
    except ET.ParseError:
        return None


def agree(body: str) -> bool:
    """Whether it was read; what was read is what the parser says."""
    found = _gpu_blocks.read(body, understood)
    if found is not None:
        assert list(found[1]) == by_parser(body)
    return found is not None


@pytest.mark.parametrize("report", REPORTS, ids=lambda each: each.stem)
def test_every_recorded_report_is_read_as_the_parser_reads_it(report: Path) -> None:
    text = report.read_text(encoding="utf-8", errors="replace")
    start, end = text.find("<nvidia_smi_log"), text.rfind("</nvidia_smi_log>")
    if start >= 0 and end > start:
        agree(text[start:end] + "</nvidia_smi_log>")


def test_reports_that_differ_in_their_texts_are_read_without_the_parser_once_one_was_understood() -> None:
    asked: list[ET.Element] = []

    def counted(element: ET.Element) -> Gpu:
        asked.append(element)
        return understood(element)

    for number in range(20):
        own = BODY.replace("GPU-", f"GPU-{number:04x}").replace("<gpu_temp>", f"<gpu_temp>{number}")
        assert _gpu_blocks.read(own, counted) is not None
        assert list((_gpu_blocks.read(own, counted) or (None, ()))[1]) == by_parser(own)
    assert len(asked) <= 2 * 4  # each of the GPUs may have a form of its own; a form is asked twice


LINES = BODY.split("\n")
CHANGES = (
    "", "\t\t<uuid>GPU-other</uuid>", "\t\t<uuid>\ue0005</uuid>", "\ue0005", "\t\t<serial>a &amp; b</serial>", "\t\t<serial>a & b</serial>",
    "\t\t<serial>\x01</serial>", "\t\t<serial>é</serial>", "\t\t<serial/>", "\t\t<serial></serial>", "\t\t<serial>1</serial><serial>2</serial>",
    "\t\t<!-- <uuid>x</uuid> -->", "\t\t<![CDATA[<uuid>x</uuid>]]>", "\t\t</gpu>", '\t<gpu id="1">', "\t\t<mig_devices>",
    "\t\t<a>b<c>d</c>e</a>",
    "\t\t<serial>7</serial>\r", "\t\t<serial>]]></serial>", "\t\t<serial> 7 </serial>\x1c", "\t\t<supported_clocks>", "\t\t</supported_clocks>",
    "\t\t</supported_clocks><vbios_version>9</vbios_version>", "\t\t<fabric><state>Odd</state></fabric>", "\t\t<serial attribute='1'>7</serial>",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, len(LINES) - 2), st.sampled_from(CHANGES)), min_size=1, max_size=4))
def test_a_damaged_report_is_left_to_the_parser_or_read_as_it_reads_it(changes: list[tuple[int, str]]) -> None:
    assert agree(BODY)
    lines = list(LINES)
    for at, line in changes:
        lines[at] = line
    agree("\n".join(lines))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, len(LINES) - 2), st.text(alphabet="<>&/\"'= \t\x00\x01\x1f\x7f\x85é\ue000a1", max_size=12))
def test_any_text_of_an_element_is_read_as_the_parser_reads_it(at: int, text: str) -> None:
    assert agree(BODY)
    lines = list(LINES)
    before, begin, after = lines[at].partition(">")
    _, end, rest = after.rpartition("</")
    if end:
        lines[at] = before + begin + text + end + rest
        agree("\n".join(lines))
