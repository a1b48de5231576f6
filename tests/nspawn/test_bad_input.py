"""What a repository and its packages can do wrong, on real apt: each is named, decided by the policy, and nothing of the node is lost."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab import repository
from lab.fleet import Lab
from lab.packages import OPEN, RELEASES, Package, names, packages
from lab.tools import PROGRAMS
from muster.backends.packages.apt import Apt
from muster.model.policy import Packages, Permission
from muster.model.stack import PackagePin
from tests.nspawn.conftest import OLD, Bench
from tests.support.desk import Desk

OTHER, NEW = "580.95.05", "595.71.05"
CONF = "etc/modprobe.d/nvidia-graphics-drivers.conf"
EDITED = "# by hand\noptions nvidia NVreg_EnableMSI=1\n"
SOURCES = {release.version: release for release in RELEASES}
LENIENT = 'APT::Get::AllowUnauthenticated "true";\nAcquire::AllowInsecureRepositories "true";\n'
ASKS = {
    "templates": "Template: nvidia-modprobe/keep\nType: boolean\nDefault: true\nDescription: Keep the device files?\n",
    "config": "#!/bin/sh\n. /usr/share/debconf/confmodule\ndb_input critical nvidia-modprobe/keep || true\ndb_go || true\n",
}

pytestmark = [pytest.mark.slow, pytest.mark.lab(*PROGRAMS), pytest.mark.xdist_group("nspawn")]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One node for all stories: each leaves it on the driver that it found."""
    place = tmp_path_factory.mktemp("bad")
    lab = Lab.up(place / "lab")
    try:
        lab.install(lab.nodes[0], OLD)
        yield Bench(lab, Desk(lab.folder, place / "muster.db"))
    finally:
        lab.down()


@pytest.fixture
def policy(bench: Bench) -> Iterator[Path]:
    """The policy's file, which is as before afterwards."""
    file = bench.lab.folder / "fleet.yaml"
    before = file.read_text(encoding="utf-8")
    yield file
    file.write_text(before, encoding="utf-8")


def pins(driver: str) -> tuple[PackagePin, ...]:
    release = SOURCES[driver]
    return tuple(PackagePin(name, release.package_version) for name in names(release, OPEN).all)


def is_on(bench: Bench, driver: str) -> None:
    truth = bench.node.truth()
    assert {truth["loaded"], truth["library"], truth["disk"]} == {driver}
    assert truth["packages"].split() == [str(pin) for pin in pins(driver)]
    assert (truth["audit"], truth["lease"]) == ("", "")
    assert {pin.name for pin in pins(driver)} <= set(truth["holds"].split())


def refused(bench: Bench, driver: str, *words: str) -> None:
    """The change is left out before anything of the node was touched, and says why."""
    before = bench.transactions()
    said = bench.change(driver)
    assert bench.phase() == "left-out", said.out + said.err
    for each in words:
        assert each in said.out, said.out
    assert bench.transactions() == before
    is_on(bench, OLD)


def test_an_unsigned_repository_is_refused_however_lenient_the_node_is_and_the_policy_can_allow_it(
    bench: Bench,
) -> None:
    lenient = bench.node.root / "etc/apt/apt.conf.d/99lenient"
    lenient.write_text(LENIENT, encoding="ascii")
    (bench.lab.folder / "apt/InRelease").unlink()
    try:
        refused(bench, OTHER, "the repository cannot be read", "is not signed")
        allowed = Apt(Packages(unsigned=Permission.ALLOWED)).preflight(pins(OTHER), pins(OLD))
        ran = bench.node.sh("sh -s", stdin=allowed)
        assert ran.exit_status == 0, ran.stdout + ran.stderr
    finally:
        lenient.unlink()
        repository.sign(bench.lab.folder / "apt")


def test_a_package_that_is_not_what_the_index_says_is_refused(bench: Bench) -> None:
    deb = next((bench.lab.folder / "apt/pool").glob(f"libnvidia-compute-580_{OTHER}*.deb"))
    whole = deb.read_bytes()
    deb.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        refused(bench, OTHER, "Hash Sum mismatch")
    finally:
        deb.write_bytes(whole)


def test_what_the_repository_lacks_of_a_driver_is_named(bench: Bench) -> None:
    deb = next((bench.lab.folder / "apt/pool").glob(f"nvidia-firmware-580_{OTHER}*.deb"))
    whole = deb.read_bytes()
    bench.planned(OTHER)
    deb.unlink()
    repository.index(bench.lab.folder / "apt")
    try:
        refused(bench, OTHER, "nvidia-firmware-580")
    finally:
        deb.write_bytes(whole)
        repository.index(bench.lab.folder / "apt")


def test_a_package_that_needs_a_newer_driver_keeps_the_node_from_an_older_one(bench: Bench) -> None:
    needs = Package("site-tools", "1", {"Depends": f"libnvidia-compute-580 (>= {OLD})"})
    repository.add(bench.lab.folder / "apt", [needs])
    bench.node.ok("apt-get -q update && apt-get -q -y install site-tools")
    try:
        refused(bench, OTHER, "would remove packages: site-tools")
    finally:
        bench.node.ok("dpkg --purge site-tools")


def test_a_downgrade_that_a_package_refuses_ends_on_what_was_there(bench: Bench) -> None:
    bench.node.set_knob("refuses-downgrade")
    said = bench.change(OTHER)
    bench.node.set_knob("refuses-downgrade", None)
    assert bench.phase() == "rolled-back", said.out + said.err
    assert "is not supported" in said.out or "libnvidia-compute-580" in said.out, said.out
    is_on(bench, OLD)


def test_a_package_whose_script_reads_an_answer_gets_none_and_the_node_comes_back(bench: Bench) -> None:
    bench.node.set_knob("asks-question", f"{OTHER}\n")
    said = bench.change(OTHER)
    bench.node.set_knob("asks-question", None)
    assert bench.phase() == "rolled-back", said.out + said.err
    assert "nvidia-compute-utils-580" in said.out or "no answer to a question" in said.out, said.out
    is_on(bench, OLD)


def test_a_package_that_asks_is_named_and_the_policy_says_whether_its_defaults_answer(
    bench: Bench, policy: Path
) -> None:
    (asking,) = (each for each in packages(SOURCES[OTHER], "6.1.0") if each.name == "nvidia-utils-580")
    pool = next((bench.lab.folder / "apt/pool").glob(f"nvidia-utils-580_{OTHER}*.deb"))
    whole = pool.read_bytes()
    repository.add(bench.lab.folder / "apt", [replace(asking, scripts=ASKS)])
    try:
        text = policy.read_text(encoding="utf-8")
        policy.write_text(text + "packages: {questions: forbidden}\n", encoding="utf-8")
        refused(bench, OTHER, "packages ask questions, which the policy forbids", "nvidia-utils-580")
        policy.write_text(text, encoding="utf-8")
        said = bench.change(OTHER)
        assert said.exit_code == 0, said.out + said.err
        assert "answered by their own defaults: nvidia-utils-580" in said.out
        is_on(bench, OTHER)
        assert bench.change(OLD).exit_code == 0
    finally:
        pool.write_bytes(whole)
        repository.index(bench.lab.folder / "apt")
    is_on(bench, OLD)


def test_a_file_edited_by_hand_is_kept_or_replaced_as_the_policy_says_and_never_lost(
    bench: Bench, policy: Path
) -> None:
    (bench.node.root / CONF).write_text(EDITED, encoding="utf-8")
    said = bench.change(OTHER)
    assert said.exit_code == 0, said.out + said.err
    assert (bench.node.root / CONF).read_text(encoding="utf-8") == EDITED
    policy.write_text(policy.read_text(encoding="utf-8") + "packages: {edited_files: replace}\n", encoding="utf-8")
    said = bench.change(OLD)
    assert said.exit_code == 0, said.out + said.err
    is_on(bench, OLD)
    assert f"shipped with {OLD}" in (bench.node.root / CONF).read_text(encoding="utf-8")
    assert (bench.node.root / f"{CONF}.dpkg-old").read_text(encoding="utf-8") == EDITED


def test_a_cdi_spec_that_the_change_makes_stale_is_made_anew_or_the_node_comes_back(bench: Bench) -> None:
    spec = bench.node.root / "etc/cdi/nvidia.yaml"
    spec.parent.mkdir(parents=True, exist_ok=True)
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so"
    spec.write_text(f"containerEdits: {{mounts: [{{hostPath: {library}.{OLD} }}]}}\n", encoding="ascii")
    said = bench.change(OTHER)
    assert bench.phase() == "rolled-back", said.out + said.err
    assert "differs: cdi: was /etc/cdi/nvidia.yaml whole" in said.out
    is_on(bench, OLD)
    toolkit = bench.node.root / "usr/local/sbin/nvidia-ctk"
    made = f'echo "containerEdits: {{mounts: [{{hostPath: $(readlink -f {library}.1) }}]}}" >"${{3#--output=}}"'
    toolkit.write_text(f"#!/bin/sh\n{made}\n", encoding="ascii")
    toolkit.chmod(0o755)
    try:
        assert bench.change(OTHER).exit_code == 0
        assert f"{library}.{OTHER}" in spec.read_text(encoding="ascii")
        assert bench.change(OLD).exit_code == 0
    finally:
        toolkit.unlink()
        spec.unlink()
