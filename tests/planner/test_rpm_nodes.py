"""What is planned on a node of rpm's: versions as its own packages write them, its module stream, and which manager carries it out."""

from collections.abc import Mapping
from functools import partial

from muster.backends.packages.apt import BACKEND as APT
from muster.backends.packages.dnf import BACKEND as DNF
from muster.knowledge.loader import load
from muster.model.fact import FactValue
from muster.model.stack import PackagePin
from muster.planner.standing import Judge, No, Way
from muster.solver.carried import carried
from tests.support.planning import PACKAGES, answer, pool, seen

NOW, THEN = "580.126.20", "595.71.05"
FORMS = {"nvidia-fabricmanager": "{}-1"}
MEMBERS = (
    "kmod-nvidia-open-dkms", "libnvidia-ml", "nvidia-driver-cuda", "nvidia-driver-cuda-libs", "nvidia-fabricmanager", "nvidia-kmod-common",
    "nvidia-modprobe", "nvidia-persistenced",
)  # fmt: skip


def version(name: str, driver: str) -> str:
    return FORMS.get(name, "3:{}-1.el9").format(driver)


def el(driver: str = NOW, **changed: FactValue | None) -> Mapping[str, FactValue | None]:
    values: dict[str, FactValue | None] = {
        "packages.manager": "rpm", "os.id": "rocky", "os.version": "9.4", "repository.lists": False,
        "module.nvidia.disk_version": driver, "module.nvidia.loaded_version": driver, "library.libcuda.version": driver,
    }  # fmt: skip
    for name in PACKAGES:
        values |= {f"package[{name}].{what}": None for what in ("version", "state", "hold")}
    for name in MEMBERS:
        values |= {f"package[{name}].version": version(name, driver), f"package[{name}].state": "installed"}
    values |= {"package[kernel-core].version": "5.14.0-427.el9", "package[kernel-core].state": "installed"}
    return {**values, **changed}


def judged(values: Mapping[str, FactValue | None], want: str = THEN) -> No | Way:
    base = load()
    judge = Judge([pool("train", want=want)], (APT, DNF), answer, partial(carried, base=base))
    return judge(seen("el1", values), "train")


def test_each_package_keeps_its_own_epoch_and_release_and_dnf_carries_it_out() -> None:
    found = judged(el())
    assert isinstance(found, Way), found
    assert found.step.manager == "dnf"
    assert found.step.packages == tuple(PackagePin(name, version(name, THEN)) for name in MEMBERS)
    assert found.step.back == tuple(PackagePin(name, version(name, NOW)) for name in MEMBERS)


def test_an_enabled_module_stream_is_a_pin_of_the_step_and_of_its_way_back() -> None:
    stream = {"package[@nvidia-driver].version": "580-open", "package[@nvidia-driver].state": "installed"}
    found = judged({**el(), **stream})
    assert isinstance(found, Way), found
    assert PackagePin("@nvidia-driver", "595-open") in found.step.packages
    assert PackagePin("@nvidia-driver", "580-open") in found.step.back
    assert ("package[@nvidia-driver].version", "595-open") in [(each.path, each.value) for each in found.step.done_when]


def test_a_32_bit_library_moves_along() -> None:
    small = {
        f"package[nvidia-driver-cuda-libs.i686].{key}": value
        for key, value in (("version", f"3:{NOW}-1.el9"), ("state", "installed"))
    }
    found = judged({**el(), **small})
    assert isinstance(found, Way), found
    assert PackagePin("nvidia-driver-cuda-libs.i686", f"3:{THEN}-1.el9") in found.step.packages
    assert f"nvidia-driver-cuda-libs-3:{THEN}-1.el9.i686" in DNF.fetch(found.step.packages, found.step.back, "/keep")


def test_what_a_cut_transaction_left_twice_is_a_persons_to_look_at_or_a_repairs() -> None:
    twice = {
        f"package[nvidia-modprobe@3:{THEN}-1.el9.x86_64].version": f"3:{THEN}-1.el9",
        f"package[nvidia-modprobe@3:{THEN}-1.el9.x86_64].state": "installed",
    }
    found = judged({**el(), **twice})
    assert isinstance(found, No)
    assert "nvidia-modprobe" in found.words
    assert "rpm -V" in found.words


def test_several_kernels_are_no_cut_transaction() -> None:
    more = {
        "package[kernel-core@5.14.0-503.el9.x86_64].version": "5.14.0-503.el9",
        "package[kernel-core@5.14.0-503.el9.x86_64].state": "installed",
    }
    assert isinstance(judged({**el(), **more}), Way)


def test_a_node_of_dpkgs_is_never_dnfs() -> None:
    assert not DNF.serves(seen("deb", {}))
    assert APT.serves(seen("deb", {}))
    assert not APT.serves(seen("el1", el()))
