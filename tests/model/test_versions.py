"""Each version type reads what real machines print, keeps it, and orders it by a lawful rule."""

import copy
import operator
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from muster.model.versions import (
    CudaVersion,
    DebVersion,
    DriverVersion,
    KernelVersion,
    RpmVersion,
    VbiosVersion,
    Version,
    VersionSyntaxError,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "versions"


def rows(name: str) -> list[str]:
    lines = (FIXTURES / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


NUMBER = st.sampled_from(["0", "00", "1", "01", "2", "9", "10", "104", "005"])
REVISION = st.text("01a~+.", min_size=1, max_size=6)
DRIVER_TEXT = st.builds(
    lambda parts, revision: ".".join(parts) + (f"-{revision}" if revision else ""),
    st.lists(NUMBER, min_size=2, max_size=3),
    st.none() | REVISION,
)
CUDA_TEXT = st.builds(
    lambda parts, words: ".".join(parts) + (words if len(parts) == 2 else ""),
    st.lists(NUMBER, min_size=2, max_size=3),
    st.sampled_from(["", " GA", " Update 1", " Update 10", " update 2", " Developer Preview"]),
)
EPOCH = st.sampled_from(["", "", "0:", "1:", "01:"])
DEB_TEXT = st.builds(
    lambda epoch, first, rest, revision: f"{epoch}{first}{rest}" + (f"-{revision}" if revision else ""),
    EPOCH,
    st.sampled_from("01a"),
    st.text("01a~+.", max_size=6),
    st.none() | REVISION,
)
RPM_TEXT = st.builds(
    lambda epoch, version, release: f"{epoch}{version}" + (f"-{release}" if release else ""),
    EPOCH,
    st.text("01ab~^._", min_size=1, max_size=7),
    st.none() | st.text("01a~^.", min_size=1, max_size=4),
)
VBIOS_TEXT = st.lists(st.sampled_from(["00", "0a", "0A", "5E", "96", "ff"]), min_size=5, max_size=5).map(".".join)
KERNEL_TEXT = st.builds(
    lambda base, rest: ".".join(base) + rest,
    st.lists(NUMBER, min_size=2, max_size=3),
    st.sampled_from(
        ["", "-1-amd64", "-57-amd64", "-rc3", "-rc10-1", "_1", "-1", ".1", ".el9_4.x86_64", "-427.13.1.el9"]
    ),
)
TEXTS: dict[type[Version], st.SearchStrategy[str]] = {
    DriverVersion: DRIVER_TEXT,
    CudaVersion: CUDA_TEXT,
    DebVersion: DEB_TEXT,
    RpmVersion: RPM_TEXT,
    VbiosVersion: VBIOS_TEXT,
    KernelVersion: KERNEL_TEXT,
}
every_type = pytest.mark.parametrize("kind", TEXTS, ids=lambda kind: kind.__name__)


@every_type
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_order_of_a_version_type_is_total_and_agrees_with_equality_and_hash(
    kind: type[Version], data: st.DataObject
) -> None:
    a, b, c = (kind.parse(data.draw(TEXTS[kind])) for _ in range(3))
    assert [a < b, a == b, a > b].count(True) == 1
    assert (a <= b) == (a < b or a == b) == (b >= a)
    assert (a < b) == (b > a)
    assert (a != b) == (not a == b)  # noqa: SIM201 - both operators are under test
    if a == b:
        assert hash(a) == hash(b)
        assert (a < c) == (b < c)
        assert (a > c) == (b > c)
    if a <= b and b <= c:
        assert a <= c


@every_type
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_version_gives_back_its_text_and_reads_it_again_as_itself(kind: type[Version], data: st.DataObject) -> None:
    text = data.draw(TEXTS[kind])
    version = kind.parse(text)
    assert str(version) == version.text == text
    assert kind.parse(str(version)) == version
    assert kind.parse_bound(text) == version
    assert eval(repr(version), {kind.__name__: kind}) == version
    assert pickle.loads(pickle.dumps(version)) == copy.deepcopy(version) == version


@every_type
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_text_is_either_a_version_or_a_named_refusal_with_a_hint(kind: type[Version], data: st.DataObject) -> None:
    any_bytes = st.binary(max_size=12).map(lambda raw: raw.decode("latin-1"))
    text = data.draw(any_bytes | st.text("0123456789.:-+~^_aR \n٣²é", max_size=16))
    try:
        assert str(kind.parse(text)) == text
    except VersionSyntaxError as error:
        assert (error.kind, error.text) == (kind.kind, text)
        assert error.hint and not error.hint.endswith(".")
        assert error.kind in str(error) and error.hint in str(error)


@every_type
def test_a_text_of_a_million_characters_is_refused_at_once_and_shortened_in_the_message(kind: type[Version]) -> None:
    with pytest.raises(VersionSyntaxError) as caught:
        kind.parse("1." * 500_000)
    assert len(str(caught.value)) < 250


def test_versions_of_two_types_are_unequal_and_have_no_order() -> None:
    cuda, driver = CudaVersion.parse("13.0"), DriverVersion.parse("13.0")
    assert cuda != driver and driver != cuda and cuda != "13.0"
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        for other in (driver, "13.0", 13, None):
            with pytest.raises(TypeError):
                compare(cuda, other)  # type: ignore[arg-type]


def test_a_version_cannot_be_changed() -> None:
    version = DriverVersion.parse("535.104.05")
    with pytest.raises(AttributeError):
        version.text = "535.104.06"  # type: ignore[misc]


# What the knowledge base and real machines hold


def test_every_known_driver_version_is_read_and_kept() -> None:
    known = rows("driver_releases.txt")
    assert len(known) == 324
    for text in known:
        version = DriverVersion.parse(text)
        assert str(version) == version.upstream == text
        assert version.branch == "R" + text.partition(".")[0]
        assert version.plain is version
    assert len({DriverVersion.parse(text) for text in known}) == len(known)


def test_every_known_cuda_version_and_label_is_read_and_kept() -> None:
    known = [row.partition("\t")[::2] for row in rows("cuda_toolkits.txt")]
    assert len(known) == 75
    for text, label in known:
        assert str(CudaVersion.parse(text)) == text
        if label:
            assert str(CudaVersion.parse(label)) == CudaVersion.parse(label).label == label


def test_nvidias_words_stand_for_its_numbers_except_in_the_two_releases_the_docstring_names() -> None:
    known = [row.split("\t") for row in rows("cuda_toolkits.txt")]
    broken = {text for text, label in known if label and CudaVersion.parse(label) != CudaVersion.parse(text)}
    assert broken == {"11.0.2", "11.0.3", "13.4.0", "13.4.1", "13.4.2", "13.4.3"}


def test_what_real_machines_print_is_read_and_kept() -> None:
    kinds: dict[str, Callable[[str], Version]] = {
        "driver": DriverVersion.parse,
        "deb": DebVersion.parse,
        "rpm": RpmVersion.parse,
        "vbios": VbiosVersion.parse,
        "kernel": KernelVersion.parse,
    }
    for row in rows("observed.txt"):
        kind, text = row.split("\t")
        assert str(kinds[kind](text)) == text


# The rules, by example


def assert_ascending(kind: type[Version], texts: list[str]) -> None:
    versions = [kind.parse(text) for text in texts]
    for low, high in pairwise(versions):
        assert low < high, (low, high)
    versions.reverse()
    assert [str(version) for version in sorted(versions)] == texts


def test_driver_versions_sort_by_numbers_and_then_by_packaging_revision() -> None:
    assert_ascending(
        DriverVersion,
        [
            "450.51",
            "450.51.05",
            "535.104.05",
            "550.90.07",
            "550.100",
            "580.126.20",
            "580.126.20-1~rc1",
            "580.126.20-1",
            "580.126.20-1+site1",
            "580.126.20-1+site2",
            "580.126.20-1+site10",
            "580.126.21",
        ],
    )


def test_a_site_build_differs_from_its_plain_upstream_version_and_names_it() -> None:
    build, plain = DriverVersion.parse("580.126.20-1+site1"), DriverVersion.parse("580.126.20")
    assert build > plain and build.plain == plain
    assert (build.branch, build.upstream, build.revision) == ("R580", "580.126.20", "1+site1")
    assert plain.revision is None
    assert DriverVersion.parse("580.126.20-0") > plain


def test_leading_zeros_are_kept_in_the_text_and_do_not_count_in_the_order() -> None:
    assert str(DriverVersion.parse("535.104.05")) == "535.104.05"
    assert DriverVersion.parse("535.104.05") == DriverVersion.parse("535.104.5") < DriverVersion.parse("535.104.12")


def test_cuda_versions_sort_alike_in_words_and_numbers() -> None:
    assert_ascending(
        CudaVersion,
        ["10.2.89", "12.2", "12.2 Update 1", "12.2.2", "12.10", "13.0 Developer Preview", "13.0 GA", "13.0 Update 2"],
    )
    words, numbers = CudaVersion.parse("13.0 Update 2"), CudaVersion.parse("13.0.2")
    assert words == numbers and hash(words) == hash(numbers) and str(words) != str(numbers)
    assert CudaVersion.parse("12.4") == CudaVersion.parse("12.4.0") == CudaVersion.parse("12.4 GA")
    assert (words.major, words.minor, words.patch, words.release, words.label) == (13, 0, 2, "13.0", "13.0 Update 2")
    assert CudaVersion.parse("13.0 update 2").label == "13.0 Update 2"
    assert CudaVersion.parse("13.0.2").label is None


def test_the_parts_of_package_versions_are_told_apart() -> None:
    deb, bare_deb = DebVersion.parse("1:2:3-4-5~6"), DebVersion.parse("2.0")
    assert (deb.epoch, deb.upstream, deb.revision) == (1, "2:3-4", "5~6")
    assert (bare_deb.epoch, bare_deb.upstream, bare_deb.revision) == (0, "2.0", None)
    rpm, bare_rpm = RpmVersion.parse("3:580.126.20-1.el9"), RpmVersion.parse("2.0")
    assert (rpm.epoch, rpm.version, rpm.release) == (3, "580.126.20", "1.el9")
    assert (bare_rpm.epoch, bare_rpm.version, bare_rpm.release) == (0, "2.0", None)
    assert DebVersion.parse("2147483647:1").epoch == 2147483647
    assert RpmVersion.parse("4294967295:1").epoch == 4294967295
    assert KernelVersion.parse("5.14.0-427.13.1.el9_4.x86_64").base == "5.14.0"


def test_vbios_versions_sort_by_hexadecimal_groups_of_either_case() -> None:
    assert_ascending(VbiosVersion, ["90.04.7A.40.73", "94.02.5C.00.04", "96.00.09.00.01", "96.00.5E.00.01"])
    assert VbiosVersion.parse("90.04.7A.40.73") == VbiosVersion.parse("90.04.7a.40.73")
    assert VbiosVersion.parse("96.00.5E.00.01").groups == (0x96, 0x00, 0x5E, 0x00, 0x01)


def test_kernel_releases_sort_in_natural_order_with_candidates_first() -> None:
    assert_ascending(
        KernelVersion,
        [
            "5.14.0-427.el9.x86_64",
            "5.14.0-427.13.1.el9_4.x86_64",
            "6.1.0-9-amd64",
            "6.1.0-57-amd64",
            "6.8.0-rc3",
            "6.8.0-rc10",
            "6.8.0",
            "6.8.0-49-generic",
            "6.8.0-138-generic",
            "6.12.43+deb13-amd64",
        ],
    )


@given(KERNEL_TEXT, KERNEL_TEXT)
def test_two_kernel_releases_are_equal_only_if_they_are_the_same_folder(a: str, b: str) -> None:
    assume(a != b)
    assert KernelVersion.parse(a) != KernelVersion.parse(b)


@pytest.mark.parametrize(
    ("kind", "text", "hint"),
    [
        (DriverVersion, "580", "written R580"),
        (DriverVersion, "R580", "names a branch"),
        (DriverVersion, "3:580.126.20-1.el9", "leave out the epoch of the package (3:)"),
        (DriverVersion, "58O.126.20", "two or three numbers"),
        (DriverVersion, "580.126.20.1", "two or three numbers"),
        (DriverVersion, "580.126.20-", "two or three numbers"),
        (DriverVersion, "580-1", "two or three numbers"),
        (DriverVersion, " 580.126.20", "two or three numbers"),
        (CudaVersion, "13", "13.0 Update 2"),
        (CudaVersion, "13.0 Update", "13.0 Update 2"),
        (CudaVersion, "13.0.1 Update 2", "13.0 Update 2"),
        (CudaVersion, "13.0 Update 0", "13.0 Update 2"),
        (DebVersion, "1.0-", "after the last '-'"),
        (DebVersion, "x:1.0", "epoch"),
        (DebVersion, "2147483648:1", "epoch"),
        (DebVersion, "1:", "[epoch:]upstream[-revision]"),
        (DebVersion, "1 0", "[epoch:]upstream[-revision]"),
        (RpmVersion, "1-2-3", "[epoch:]version[-release]"),
        (RpmVersion, "1-", "[epoch:]version[-release]"),
        (RpmVersion, "-1:1", "epoch"),
        (RpmVersion, "4294967296:1", "epoch"),
        (RpmVersion, "x:1", "epoch"),
        (RpmVersion, "1 0-1", "[epoch:]version[-release]"),
        (RpmVersion, "1.0-1 ", "[epoch:]version[-release]"),
        (VbiosVersion, "96.00.5E.00", "five groups"),
        (VbiosVersion, "96.00.5G.00.01", "five groups"),
        (KernelVersion, "6", "uname -r"),
        (KernelVersion, "generic", "uname -r"),
        (KernelVersion, "6.1.0/../x", "uname -r"),
    ],
)
def test_a_wrong_version_is_refused_with_what_to_write_instead(kind: type[Version], text: str, hint: str) -> None:
    with pytest.raises(VersionSyntaxError) as caught:
        kind.parse(text)
    assert hint in caught.value.hint
    assert pickle.loads(pickle.dumps(caught.value)).hint == caught.value.hint
