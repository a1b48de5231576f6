"""The apt backend's texts, met with the real apt and dpkg of a loopback node."""

import subprocess
from pathlib import Path

import pytest

from muster.backends._apt_texts import EXCLUSION
from muster.backends.packages.apt import BACKEND, Apt
from muster.loopback.fleet import LoopbackFleet
from muster.loopback.observe import observe
from muster.loopback.packages import MEMBERS
from muster.model.policy import Holds, Packages, Permission
from muster.model.stack import PackagePin
from muster.node.restart import RELOAD

KEEP = "/var/lib/muster/node/restore/run-1"


def pins(driver: str) -> tuple[PackagePin, ...]:
    return tuple(PackagePin(member, f"{driver}-1") for member in MEMBERS)


OLD, BAD, NEW = pins("570.195.03"), pins("580.119.02"), pins("580.126.20")


def prepare(fleet: LoopbackFleet, node: str, wanted: tuple[PackagePin, ...]) -> None:
    for text in (BACKEND.preflight(wanted, OLD), BACKEND.fetch(wanted, OLD, KEEP), BACKEND.save(OLD, KEEP)):
        ran = fleet.run(node, "sh -s", stdin=text)
        assert ran.exit_status == 0, ran.stdout + ran.stderr


def test_a_good_driver_is_installed_held_and_loaded_once(fleet: LoopbackFleet, node: str) -> None:
    prepare(fleet, node, NEW)
    for text in (BACKEND.install(NEW, OLD), BACKEND.install(NEW, OLD), RELOAD):
        ran = fleet.run(node, "sh -s", stdin=text)
        assert ran.exit_status == 0, ran.stdout + ran.stderr
    truth = observe(fleet.node_root(node))
    assert (truth.loaded, truth.is_whole, truth.run_twice) == ("580.126.20", True, 0)
    assert fleet.run(node, "apt-mark showhold").stdout.split() == sorted(MEMBERS)


def test_a_driver_that_does_not_build_goes_back_from_what_was_kept(fleet: LoopbackFleet, node: str) -> None:
    prepare(fleet, node, BAD)
    assert fleet.run(node, "sh -s", stdin=BACKEND.install(BAD, OLD)).exit_status == 100
    assert not observe(fleet.node_root(node)).is_whole
    ran = fleet.run(node, "apt-get clean; sh -s", stdin=BACKEND.restore(OLD, KEEP, NEW))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    truth = observe(fleet.node_root(node))
    assert (truth.loaded, truth.is_whole, truth.run_twice) == ("570.195.03", True, 0)


def test_preflight_changes_nothing_on_the_node(fleet: LoopbackFleet, node: str) -> None:
    lists = fleet.node_root(node) / "var/lib/apt/lists"
    before = sorted(path.name for path in lists.rglob("*"))
    assert fleet.run(node, "sh -s", stdin=BACKEND.preflight(NEW, OLD)).exit_status == 0
    assert sorted(path.name for path in lists.rglob("*")) == before
    missing = fleet.run(node, "sh -s", stdin=BACKEND.preflight(pins("580.999.99"), OLD))
    assert missing.exit_status == 3


def test_a_folder_name_with_a_blank_is_no_obstacle(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "my fleet", nodes=1)
    prepare(fleet, "gpu01", BAD)
    fleet.run("gpu01", "sh -s", stdin=BACKEND.install(BAD, OLD))
    ran = fleet.run("gpu01", "sh -s", stdin=BACKEND.restore(OLD, KEEP, NEW))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert fleet.truth()[0].is_whole


@pytest.mark.parametrize("whole_others", [True, False])
def test_a_package_that_was_cut_off_in_mid_unpack_is_put_back_whole(
    fleet: LoopbackFleet, node: str, *, whole_others: bool
) -> None:
    prepare(fleet, node, NEW)
    if not whole_others:
        ran = fleet.run(node, "sh -s", stdin=BACKEND.install(NEW, OLD))
        assert ran.exit_status == 0, ran.stdout + ran.stderr
    # What dpkg writes before it unpacks, and what stands there when the power goes before it is done.
    status = fleet.node_root(node) / "var/lib/dpkg/status"
    head, name, rest = status.read_text(encoding="utf-8").partition("Package: nvidia-driver-cuda\n")
    _, stands, after = rest.partition("Status: ")
    cut = "install reinstreq half-installed\n" + after.partition("\n")[2]
    status.write_text(head + name + rest[: rest.index("Status: ")] + stands + cut, encoding="utf-8")
    assert observe(fleet.node_root(node)).broken == ("nvidia-driver-cuda",)
    ran = fleet.run(node, "sh -s", stdin=BACKEND.restore(OLD, KEEP, NEW))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert observe(fleet.node_root(node)).broken == ()
    assert observe(fleet.node_root(node)).library == "570.195.03"


def small_package(folder: Path, name: str, depends: str = "") -> Path:
    """A package that holds nothing."""
    tree = folder / name
    (tree / "DEBIAN").mkdir(parents=True)
    fields = {
        "Package": name,
        "Version": "1",
        "Architecture": "all",
        "Maintainer": "site <site@site.invalid>",
        "Description": name,
    }
    control = "".join(
        f"{key}: {value}\n" for key, value in {**fields, **({"Depends": depends} if depends else {})}.items()
    )
    (tree / "DEBIAN/control").write_text(control, encoding="ascii")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", str(tree), str(folder)], check=True, capture_output=True)
    return folder / f"{name}_1_all.deb"


def test_a_repair_takes_what_was_kept_and_refuses_where_another_package_would_go(
    fleet: LoopbackFleet, node: str, tmp_path: Path
) -> None:
    prepare(fleet, node, NEW)
    assert fleet.run(node, "sh -s", stdin=BACKEND.install(NEW, OLD)).exit_status == 0
    needs = small_package(tmp_path, "site-tools", "libcuda1 (>= 580)")
    assert fleet.run(node, f"dpkg -i {needs}").exit_status == 0
    # The repository has lost the old driver; an earlier change kept it on the node.
    fleet.run(node, ": >etc/apt/sources.list")
    here = "/var/lib/muster/node/restore/run-2"
    repairs = Apt()
    for text in (repairs.repair_preflight(OLD, NEW), repairs.gather(OLD, here), repairs.save(OLD, here)):
        ran = fleet.run(node, "sh -s", stdin=text)
        assert ran.exit_status == 0, ran.stdout + ran.stderr
    refused = fleet.run(node, "sh -s", stdin=repairs.repair(OLD, NEW, here))
    assert (refused.exit_status, "would remove packages: site-tools" in refused.stdout) == (3, True), refused.stdout
    assert observe(fleet.node_root(node)).library == "580.126.20"
    fleet.run(node, "dpkg --purge site-tools")
    ran = fleet.run(node, "sh -s", stdin=repairs.repair(OLD, NEW, here))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert fleet.run(node, "apt-mark showhold").stdout.split() == sorted(MEMBERS)
    lost = fleet.run(node, "sh -s", stdin=repairs.repair_preflight(pins("580.95.05"), OLD))
    assert lost.exit_status == 4
    assert "cannot be had" in lost.stdout


def test_a_change_holds_the_kernel_and_keeps_automatic_upgrades_away_and_a_way_back_undoes_that(
    fleet: LoopbackFleet, node: str, tmp_path: Path
) -> None:
    kernels = " ".join(
        str(small_package(tmp_path, name)) for name in ("linux-image-6.1.0-57-amd64", "linux-image-amd64")
    )
    assert fleet.run(node, f"dpkg -i {kernels}; apt-mark hold linux-image-amd64").exit_status == 0
    held = Apt(Packages(), Holds())
    exclusion = fleet.node_root(node) / EXCLUSION
    for text in (held.fetch(NEW, OLD, KEEP), held.save(OLD, KEEP), held.install(NEW, OLD)):
        ran = fleet.run(node, "sh -s", stdin=text)
        assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert {"linux-image-6.1.0-57-amd64", "linux-image-amd64"} <= set(
        fleet.run(node, "apt-mark showhold").stdout.split()
    )
    assert '"linux-image";' in exclusion.read_text(encoding="ascii")
    ran = fleet.run(node, "sh -s", stdin=held.restore(OLD, KEEP, NEW))
    assert ran.exit_status == 0, ran.stdout + ran.stderr
    assert fleet.run(node, "apt-mark showhold").stdout.split() == ["linux-image-amd64"]
    assert not exclusion.exists()
    lenient = Apt(Packages(), Holds(kernel=False, automatic_upgrades=Permission.ALLOWED)).install(NEW, OLD)
    assert "52muster" not in lenient
    assert "kernel_packages" not in lenient
