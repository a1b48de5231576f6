"""What the knowledge base answers, on the records that come with this release."""

import pytest

from muster.knowledge import query
from muster.knowledge.loader import load
from muster.knowledge.schema import Channel, Confidence, PackageNeed, PackageRole
from muster.model.policy import Flavour, ReleaseLine
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion

BASE = load()


def test_a_known_driver_is_found_whatever_packaged_it() -> None:
    plain = query.find_release(BASE, DriverVersion.parse("580.126.20"))
    assert plain is not None
    assert plain.branch == "R580"
    assert plain.channel is Channel.DATACENTER
    assert query.find_release(BASE, DriverVersion.parse("580.126.20-1+site1")) == plain


def test_an_unknown_driver_is_answered_with_the_nearest_known_releases() -> None:
    unknown = DriverVersion.parse("580.126.21")
    assert query.find_release(BASE, unknown) is None
    assert str(query.nearest_releases(BASE, unknown)[0]) == "580.126.20"
    assert len(query.nearest_releases(BASE, DriverVersion.parse("999.1"), 2)) == 2


def test_releases_for_fleets_leave_out_what_is_only_to_be_recognised() -> None:
    fleet = query.releases(BASE, "R580")
    everything = query.releases(BASE, "R580", tuple(Channel))
    assert {release.branch for release in everything} == {"R580"}
    assert set(fleet) < set(everything)
    assert all(release.channel in query.FLEET_CHANNELS for release in fleet)
    assert [release.version for release in fleet] == sorted(release.version for release in fleet)


def test_a_branch_knows_its_native_cuda_and_its_newest_major() -> None:
    version = DriverVersion.parse("580.95.05")
    assert query.native_cuda(BASE, version) == CudaVersion.parse("13.0")
    assert query.max_cuda_major_without_forward_compat(BASE, version) == 13
    assert query.max_cuda_major_without_forward_compat(BASE, DriverVersion.parse("570.86.15")) == 12
    assert query.native_cuda(BASE, DriverVersion.parse("123.4")) is None
    branch = query.branch_of(BASE, DriverVersion.parse("580.999.1"))
    assert branch is not None
    assert branch.name == "R580"


def test_the_lines_of_branches_are_todays() -> None:
    long_term = [branch.name for branch in query.branches_of_line(BASE, ReleaseLine.LONG_TERM_SUPPORT)]
    production = [branch.name for branch in query.branches_of_line(BASE, ReleaseLine.PRODUCTION)]
    assert long_term[-2:] == ["R580", "R620"]
    assert production[-1] == "R595"


@pytest.mark.parametrize(
    ("name", "architecture", "family"),
    [
        ("NVIDIA H100 80GB HBM3", "Hopper", "H100"),
        ("NVIDIA H100 NVL", "Hopper", "H100"),
        ("NVIDIA H200", "Hopper", "H200"),
        ("NVIDIA GH200 480GB", "Hopper", "GH200"),
        ("NVIDIA A100-SXM4-40GB", "Ampere GA100", "A100"),
        ("NVIDIA A100X", "Ampere GA100", "A100X"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "Ampere GA100", "A100"),
        ("NVIDIA RTX A5000", "Ampere GA10x", "RTX A5000"),
        ("Tesla T4", "Turing", "T4"),
        ("Tesla V100-SXM2-32GB", "Volta", "V100"),
        ("NVIDIA L40S", "Ada Lovelace", "L40S"),
        ("NVIDIA B200", "Blackwell GB100", "B200"),
        ("NVIDIA GB200", "Blackwell GB100", "GB200"),
        ("NVIDIA B300 SXM6 AC", "Blackwell Ultra GB110", "B300"),
        ("NVIDIA GeForce RTX 2080 SUPER", "Turing", "RTX 2080"),
        ("NVIDIA GeForce RTX 4080 SUPER", "Ada Lovelace", "RTX 4080"),
        ("Quadro RTX 6000", "Turing", "Quadro RTX 6000"),
        ("NVIDIA RTX 6000 Ada Generation", "Ada Lovelace", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "Blackwell GB20x", "RTX PRO 6000"),
    ],
)
def test_a_product_name_tells_architecture_and_family(name: str, architecture: str, family: str) -> None:
    assert query.product_architecture(BASE, name) == BASE.architectures[architecture]
    answer = query.identify(BASE, name)
    assert answer is not None
    assert answer.architecture.name == architecture
    assert answer.family is not None
    assert answer.family.name == family
    assert query.family_of(BASE, name) == family


@pytest.mark.parametrize(
    "name", ["", "NVIDIA", "NVIDIA H100X", "NVIDIA Z9000", "AMD Instinct MI300X", "[Not Supported]"]
)
def test_an_unknown_product_is_unknown_and_not_guessed(name: str) -> None:
    assert query.product_architecture(BASE, name) is None
    assert query.family_of(BASE, name) is None


def test_a_product_of_exactly_this_name_is_named() -> None:
    answer = query.identify(BASE, "NVIDIA H100 80GB HBM3")
    assert answer is not None
    assert answer.product is not None
    assert answer.product.pci_device == "10de:2330"
    assert answer.provenance.confidence is Confidence.STATED
    hopper = query.pci_architecture(BASE, "10DE:2330")
    assert hopper is not None
    assert hopper.name == "Hopper"
    assert query.pci_architecture(BASE, "10de:ffff") is None


def test_a_family_known_from_memory_says_so() -> None:
    answer = query.identify(BASE, "NVIDIA GeForce RTX 4090")
    assert answer is not None
    assert answer.provenance.confidence is Confidence.MEMORY


def test_a_branch_drives_what_it_supports_and_says_when_it_does_not_know() -> None:
    volta, hopper, rubin = (BASE.architectures[name] for name in ("Volta", "Hopper", "Rubin GR100"))
    assert query.drives(BASE, "R580", volta) is True
    assert query.drives(BASE, "R590", volta) is False
    assert query.drives(BASE, "R470", hopper) is False
    assert query.drives(BASE, "R595", rubin) is False
    assert query.drives(BASE, "R999", hopper) is None
    assert query.drives(BASE, "R470", BASE.architectures["Kepler"]) is None
    assert query.drives(BASE, "R495", BASE.architectures["Kepler"]) is False


def test_dropped_architectures_stay_dropped() -> None:
    assert query.architectures_dropped_by(BASE, "R580") == ("Fermi", "Kepler")
    for branch in ("R590", "R620"):
        assert query.architectures_dropped_by(BASE, branch) == ("Fermi", "Kepler", "Maxwell", "Pascal", "Volta")
    for name, branch in BASE.branches.items():
        dropped = query.architectures_dropped_by(BASE, name)
        assert set(branch.architectures_dropped) <= set(dropped), name


@pytest.mark.parametrize(
    ("product", "branch", "expected", "says"),
    [
        ("Tesla V100-SXM2-32GB", 580, ("proprietary",), "Volta GPUs cannot use open modules"),
        ("Tesla V100-SXM2-32GB", 615, (), "from R615 on there are no proprietary modules, and Volta GPUs cannot"),
        ("NVIDIA H100 NVL", 580, ("open", "proprietary"), "Hopper GPUs can use either flavour"),
        ("NVIDIA GH200 480GB", 580, ("open",), "GH200 need open modules"),
        ("NVIDIA H100 NVL", 615, ("open",), "from R615 on there are no proprietary modules"),
        ("Tesla T4", 470, ("proprietary",), "open modules for Turing GPUs begin with R515"),
        ("NVIDIA B200", 580, ("open",), "Blackwell GB100 GPUs need open modules"),
    ],
)
def test_a_product_and_a_branch_say_which_flavours_can_load(
    product: str, branch: int, expected: tuple[str, ...], says: str
) -> None:
    answer = query.flavours(BASE, product, branch)
    assert answer is not None
    assert answer.names == expected
    assert answer.says.startswith(says)
    assert answer.source.startswith("https://")


def test_an_unknown_product_has_no_answer_about_flavours() -> None:
    assert query.flavours(BASE, "NVIDIA Z9000", 580) is None


def test_that_newer_branches_have_open_modules_only_is_third_party_knowledge() -> None:
    answer = query.flavours(BASE, "NVIDIA H100 NVL", 615)
    assert answer is not None
    assert answer.provenance.confidence is Confidence.THIRD_PARTY


def test_a_package_set_names_the_packages_of_a_branch() -> None:
    found = query.package_set(BASE, "debian12", "amd64", "R570", Flavour.OPEN)
    assert found is not None
    always = [member.name_for(570) for member in found.members if member.need is PackageNeed.ALWAYS]
    assert "nvidia-kernel-open-dkms" in always
    assert "libcuda1" in always
    (fabric,) = [member for member in found.members if member.role is PackageRole.FABRIC_MANAGER]
    assert fabric.name_for(570) == "nvidia-fabricmanager-570"
    assert fabric.need is PackageNeed.NVSWITCH
    newer = query.package_set(BASE, "debian12", "amd64", "R580", Flavour.OPEN)
    assert newer is not None
    assert "nvidia-fabricmanager" in [member.name_for(580) for member in newer.members]


def test_an_unknown_distribution_has_no_package_set() -> None:
    assert query.package_set(BASE, "slackware15", "amd64", "R580", Flavour.OPEN) is None
    assert query.package_set(BASE, "debian12", "amd64", "R470", Flavour.OPEN) is None


def test_all_families_can_be_named_in_a_hint() -> None:
    assert {"H100", "A100", "L40S", "B200"} <= set(query.families(BASE))
