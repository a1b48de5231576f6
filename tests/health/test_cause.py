"""A disagreement names who brought it about, from the logs alone; where they do not say, nothing is said."""

from collections.abc import Mapping

from muster.health.consistency import check
from muster.health.judgement import Subject
from muster.model.fact import FactValue
from muster.model.finding import Finding
from tests.support.planning import NEW, OLD, carrying, seen
from tests.support.values import T0

Values = Mapping[str, FactValue | None]


def transaction(key: str, *packages: str, by: str = "unattended-upgrades", command: str = "/usr/bin/unattended-upgrade") -> Values:  # fmt: skip
    stem = f"transaction[{key}]."
    at = key.replace("T", " ") + " +0000"
    return {
        stem + "at": at, stem + "by": by, stem + "command": command, stem + "packages": packages,
        stem + "line": "apt/history.log:31: Upgrade: libcuda1",
    }  # fmt: skip


NIGHT = transaction("2026-02-27T06:41:12", f"libcuda1 {OLD}-1 -> {NEW}-1", f"libnvidia-ml1 {OLD}-1 -> {NEW}-1")
BEFORE = transaction(
    "2026-01-02T10:00:00", f"libcuda1 <none> -> {OLD}-1", by="root", command="apt-get install libcuda1"
)
MOVED: Values = {"library.libcuda.version": NEW}


def found(values: Values, *names: str) -> dict[str, Finding]:
    return {each.code: each for each in check([Subject(n, "p", seen(n, values), OLD, holds=False) for n in names or ("n1",)], T0)}  # fmt: skip


def test_a_library_that_moved_alone_names_package_versions_hand_time_and_line() -> None:
    assert found({**BEFORE, **MOVED, **NIGHT})["library-is-not-loaded"].cause == (
        f"libcuda1 {OLD}-1 -> {NEW}-1 (and 1 more packages), by unattended-upgrades, at 2026-02-27 06:41:12 +0000 "
        "[apt/history.log:31: Upgrade: libcuda1]"
    )


def test_without_that_transaction_no_cause_is_named() -> None:
    assert found({**BEFORE, **MOVED})["library-is-not-loaded"].cause == ""
    assert found(MOVED)["library-is-not-loaded"].cause == ""


def test_a_transaction_of_another_version_is_no_cause() -> None:
    other = transaction("2026-02-28T06:00:00", f"libcuda1 {OLD}-1 -> 580.95.05-1")
    assert "06:41:12" in found({**MOVED, **NIGHT, **other})["library-is-not-loaded"].cause


def test_a_module_that_moved_on_disk_names_the_person_and_the_command() -> None:
    by_hand = transaction(
        "2026-02-27T09:00:00", f"nvidia-kernel-open-dkms {OLD}-1 -> {NEW}-1", by="alice (1000)", command="apt upgrade"
    )
    cause = found({"module.nvidia.disk_version": NEW, **by_hand, **NIGHT})["loaded-is-not-on-disk"].cause
    assert cause.startswith(
        f"nvidia-kernel-open-dkms {OLD}-1 -> {NEW}-1, by alice (1000), `apt upgrade`, at 2026-02-27"
    )


def test_the_one_that_differs_in_a_pool_says_why() -> None:
    moved = transaction("2026-02-27T09:00:00", f"nvidia-kernel-open-dkms {OLD}-1 -> {NEW}-1")
    subjects = [Subject(n, "p", seen(n, {}), None, holds=False) for n in ("n1", "n2")]
    subjects.append(Subject("n3", "p", seen("n3", {**carrying(NEW), **moved}), None, holds=False))
    (finding,) = check(subjects, T0)
    assert (finding.code, finding.nodes) == ("mixed-drivers", ("n3",))
    assert "by unattended-upgrades" in finding.cause


def test_a_kernel_without_a_module_says_who_installed_it() -> None:
    kernels: Values = {
        "kernel.bootable": ("6.1.0-18-amd64", "6.1.0-57-amd64"), "kernel.next_boot": "6.1.0-57-amd64",
        "kernel[6.1.0-57-amd64].nvidia.on_disk": False, "kernel[6.1.0-57-amd64].headers": True,
    }  # fmt: skip
    came = transaction("2026-02-27T06:00:00", "linux-image-6.1.0-57-amd64 <none> -> 6.1.148-1")
    assert "linux-image-6.1.0-57-amd64 <none> -> 6.1.148-1" in found({**kernels, **came})["next-boot-differs"].cause
    assert found(kernels)["next-boot-differs"].cause == ""


def test_nodes_with_one_finding_are_one_and_each_cause_is_told() -> None:
    nights = {"n1": NIGHT, "n2": transaction("2026-02-27T06:50:00", f"libcuda1 {OLD}-1 -> {NEW}-1"), "n3": {}, "n4": {}}
    subjects = [Subject(n, "p", seen(n, {**MOVED, **more}), OLD, holds=False) for n, more in nights.items()]
    (finding,) = check(subjects, T0)
    assert finding.nodes == ("n1", "n2", "n3", "n4")
    assert [part.split(":")[0] for part in finding.cause.split("; ")] == ["n1", "n2", "n3", "and on 1 more nodes"]
    assert "n3: the logs do not say" in finding.cause
    alike = check([Subject(n, "p", seen(n, {**MOVED, **NIGHT}), OLD, holds=False) for n in ("n1", "n2")], T0)
    assert alike[0].cause.startswith("libcuda1")
