"""What the base answers about components, kernels, issues, CUDA, limits, packages, security and Xids."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from muster.knowledge import query, query_components, query_cuda, query_issues, query_kernels, query_limits
from muster.knowledge.loader import load
from muster.knowledge.query_cuda import Fit
from muster.knowledge.query_security import security_of
from muster.knowledge.query_xid import xid_limit, xid_meaning
from muster.knowledge.records import Component, KnownIssue, Subject
from muster.knowledge.records_libs import CveSeverity, XidAction
from muster.knowledge.schema import Confidence
from muster.knowledge.shelves import shelf_of
from muster.model.policy import Flavour
from muster.model.versions.base import VersionSyntaxError
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion

BASE = load()


def driver(text: str) -> DriverVersion:
    return DriverVersion.parse(text)


def cuda(text: str) -> CudaVersion:
    return CudaVersion.parse(text)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("13.4 GA", "13.4.1"),
        ("13.4 Update 1", "13.4.2"),
        ("13.4 update 2", "13.4.3"),
        ("11.0 GA", "11.0.2"),
        ("11.0 Update 1", "11.0.3"),
        ("13.0 Update 2", "13.0.2"),
        ("12.4.1", "12.4.1"),
    ],
)
def test_a_release_of_cuda_is_looked_up_by_its_label_before_a_number_is_counted(words: str, number: str) -> None:
    found = query_cuda.find_toolkit(BASE, words)
    assert found is not None
    assert found.version.text == number


def test_an_unknown_or_malformed_release_of_cuda_is_not_guessed() -> None:
    assert query_cuda.find_toolkit(BASE, "19.3") is None
    assert query_cuda.cuda_version("latest") is None
    with pytest.raises(VersionSyntaxError):
        query_cuda.find_toolkit(BASE, "latest")


@pytest.mark.parametrize(
    ("release", "on", "fit", "decides"),
    [
        ("12.2", "535.104.05", Fit.NATIVE, True),
        ("11.8", "580.65.06", Fit.NATIVE, True),
        ("12.8", "535.104.05", Fit.MINOR_VERSION, True),
        ("12.4", "525.60.12", Fit.NO, True),
        ("13.0", "570.133.20", Fit.NO, True),
        ("13.0", "580.65.05", Fit.NATIVE, True),
        ("13.9", "580.65.06", Fit.MINOR_VERSION, True),
        ("13.2", "580.65.05", Fit.NO, True),
        ("11.2", "450.51.05", Fit.NO, True),
        ("10.2", "418.39", Fit.NO, False),
        ("12.0", "999.1", Fit.UNKNOWN, False),
    ],
)
def test_a_cuda_release_fits_a_driver_natively_by_minor_version_or_not(
    release: str, on: str, fit: Fit, decides: bool
) -> None:
    answer = query_cuda.fit(BASE, cuda(release), driver(on))
    assert answer.fit is fit
    assert answer.can_decide is decides


@pytest.mark.parametrize(
    ("release", "on", "product", "fit", "limits"),
    [
        ("13.3", "535.104.05", "NVIDIA H100 80GB HBM3", Fit.FORWARD_COMPAT, ()),
        ("13.3", "550.54.15", "NVIDIA H100 80GB HBM3", Fit.UNKNOWN, ("forward-compat-old-bases",)),
        ("13.4", "580.65.06", "NVIDIA L40S", Fit.FORWARD_COMPAT, ("forward-compat-13-4",)),
        ("13.5", "580.65.06", "NVIDIA L40S", Fit.FORWARD_COMPAT, ("forward-compat-13-5",)),
        ("13.2", "580.65.06", "NVIDIA GeForce RTX 4090", Fit.NO, ()),
        ("13.2", "580.65.06", "NVIDIA RTX A6000", Fit.UNKNOWN, ()),
        ("13.1", "595.58.03", "Tesla T4", Fit.NO, ()),
        ("13.2", "595.58.03", "Tesla T4", Fit.NO, ()),
        ("12.7", "535.104.05", "Tesla T4", Fit.UNKNOWN, ()),
        ("13.2", "580.65.06", "Instinct MI300X", Fit.UNKNOWN, ()),
    ],
)
def test_forward_compatibility_asks_for_the_gpus_class_and_the_base_driver(
    release: str, on: str, product: str, fit: Fit, limits: tuple[str, ...]
) -> None:
    answer = query_cuda.forward_compat(BASE, cuda(release), driver(on), product)
    assert answer.fit is fit
    assert tuple(limit.id for limit in answer.limits) == limits
    assert answer.can_decide is (fit is not Fit.UNKNOWN and not limits)


def test_a_new_feature_branch_as_base_decides_nothing_because_the_guide_contradicts_itself() -> None:
    answer = query_cuda.forward_compat(BASE, cuda("13.3"), driver("590.48.01"), "NVIDIA L40S")
    assert answer.fit is Fit.FORWARD_COMPAT
    assert answer.limits == () and not answer.can_decide


def test_the_floor_of_a_major_holds_for_its_releases_that_are_still_to_come() -> None:
    for release, floor in (("11.4", "450.80.02"), ("12.99", "525.60.13"), ("13.99", "580.65.06"), ("10.2", "440.33")):
        found = query_cuda.minimum_driver(BASE, cuda(release))
        assert found is not None
        assert found[0].text == floor
    assert query_cuda.minimum_driver(BASE, cuda("19.0")) is None
    assert query_cuda.minimum_driver(BASE, cuda("10.9")) is None


def test_the_fabric_manager_has_the_drivers_version_and_imex_from_r550_on() -> None:
    assert query_components.has_drivers_version(BASE, Component.FABRIC_MANAGER, "R580")
    assert not query_components.has_drivers_version(BASE, Component.IMEX, "R535")
    assert query_components.has_drivers_version(BASE, Component.IMEX, "R550")
    assert not query_components.has_drivers_version(BASE, Component.NVLSM, "R580")
    claim = query_components.component_rule(BASE, Component.FABRIC_MANAGER, "R580")
    assert claim is not None
    assert claim.can_decide
    assert claim.key == "fabricmanager-equals-driver"
    weak = query_components.component_rule(BASE, Component.NVLSM, "R580")
    assert weak is not None
    assert not weak.can_decide


@pytest.mark.parametrize(
    ("product", "systems"),
    [
        ("NVIDIA H100 80GB HBM3", ["hgx-h100"]),
        ("NVIDIA H100 PCIe", []),
        ("NVIDIA A100-SXM4-80GB", ["hgx-a100"]),
        ("NVIDIA A100-PCIE-40GB", []),
        ("NVIDIA B200", ["hgx-b200"]),
        ("NVIDIA GB200", ["gb200-nvl72"]),
        ("NVIDIA B300 SXM6 AC", ["hgx-b300"]),
        ("Tesla T4", []),
        ("NVIDIA Z9000", []),
    ],
)
def test_a_product_tells_in_which_machines_with_switches_it_is_sold(product: str, systems: list[str]) -> None:
    assert [system.id for system in query_components.systems_of(BASE, product)] == systems


def test_a_machine_with_switches_says_which_services_it_needs() -> None:
    (b200,) = query_components.systems_of(BASE, "NVIDIA B200")
    assert query_components.system_claim(b200, Component.NVLSM) is not None
    assert query_components.system_claim(b200, Component.IMEX) is None
    switch = query_components.system_of_switch(BASE, "10DE:22A3")
    assert switch is not None
    assert switch.id == "hgx-h100"
    assert query_components.system_of_switch(BASE, "10de:ffff") is None


def test_packages_that_pull_another_branch_are_known() -> None:
    (found,) = query_components.transitions_of(BASE, "nvidia-fabricmanager-535")
    assert found.pulls == "nvidia-fabricmanager-580"


@pytest.mark.parametrize(
    ("kernel", "version", "flavour", "builds"),
    [
        ("6.17.13-1-pve", "550.163.01", None, False),
        ("6.15.2", "570.153.02", "proprietary", False),
        ("6.15.2", "570.153.02", "open", None),
        ("6.19.0", "590.48.01", "open", False),
        ("6.18.3", "590.48.01", "open", True),
        ("7.1.0", "580.159.04", "open", True),
        ("7.1.0", "580.142", "open", False),
        ("7.1.0", "580.142-1+site1", "open", False),
        ("7.1.0", "580.150", "open", None),
        ("7.10.0", "580.142", "open", None),
        ("6.8.0-50-generic", "580.65.06", "open", None),
        ("5.14.0-687.12.1.el9_8.x86_64", "575.57.08", "open", False),
        ("5.14.0-687.12.1.el9_8.x86_64", "580.65.06", "open", None),
        ("6.12.0-55.el10.x86_64", "535.216.03", None, None),
        ("weird", "580.65.06", None, None),
    ],
)
def test_whether_a_module_builds_is_answered_at_reported_points_only(
    kernel: str, version: str, flavour: str | None, builds: bool | None
) -> None:
    assert query_kernels.builds_on(BASE, kernel, driver(version), flavour).builds is builds


def test_known_issues_are_found_by_driver_gpu_and_flavour() -> None:
    found = query_issues.issues_of(BASE, driver("575.51.03"), "NVIDIA RTX PRO 6000 Blackwell Server Edition")
    sure = [match for match in found if match.certain]
    assert [match.issue.id for match in sure] == ["rtxpro6000-min-driver"]
    assert sure[0].claim.says == "GPU not supported"
    named = [match.issue.id for match in query_issues.issues_of(BASE, driver("570.133.20"), "NVIDIA B200", "open")]
    assert "b200-uptime-66-days" in named and "nvml-mixed-mig-570" in named
    assert "b200-uptime-66-days" not in [
        match.issue.id for match in query_issues.issues_of(BASE, driver("570.133.20"), "NVIDIA B200", "proprietary")
    ]
    assert "b200-uptime-66-days" not in [
        match.issue.id for match in query_issues.issues_of(BASE, driver("570.133.20"), "NVIDIA H100 PCIe", "open")
    ]


def test_an_issue_that_users_reported_without_a_range_is_never_certain() -> None:
    found = query_issues.issues_of(BASE, driver("610.43.02"), "NVIDIA GeForce RTX 5070 Ti", "open")
    (match,) = [each for each in found if each.issue.id == "supported-clocks-gsp-crash"]
    assert not match.certain
    assert "query of supported clocks" in match.claim.says


def test_issues_of_a_change_of_branch_strike_the_step_and_perhaps_wider_ones() -> None:
    assert [(m.issue.id, m.certain) for m in query_issues.upgrade_issues(BASE, "R610", "R615")] == [
        ("r610-r615-inplace-hang", True)
    ]
    assert [m.certain for m in query_issues.upgrade_issues(BASE, "R595", "R620")] == [False]
    assert query_issues.upgrade_issues(BASE, "R570", "R610") == ()
    assert query_issues.upgrade_issues(BASE, "R615", "R610") == ()


def test_limits_say_what_is_not_decided_and_whom_to_ask() -> None:
    assert query_limits.architecture_limit(BASE, "Rubin GR100") is not None
    assert query_limits.architecture_limit(BASE, "Hopper") is None
    assert query_limits.modules_limit(BASE, "R610") is None
    modules = query_limits.modules_limit(BASE, "R620")
    assert modules is not None
    claim = query_limits.limit_claim(modules)
    assert claim.says == (
        "not decided from the records: a fallback to proprietary modules on R615 or later; ask the package list of the repository"
    )
    crossing = query_limits.in_place_limit(BASE, "R595", "R620", switches=False)
    assert crossing is not None and crossing.id == "r610-r615-in-place"
    switches = query_limits.in_place_limit(BASE, "R570", "R580", switches=True)
    assert switches is not None and switches.id == "nvswitch-across-branches"
    assert query_limits.in_place_limit(BASE, "R570", "R580", switches=False) is None
    assert query_limits.in_place_limit(BASE, "R580", "R580", switches=True) is None
    assert len(query_limits.limits(BASE, Subject.XID)) == 4


def test_the_names_of_packages_tell_from_which_repository_a_driver_came() -> None:
    nvidia = {"nvidia-dkms-open", "nvidia-kernel-source-open", "libnvidia-compute"}
    archive = {"nvidia-dkms-595-open", "nvidia-kernel-source-595-open", "libnvidia-compute-595"}
    server = {"nvidia-dkms-595-server-open", "libnvidia-compute-595-server", "nvidia-fabricmanager-595"}
    for names, repository in ((nvidia, "nvidia-cuda"), (archive, "ubuntu"), (server, "ubuntu-server")):
        found = query.installed_set(BASE, "ubuntu2404", "amd64", "R595", Flavour.OPEN, names)
        assert found is not None
        assert found.repository == repository
    assert query.installed_set(BASE, "ubuntu2404", "amd64", "R595", Flavour.OPEN, {"bash"}) is None
    debian = query.installed_set(
        BASE, "debian12", "amd64", "R535", Flavour.OPEN, {"nvidia-open-kernel-dkms", "libcuda1"}
    )
    assert debian is not None
    assert debian.repository == "debian"


def test_nvidias_ubuntu_names_lose_their_branch_at_r590() -> None:
    change = query_components.renamed(BASE, "nvidia-dkms-580-open", "nvidia-cuda", "ubuntu2404", "R580", "R595")
    assert change is not None
    assert change.new == "nvidia-dkms-open"
    ended = query_components.renamed(BASE, "cuda-drivers-580", "nvidia-cuda", "ubuntu2204", "R580", "R590")
    assert ended is not None
    assert ended.new is None
    assert query_components.renamed(BASE, "nvidia-dkms-580-open", "ubuntu", "ubuntu2404", "R580", "R595") is None
    assert query_components.renamed(BASE, "nvidia-dkms-570-open", "nvidia-cuda", "ubuntu2404", "R570", "R580") is None


def test_red_hats_packages_come_in_a_module_stream_of_their_branch() -> None:
    found = query.package_set(BASE, "rhel9", "x86_64", "R595", Flavour.OPEN)
    assert found is not None
    assert found.stream_for(595) == "595-open"
    newest = query.package_set(BASE, "rhel10", "x86_64", "R595", Flavour.OPEN)
    assert newest is not None
    assert newest.stream_for(595) is None


def test_security_tells_open_bulletins_and_calls_nothing_patched_that_is_not_recorded() -> None:
    old = security_of(BASE, driver("580.126.20"))
    assert [each.bulletin.bulletin for each in old.open] == [5821, 5861]
    assert old.open[-1].fixed.text == "580.178.04"
    assert old.worst is CveSeverity.HIGH
    assert security_of(BASE, driver("580.178.04-1+site1")).patched
    unknown = security_of(BASE, driver("580.999.1"))
    assert not unknown.patched
    assert unknown.limit is not None and unknown.limit.id == "patched-unknown-version"
    ended = security_of(BASE, driver("570.211.01"))
    assert ended.open == () and ended.unlisted != () and not ended.patched


def test_an_xid_is_acted_on_only_where_no_limit_stands_before_it() -> None:
    found = xid_meaning(BASE, 79)
    assert found is not None
    assert found.action is XidAction.REBOOT_NODE
    assert xid_meaning(BASE, 500) is None
    assert xid_limit(BASE, 79, "Hopper") is None
    for code, architecture, limit in ((79, "Turing", "xid-before-ampere"), (48, "Hopper", "xid-workflow"),
                                      (162, "Hopper", "xid-from-162"), (500, "Hopper", "xid-from-162")):  # fmt: skip
        stands = xid_limit(BASE, code, architecture)
        assert stands is not None and stands.id == limit


@pytest.mark.parametrize("confidence", [Confidence.MEMORY, Confidence.CONFLICTING])
def test_an_answer_that_rests_on_a_weak_record_cannot_decide(confidence: Confidence) -> None:
    branches = {
        name: replace(
            branch, native_cuda_confidence=confidence, provenance=replace(branch.provenance, confidence=confidence)
        )
        for name, branch in BASE.branches.items()
    }
    issues = {
        key: replace(issue, provenance=replace(issue.provenance, confidence=confidence))
        for key, issue in BASE.of(KnownIssue).items()
    }
    weak = replace(BASE, branches=branches, more=MappingProxyType({**BASE.more, "KnownIssue": shelf_of(issues)}))
    assert query_cuda.fit(weak, cuda("12.2"), driver("535.104.05")).fit is Fit.NATIVE
    assert not query_cuda.fit(weak, cuda("12.2"), driver("535.104.05")).can_decide
    found = query_issues.issues_of(weak, driver("575.51.03"), "NVIDIA RTX PRO 6000 Blackwell Server Edition")
    assert found and not any(match.claim.can_decide for match in found)
