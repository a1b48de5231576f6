"""Records that point at what is not there are found, each with its file and line, all at once."""

from dataclasses import dataclass

import pytest

from muster.documents import compose
from muster.knowledge.base import FILES, read_base
from muster.knowledge.checks import Misfit, misfits, places
from muster.knowledge.listing import views
from muster.knowledge.loader import DATA, load

TEXTS = {name: (DATA / name).read_text(encoding="utf-8") for name in FILES}


def test_the_records_of_the_release_fit_together() -> None:
    assert misfits(load()) == ()


def test_every_record_has_a_place_in_its_file() -> None:
    where = places(compose(text, name) for name, text in TEXTS.items())
    for view in views(load()):
        for key in view.records:
            if view.name != "fact":
                file, line = where[(view.name, key)].split(":")
                text = TEXTS[file].split("\n")[int(line) - 1]
                assert text.startswith("- "), (view.name, key)


@dataclass(frozen=True)
class Plant:
    file: str
    old: str
    new: str
    kind: str
    key: str
    why: str


PLANTS = (
    Plant("driver_branches.yaml", "latest_datacenter_release: '580.178.04'", "latest_datacenter_release: 580.178.05", "branch", "R580",
          "580.178.05 is in no release record"),
    Plant("driver_releases.yaml", "- version: '580.126.20'\n  branch: R580", "- version: 580.126.20\n  branch: R590", "release", "580.126.20",
          "it belongs to R580, not to R590"),
    Plant("driver_releases.yaml", "windows_releases:\n", "windows_releases:\n- {version: '1.1', branch: R999, source: x}\n", "windows-release",
          "1.1", "branch R999 is not known"),
    Plant("cuda_toolkits.yaml", "label: 13.4 GA\n  release_month: '2026-09'\n  driver_branch: R615",
          "label: 13.4 GA\n  driver_branch: R999", "toolkit", "13.4.1", "branch R999 is not known"),
    Plant("cuda_toolkits.yaml", "bundled_driver_linux_x86_64: '550.54.14'", "bundled_driver_linux_x86_64: '520.1.1'", "toolkit", "12.4.0",
          "it brings 520.1.1, below its oldest driver 525.60.13"),
    Plant("driver_releases.yaml", "- version: '580.178.04'\n  branch: R580\n  channel: datacenter\n  release_date: '2026",
          "- version: '580.178.04'\n  branch: R580\n  channel: datacenter\n  release_date: '2021", "release", "580.178.04",
          "a lower build of R580 is of 2026-06-29, later"),
    Plant("gpu_architectures.yaml", "last_driver_branch: R470", "last_driver_branch: R471", "architecture",
          "Kepler", "branch R471 is not known"),
    Plant("gpu_architectures.yaml", "- names: [V100, V100S]", "- names: [V100, V100S, T4]", "architecture", "Turing",
          "family T4 is Volta's too"),
    Plant("package_sets.yaml", "- id: nvidia-debian13-amd64-open-590\n  repository: nvidia-cuda\n  distributions: [debian13]",
          "- id: nvidia-debian13-amd64-open-590\n  repository: nvidia-cuda\n  distributions: [debian12]", "package-set",
          "nvidia-debian13-amd64-open-590", "nvidia-debian12-amd64-open-590 answers for R590 on debian12 too"),
    Plant("package_sets.yaml", "- id: dnf-versionlock\n  repository: nvidia-cuda", "- id: dnf-versionlock\n  repository: nowhere", "locking",
          "dnf-versionlock", "repository nowhere has no package set"),
    Plant("fabric_manager.yaml", "families: [V100]", "families: [V101]", "gpu-system", "dgx-2", "family V101 is not known"),
    Plant("fabric_manager.yaml", "switch_pci: 10de:22a3", "switch_pci: 10de:22a4", "gpu-system", "hgx-h100", "switch 10de:22a4 is not known"),
    Plant("forward_compat.yaml", "toolkit: '13.3'", "toolkit: '13.33'", "compat-package", "cuda-compat-13-3", "CUDA 13.33 is not known"),
    Plant("kernel_support.yaml", "- branch: R590\n", "- branch: R591\n", "kernel-ceiling", "R591", "branch R591 is not known"),
    Plant("kernel_support.yaml", "drivers: ==580.142", "drivers: '>=580'", "kernel-failure", "7.1-580.142",
          "580.159.04 is both fixed and failing"),
    Plant("known_issues.yaml", "gpus: [Hopper]", "gpus: [Hoper]", "known-issue", "cublaslt-grouped-hopper",
          "GPU Hoper is neither a family nor an architecture"),
    Plant("limits.yaml", "packages: [cuda-compat-13-5]", "packages: [cuda-compat-13-9]", "limit", "forward-compat-13-5",
          "cuda-compat-13-9 is no forward-compatibility package that is known"),
    Plant("security_bulletins.yaml", "{branch: R615, product: tesla,", "{branch: R610, product: tesla,",
          "bulletin", "5861", "615.71.09 is no build of R610"),
    Plant("nvidia_require_cuda.yaml", "- id: tesla-only", "- id: tesla-alone", "require-cuda", "10.0.130", "brand set tesla-only is not known"),
    Plant("gpu_operator.yaml", "min_driver_branch: R580", "min_driver_branch: R581", "operator-platform",
          "gpucluster-dra", "branch R581 is not known"),
)  # fmt: skip


@pytest.fixture(scope="module")
def found() -> tuple[Misfit, ...]:
    """What is found with all of them planted."""
    texts = dict(TEXTS)
    for plant in PLANTS:
        assert plant.old in texts[plant.file], plant
        texts[plant.file] = texts[plant.file].replace(plant.old, plant.new, 1)
    return misfits(read_base(texts))


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.kind}-{plant.key}")
def test_a_record_that_does_not_fit_is_named_among_all_the_others(plant: Plant, found: tuple[Misfit, ...]) -> None:
    assert Misfit(plant.kind, plant.key, plant.why) in found, found
