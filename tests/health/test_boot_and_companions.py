"""What the next boot loads, and what stands beside the driver: each finding with its twin, one fact changed and it is gone."""

from collections.abc import Mapping

import pytest

from muster.health.consistency import check
from muster.health.judgement import Subject
from muster.model.fact import FactValue, Unknown
from muster.model.finding import Finding, Severity
from tests.support.planning import GOOD, NEW, OLD, seen
from tests.support.values import T0

Values = Mapping[str, FactValue | None]
LOST = Unknown("no answer")
K1, K2 = "6.1.0-18-amd64", "6.1.0-57-amd64"

TWO: Values = {
    "kernel.bootable": (K1, K2), "kernel.next_boot": K2, f"kernel[{K2}].headers": True, f"kernel[{K2}].nvidia.on_disk": True,
    f"kernel[{K2}].nvidia.version": OLD, f"kernel[{K2}].nvidia.signer": "none",
}  # fmt: skip
"""A second kernel, which comes next and has all it needs."""

KEYED: Values = {
    **TWO, "secure_boot.enabled": True, "secure_boot.enrolled": ("site key",), f"kernel[{K1}].nvidia.signer": "site key",
    f"kernel[{K2}].nvidia.signer": "site key",
}  # fmt: skip
"""Secure boot, and modules that the site has signed."""

IMAGE: Values = {
    "package[linux-image-amd64].version": "6.1.76-1", "package[linux-image-amd64].state": "installed", "package[linux-image-amd64].hold": True,
}  # fmt: skip

SPEC = "/etc/cdi/nvidia.yaml"
CONTAINERS: Values = {
    "container.cdi_specs": (SPEC,),
    f"cdi[{SPEC}].drivers": (OLD,),
    f"cdi[{SPEC}].devices": ("nvidia.com/gpu=0",),
}
LATER = "/var/run/cdi/nvidia.yaml"
TWO_SPECS: Values = {
    **CONTAINERS, "container.cdi_specs": (SPEC, LATER), f"cdi[{LATER}].drivers": (OLD,), f"cdi[{LATER}].devices": ("nvidia.com/gpu=0",),
}  # fmt: skip
IMAGES: Values = {
    **TWO, "initramfs.images": (K1, K2), f"kernel[{K1}].initramfs.modules": (), f"kernel[{K2}].initramfs.modules": ("nvidia",),
    f"kernel[{K2}].initramfs.nvidia": OLD,
}  # fmt: skip
SERIALS: Values = {
    **KEYED, "secure_boot.enrolled_serials": ("1000",), "secure_boot.kernel_keys": ("Canonical",), f"kernel[{K2}].nvidia.sig_key": "1000",
}  # fmt: skip
TOOLKIT = "/usr/local/cuda-12.8"
TOOLKITS: Values = {
    "cuda.toolkits": (TOOLKIT,), f"cuda[{TOOLKIT}].version": "12.8.1", f"cuda[{TOOLKIT}].bundled_driver": OLD, "runfile.version": OLD,
    **{path: None for path in GOOD if path.startswith("package[")}, "package[cuda-toolkit-12-8].version": "12.8.1-1",
    "package[cuda-toolkit-12-8].state": "installed",
}  # fmt: skip
"""A CUDA toolkit, and the driver of another origin."""
FABRIC: Values = {
    "fabric_manager.present": True, "fabric_manager.version": OLD, "service.present": ("nvidia-fabricmanager",),
    "service[nvidia-fabricmanager].state": "active",
}  # fmt: skip


def found(values: Values, *, hold_kernel: bool = True, forbidden: bool = True) -> dict[str, Finding]:
    subject = Subject(
        "n1",
        "train",
        seen("n1", values),
        OLD,
        holds=True,
        hold_kernel=hold_kernel,
        upgrades_forbidden=forbidden,
        developer_forbidden=forbidden,
    )
    findings = check([subject], T0)
    assert len({each.code for each in findings}) == len(findings)
    return {each.code: each for each in findings}


GOODS: Mapping[str, Values] = {
    "one kernel": {}, "two kernels": TWO, "secure boot": KEYED, "a held kernel": IMAGE, "containers": CONTAINERS, "switches": FABRIC,
    "two CDI specs that say the same": TWO_SPECS, "an initramfs with the driver of the disk": IMAGES, "keys by number": SERIALS,
    "a toolkit": TOOLKITS, "a key of the distribution": {
        **SERIALS, f"kernel[{K2}].nvidia.signer": "Canonical", f"kernel[{K2}].nvidia.sig_key": LOST,
    },
    "an old initramfs without nouveau": {"nouveau.initramfs_older": True, f"kernel[{K1}].initramfs.modules": ()},
    "no module, no parameters": {"module.nvidia.options_differ": LOST, "module.nvidia.loaded": False},
    "no dkms": {"dkms.present": False, f"dkms[nvidia/{OLD}/{K1}/x86_64].state": None, f"kernel[{K1}].headers": False},
    "next unknown, and all kernels alike": {**TWO, "kernel.next_boot": LOST},
    "no nouveau on disk": {"nouveau.blacklisted": False, "nouveau.on_disk": False},
    "a .run install alone": {
        "runfile.installed": True, **{path: None for path in GOOD if path.startswith("package[")}, "module.nvidia.disk_version": OLD,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", GOODS)
def test_a_node_that_has_all_it_needs_has_no_finding(kind: str) -> None:
    assert found(GOODS[kind]) == {}


# code -> (the good node, what is changed, severity, a part of the evidence)
TWINS: Mapping[str, tuple[Values, Values, Severity, str]] = {
    "module-missing": (
        {**TWO, "kernel.next_boot": K1}, {f"kernel[{K2}].nvidia.on_disk": False}, Severity.WARNING, f"no nvidia module on disk for {K2}",
    ),
    "next-boot-differs": (TWO, {f"kernel[{K2}].nvidia.on_disk": False}, Severity.ERROR, f"{K2} boots next and has no nvidia module"),
    "headers-missing": (TWO, {f"kernel[{K2}].headers": False}, Severity.WARNING, f"no headers for {K2}"),
    "module-unsigned": (KEYED, {f"kernel[{K2}].nvidia.signer": "none"}, Severity.WARNING, f"the module for {K2} carries no signature"),
    "signing-key-unknown": (KEYED, {f"kernel[{K2}].nvidia.signer": "Canonical"}, Severity.UNKNOWN, "whether the key Canonical is accepted"),
    "nouveau-loaded": ({}, {"nouveau.loaded": True}, Severity.ERROR, "nouveau is loaded"),
    "nouveau-can-return": ({}, {"nouveau.blacklisted": False}, Severity.WARNING, "nothing keeps nouveau"),
    "key-not-enrolled": (
        SERIALS, {f"kernel[{K2}].nvidia.sig_key": "beef"}, Severity.ERROR, f"{K2} is signed by site key, which is not enrolled",
    ),
    "initramfs-differs": (
        IMAGES, {f"kernel[{K2}].initramfs.nvidia": NEW}, Severity.ERROR, f"the initramfs of {K2} holds {NEW}, {OLD} is on disk",
    ),
    "parameters-differ": ({}, {"module.nvidia.options_differ": ("NVreg_X 1 -> 0",)}, Severity.WARNING, "the next load changes NVreg_X 1 -> 0"),
    "image-booted": ({}, {"root_fs.kind": "overlay"}, Severity.WARNING, "the root file system is overlay"),
    "developer-driver": (TOOLKITS, {"runfile.installed": True}, Severity.WARNING, f"{OLD} is the driver that came with CUDA 12.8.1"),
    "gpu-missing": ({}, {"pci.gpus": 9}, Severity.ERROR, "8 GPUs answer, 9 are on the PCI bus"),
    "automatic-upgrades-on": (
        {"upgrades.unattended_upgrade": "1"}, {"upgrades.automatic": True}, Severity.WARNING, "unattended-upgrades is on",
    ),
    "kernel-not-held": (IMAGE, {"package[linux-image-amd64].hold": False}, Severity.WARNING, "linux-image-amd64 not held"),
    "run-over-packages": ({"runfile.version": OLD}, {"runfile.installed": True}, Severity.ERROR, f"a .run install {OLD} lies over"),
    "cdi-stale": (CONTAINERS, {f"cdi[{SPEC}].drivers": (NEW,)}, Severity.ERROR, f"{SPEC} names {NEW}, the library is {OLD}"),
    "fabric-manager-differs": (FABRIC, {"fabric_manager.version": NEW}, Severity.ERROR, f"nvidia-fabricmanager is {NEW}, {OLD} is loaded"),
    "service-failed": (FABRIC, {"service[nvidia-fabricmanager].state": "failed"}, Severity.WARNING, "nvidia-fabricmanager failed"),
}  # fmt: skip


@pytest.mark.parametrize("code", TWINS)
def test_one_thing_changed_gives_this_finding_and_no_other(code: str) -> None:
    good, change, severity, evidence = TWINS[code]
    assert found(good) == {}
    findings = found({**good, **change})
    assert set(findings) == {code}
    assert (findings[code].severity, findings[code].nodes) == (severity, ("n1",))
    assert evidence in findings[code].evidence
    assert findings[code].todo


def test_another_version_for_the_kernel_that_comes_next_is_a_disagreement() -> None:
    findings = found({**TWO, f"kernel[{K2}].nvidia.version": NEW})
    assert set(findings) == {"next-boot-differs"}
    assert findings["next-boot-differs"].evidence == f"{K2} boots next with {NEW}; {OLD} is loaded"


def test_an_initramfs_older_than_the_settings_lets_nouveau_return() -> None:
    assert "older than the settings" in found({"nouveau.initramfs_older": True})["nouveau-can-return"].evidence


def test_a_module_that_this_kernel_has_loaded_needs_no_other_proof() -> None:
    assert found({**KEYED, f"kernel[{K1}].nvidia.signer": "none"}) == {}


def test_imex_of_another_version_than_the_driver_is_named() -> None:
    imex: Values = {
        "package[nvidia-imex-570].version": f"{NEW}-1", "package[nvidia-imex-570].state": "installed", "package[nvidia-imex-570].hold": True,
    }  # fmt: skip
    assert found(imex)["fabric-manager-differs"].subject == "nvidia-imex"
    assert found({**imex, "package[nvidia-imex-570].version": f"{OLD}-1"}) == {}


def test_of_two_cdi_specs_the_one_that_hides_the_other_is_named() -> None:
    other = found({**TWO_SPECS, f"cdi[{SPEC}].drivers": (NEW,)})
    assert set(other) == {"cdi-stale", "cdi-shadowed"}
    assert other["cdi-shadowed"].evidence.startswith(
        f"nvidia.com/gpu=0: {LATER} counts, and hides {SPEC} of another driver"
    )
    beside = "/etc/cdi/site.yaml"
    twice: Values = {
        **CONTAINERS, "container.cdi_specs": (SPEC, beside), f"cdi[{beside}].drivers": (OLD,),
        f"cdi[{beside}].devices": ("nvidia.com/gpu=0", "nvidia.com/gpu=1"),
    }  # fmt: skip
    assert found(twice)["cdi-shadowed"].evidence == (
        f"nvidia.com/gpu=0: {SPEC} and {beside} define it in one folder: no runtime gives it to a container"
    )


def test_a_key_made_anew_under_the_old_name_is_not_taken_for_the_enrolled_one() -> None:
    assert "key-not-enrolled" in found({**SERIALS, f"kernel[{K2}].nvidia.sig_key": "1001"})
    assert found({**KEYED, f"kernel[{K2}].nvidia.sig_key": "1001"}) == {}  # numbers of the enrolled ones are not known
    strange: Values = {f"kernel[{K2}].nvidia.signer": "nobody", f"kernel[{K2}].nvidia.sig_key": LOST}
    assert set(found({**SERIALS, **strange})) == {"key-not-enrolled"}
    assert set(found({**SERIALS, **strange, "secure_boot.kernel_keys": LOST})) == {"signing-key-unknown"}


def test_nouveau_inside_the_initramfs_counts_more_than_its_age() -> None:
    old: Values = {"nouveau.initramfs_older": True, f"kernel[{K1}].initramfs.modules": ("nouveau",)}
    assert found(old)["nouveau-can-return"].evidence.endswith("and holds it")


def test_a_package_of_a_toolkit_that_brings_the_driver_is_named_with_who_installed_it() -> None:
    meta: Values = {
        "package[cuda].version": "12.8.1-1", "package[cuda].state": "installed", "package[cuda].hold": True,
        "transaction[2026-02-01T10:00:00].packages": ("cuda <none> -> 12.8.1-1",), "transaction[2026-02-01T10:00:00].at": "2026-02-01 10:00:00",
        "transaction[2026-02-01T10:00:00].by": "alice (1000)", "transaction[2026-02-01T10:00:00].line": "apt/history.log:3: Install: cuda",
    }  # fmt: skip
    finding = found(meta)["developer-driver"]
    assert finding.evidence.startswith("cuda brings the driver")
    assert (
        finding.cause
        == "cuda <none> -> 12.8.1-1, by alice (1000), at 2026-02-01 10:00:00 [apt/history.log:3: Install: cuda]"
    )


@pytest.mark.parametrize("code", ["automatic-upgrades-on", "kernel-not-held", "developer-driver"])
def test_what_the_policy_does_not_ask_is_not_missed(code: str) -> None:
    good, change, _, _ = TWINS[code]
    assert found({**good, **change}, hold_kernel=False, forbidden=False) == {}


# What is judged: with this fact gone, the question is unknown.
JUDGED: Mapping[str, Values] = {
    "kernel.bootable": {}, f"kernel[{K1}].nvidia.on_disk": {}, f"kernel[{K1}].headers": {}, "dkms.present": {}, "secure_boot.enabled": {},
    "nouveau.loaded": {}, "nouveau.blacklisted": {}, "upgrades.automatic": {}, "runfile.installed": {}, "container.cdi_specs": {},
    "fabric_manager.present": {}, "service.present": {}, f"cdi[{SPEC}].drivers": CONTAINERS, "package[linux-image-amd64].hold": IMAGE,
    "fabric_manager.version": FABRIC, "service[nvidia-fabricmanager].state": FABRIC,
    "initramfs.images": {}, f"kernel[{K2}].initramfs.modules": IMAGES, f"kernel[{K2}].initramfs.nvidia": IMAGES, "pci.gpus": {},
    "module.nvidia.options_differ": {}, "cuda.toolkits": {}, "root_fs.kind": {}, f"cdi[{SPEC}].devices": CONTAINERS,
    "settings.mig": {}, "settings.clocks": {}, "clock.utc_s": {},
    "kernel.next_boot": {**TWO, f"kernel[{K2}].nvidia.version": NEW},
}  # fmt: skip


@pytest.mark.parametrize("path", JUDGED)
@pytest.mark.parametrize("how", [LOST, None])
def test_a_missing_fact_gives_an_unknown_and_never_silence(path: str, how: FactValue | None) -> None:
    findings = found({**JUDGED[path], path: how})
    assert "not-judged" in findings, findings
    assert findings["not-judged"].severity is Severity.UNKNOWN
    assert findings["not-judged"].evidence.endswith("no answer" if how is LOST else "not collected")


def test_questions_with_one_reason_to_be_unknown_are_one_finding() -> None:
    none: Values = dict.fromkeys(("kernel.bootable", "upgrades.automatic", "container.cdi_specs", "runfile.installed"))
    assert found(none)["not-judged"].evidence == (
        "what the next boot loads, automatic upgrades, .run installs, CDI specs: unknown: not collected"
    )
