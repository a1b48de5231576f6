"""What is dnf's alone, beyond the contract: names that change, module streams, signatures, scripts that fail, cuts, repairs. Real dnf and rpm.

The repositories are of self-made RPMs (see `tests/support/rpms.py`), the programs Debian's builds of dnf 4 and rpm: no EL distribution is meant.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from muster.backends._dnf_sh import COMMON, HELD, WAIT
from muster.backends.packages.dnf import BACKEND as DNF
from muster.control.bootstrap import package_managers
from muster.knowledge.loader import load
from muster.model.fact import Fact
from muster.model.policy import Holds, Packages
from muster.model.stack import PackagePin
from muster.node import settings
from muster.planner.standing import Judge, Way
from muster.ports import PackageHolds, PackageRepairs, RuledPackages
from muster.solver.carried import carried
from tests.support import rpm_nodes, rpms
from tests.support.package_nodes import BAD, DNF_PROGRAMS, KEEP, NEW, OLD, DnfNode, facts_of
from tests.support.planning import PACKAGES, answer, pool, seen
from tests.support.values import T0

pytestmark = pytest.mark.lab(*DNF_PROGRAMS)

LIMIT_S = 300
BIG, FORBIDDEN = "580.142.01", "580.150.02"
STREAM = "@nvidia-driver"
EXTRA = "nvidia-extra-570"
"""A package that leaves with the branch, and that nothing of the new branch takes the place of."""

_EXTRA = f"""\
Name: {EXTRA}
Epoch: 3
Version: {OLD}
Release: 1.el9
Summary: stand-in
License: MIT
%description
stand-in
%files
"""

_KERNEL = """\
Name: kernel-core
Version: 5.14.0
Release: 427.el9
Summary: stand-in
License: MIT
%description
stand-in
%files
"""

_SITE = f"""\
Name: site-monitor
Version: 1
Release: 1
Summary: a package of the site's that needs one of the driver's
License: MIT
Requires: {rpms.KMOD}
%description
stand-in
%files
"""


@dataclass(frozen=True)
class Bench:
    """Repositories by name, and nodes on the old driver that take one of them."""

    nodes: rpm_nodes.RpmNodes
    shelf: Path
    url: str
    numbers: Iterator[int]

    def node(self, repository: str = "plain", more: str = "") -> DnfNode:
        node = DnfNode(self.nodes, f"el{next(self.numbers)}")
        self.nodes.add(node.name)
        text = rpms.repo_file(f"{self.url}/{repository}", more)
        (node.root / "etc/yum.repos.d/cuda.repo").write_text(text, encoding="utf-8")
        return node


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("dnf")
    made, stranger = rpms.workshop(folder / "ours"), rpms.workshop(folder / "theirs")
    shelf, place = folder / "shelf", folder / "nodes"
    place.mkdir()
    releases = (
        rpms.Release(OLD),
        rpms.Release(BAD, builds=False),
        rpms.Release(NEW),
        rpms.Release(BIG, padding=1 << 20),
        rpms.Release(FORBIDDEN, allowed=False),
    )
    rpms.build(made, shelf / "plain", releases, signed=False)
    for name, text in ((EXTRA, _EXTRA), ("site-monitor", _SITE), ("kernel-core", _KERNEL)):
        rpms.build_spec(made, shelf / "plain", name, text)
    shutil.copytree(shelf / "plain", shelf / "unsigned")
    rpms.sign(made, (shelf / "plain").glob("*.rpm"))
    for path in (shelf / "plain").glob(f"*{OLD}*.rpm"):
        shutil.copy(path, shelf / "unsigned")
    for name in ("foreign", "modular", "torn", "lost"):
        shutil.copytree(shelf / "plain", shelf / name)
    rpms.sign(stranger, (shelf / "foreign").glob(f"libnvidia-ml-{NEW}-*.rpm"))
    for path in (shelf / "lost").glob(f"libnvidia-ml-{OLD}-*.rpm"):
        path.unlink()
    for each in shelf.iterdir():
        streams = (
            rpms.stream("570-open", (OLD,)) + rpms.stream("580-open", (BAD, NEW)) if each.name == "modular" else ""
        )
        rpms.index(made, each, streams)
        shutil.copy(made.key, each / "key.asc")
    torn = next((shelf / "torn").glob(f"libnvidia-ml-{NEW}-*.rpm"))
    torn.write_bytes(torn.read_bytes()[:-30] + bytes(30))
    with rpms.served(shelf) as url, rpm_nodes.rpm_nodes(place) as nodes:
        wanted = " ".join(f"{member}-{rpms.version_of(member, OLD)}" for member in rpms.MEMBERS)
        text = rpms.repo_file(f"{url}/plain")
        nodes.template(f"cat >/etc/yum.repos.d/cuda.repo <<'END'\n{text}END\ndnf -yq install {wanted}\n")
        yield Bench(nodes, shelf, url, iter(range(1, 1000)))


def done(node: DnfNode, text: str) -> str:
    said = node.sh(text)
    assert said.exit_status == 0, said.stdout + said.stderr
    return said.stdout


def refused(node: DnfNode, text: str) -> str:
    """What a text says that must not keep its promise, and must change no package."""
    before = node.states()
    said = node.sh(text)
    assert said.exit_status != 0, said.stdout
    assert node.states() == before
    return said.stdout


def ready(node: DnfNode, wanted: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> None:
    done(node, DNF.fetch(wanted, back, KEEP))
    done(node, DNF.save(back, KEEP))


def versions(node: DnfNode) -> Mapping[str, str]:
    return {name: state.version for name, state in node.states().items()}


def as_versions(pins: tuple[PackagePin, ...]) -> Mapping[str, str]:
    return {pin.name: pin.version for pin in pins if not pin.name.startswith("@")}


def closed(pins: tuple[PackagePin, ...]) -> tuple[PackagePin, ...]:
    """The same stack with the proprietary module."""
    return tuple(sorted(PackagePin(rpms.KMOD_CLOSED, pin.version) if pin.name == rpms.KMOD else pin for pin in pins))


def test_names_that_leave_and_names_that_come_are_one_transaction_there_and_one_back(bench: Bench) -> None:
    node = bench.node()
    done(node, f"dnf -yq install {EXTRA}")
    old = tuple(sorted((*node.pins(OLD), PackagePin(EXTRA, f"3:{OLD}-1.el9"))))
    new = closed(node.pins(NEW))
    done(node, DNF.preflight(new, old))
    ready(node, new, old)
    before = node.changes()
    done(node, DNF.install(new, old))
    assert versions(node) == as_versions(new)
    assert node.changes() == before + 1
    done(node, DNF.restore(old, KEEP, new))
    assert versions(node) == as_versions(old)
    assert node.changes() == before + 2


def test_a_package_of_the_sites_that_would_go_along_stops_the_change(bench: Bench) -> None:
    node = bench.node()
    done(node, "dnf -yq install site-monitor")
    said = refused(node, DNF.preflight(closed(node.pins(NEW)), node.pins(OLD)))
    assert "the change would remove packages: site-monitor" in said


def test_a_way_back_that_the_repository_has_lost_is_named_before_anything_is_fetched(bench: Bench) -> None:
    node = bench.node("lost")
    said = refused(node, DNF.preflight(node.pins(NEW), node.pins(OLD)))
    assert said.splitlines()[-1] == f"no way back: the repository has lost libnvidia-ml=3:{OLD}-1.el9"


def test_another_release_of_the_same_driver_is_named(bench: Bench) -> None:
    node = bench.node()
    wanted = tuple(PackagePin(pin.name, pin.version.replace("-1", "-7")) for pin in node.pins(NEW))
    assert f"of that version there is 3:{NEW}-1.el9" in refused(node, DNF.preflight(wanted, node.pins(OLD)))


def test_a_module_stream_moves_with_the_packages_that_it_hides_and_comes_back(bench: Bench) -> None:
    node = bench.node("modular")
    done(node, "dnf -yq module enable nvidia-driver:570-open")
    old = tuple(sorted((*node.pins(OLD), PackagePin(STREAM, "570-open"))))
    new = tuple(sorted((*node.pins(NEW), PackagePin(STREAM, "580-open"))))
    assert DNF.installed(facts_of(node))[STREAM] == "570-open"
    assert "580.126.20" not in done(node, "dnf -q repoquery libnvidia-ml")
    done(node, DNF.preflight(new, old))
    ready(node, new, old)
    assert DNF.installed(facts_of(node))[STREAM] == "570-open"
    done(node, DNF.install(new, old))
    assert versions(node) == as_versions(new)
    assert DNF.installed(facts_of(node))[STREAM] == "580-open"
    done(node, DNF.restore(old, KEEP, new))
    assert versions(node) == as_versions(old)
    assert DNF.installed(facts_of(node))[STREAM] == "570-open"


@pytest.mark.parametrize(
    ("repository", "more", "when", "words"),
    [
        ("plain", "repo_gpgcheck=1\n", "preflight", "the repository cannot be read"),
        ("away", "", "preflight", "the repository cannot be read"),
        ("unsigned", "", "fetch", "not signed"),
        ("unsigned", "gpgcheck=0\n", "fetch", "not signed"),
        ("foreign", "", "fetch", "libnvidia-ml"),
        ("torn", "", "fetch", "libnvidia-ml"),
    ],
    ids=["index-unsigned", "repository-away", "unsigned", "check-switched-off", "signed-by-a-stranger", "torn"],
)
def test_what_cannot_be_trusted_is_named_before_anything_is_changed(
    bench: Bench, repository: str, more: str, when: str, words: str
) -> None:
    node = bench.node(repository, more)
    pins, back = node.pins(NEW), node.pins(OLD)
    if when == "fetch":
        done(node, DNF.preflight(pins, back))
    said = refused(node, DNF.preflight(pins, back) if when == "preflight" else DNF.fetch(pins, back, KEEP))
    assert words in said.splitlines()[-1], said


def test_a_script_of_a_package_that_fails_is_named_and_is_no_success(bench: Bench) -> None:
    node = bench.node()
    ready(node, node.pins(BAD), node.pins(OLD))
    said = node.sh(DNF.install(node.pins(BAD), node.pins(OLD)))
    assert said.exit_status != 0
    telling = [line for line in said.stdout.splitlines() if line.startswith("E:")]
    assert telling[0] == f"E: the script %post of {rpms.KMOD}-3:{BAD}-1.el9.x86_64 failed with exit status 10"
    facts = facts_of(node)
    assert DNF.broken(facts) == (rpms.KMOD,)
    assert rpms.KMOD not in DNF.installed(facts)


def test_no_script_of_a_package_starts_a_daemon(bench: Bench) -> None:
    node = bench.node()
    ready(node, node.pins(NEW), node.pins(OLD))
    (node.root / "var/tmp/daemons").unlink()
    done(node, DNF.install(node.pins(NEW), node.pins(OLD)))
    done(node, DNF.restore(node.pins(OLD), KEEP, node.pins(NEW)))
    assert set((node.root / "var/tmp/daemons").read_text(encoding="utf-8").split("\n")) == {"offline 1", ""}


def test_what_is_planned_from_a_nodes_own_facts_is_what_its_texts_carry_out(bench: Bench) -> None:
    """The GPUs are pretended; packages, repository and system are the node's own."""
    node = bench.node()
    told = facts_of(node, "dpkg", "repository", "upgrades", "transactions").facts
    pretended = seen(
        "el", {f"package[{name}].{what}": None for name in PACKAGES for what in ("version", "state", "hold")}
    )
    system = {path: Fact(path, value, "system", T0) for path, value in (("os.id", "rocky"), ("os.version", "9.4"))}
    facts = replace(pretended, facts={**pretended.facts, **{path: told[path] for path in told}, **system})
    managers = tuple(package_managers().values())
    way = Judge([pool("train", want=NEW)], managers, answer, partial(carried, base=load()))(facts, "train")
    assert isinstance(way, Way), way
    assert (way.step.manager, way.step.packages, way.step.back) == ("dnf", node.pins(NEW), node.pins(OLD))
    done(node, DNF.preflight(way.step.packages, way.step.back))
    ready(node, way.step.packages, way.step.back)
    done(node, DNF.install(way.step.packages, way.step.back))
    now = facts_of(node)
    wanted = [each for each in way.step.done_when if each.path.startswith("package")]
    assert [each.path for each in wanted if now.text(each.path) != each.value] == []
    assert all(now.value(f"package[{pin.name}].hold") is True for pin in way.step.packages)
    (newest,) = facts_of(node, "transactions").members("transaction")[-1:]
    assert newest


def test_a_file_that_a_package_ships_is_not_taken_for_one_that_was_edited_by_hand(bench: Bench) -> None:
    node = bench.node()
    (node.root / "etc/modprobe.d/site.conf").write_text("options nvidia NVreg_EnableGpuFirmware=1\n", encoding="utf-8")
    ready(node, node.pins(NEW), node.pins(OLD))
    done(node, settings.save(KEEP))
    edited = node.root / KEEP.lstrip("/") / "before/edited"
    assert [line.split()[0] for line in edited.read_text(encoding="utf-8").splitlines()] == [
        "/etc/modprobe.d/site.conf"
    ]
    done(node, DNF.install(node.pins(NEW), node.pins(OLD)))
    done(node, settings.give_back(KEEP))


def test_a_script_that_forbids_its_package_leaves_the_others_for_the_way_back(bench: Bench) -> None:
    node = bench.node()
    ready(node, node.pins(FORBIDDEN), node.pins(OLD))
    said = node.sh(DNF.install(node.pins(FORBIDDEN), node.pins(OLD)))
    assert said.exit_status != 0
    telling = [line for line in said.stdout.splitlines() if line.startswith("E:")]
    assert telling[0].startswith("E: the script %pre")
    done(node, DNF.restore(node.pins(OLD), KEEP, node.pins(FORBIDDEN)))
    assert versions(node) == as_versions(node.pins(OLD))
    assert node.audit() == ""


def test_locks_of_other_packages_and_the_sites_own_lines_stay(bench: Bench) -> None:
    node = bench.node()
    node.hold("bash")
    node.hold("libnvidia-ml")
    listed = node.root / "etc/dnf/plugins/versionlock.list"
    listed.write_text(listed.read_text(encoding="utf-8") + "!kernel-core-5.14.0-1.*\n# by hand\n", encoding="utf-8")
    before = node.locks()
    ready(node, node.pins(NEW), node.pins(OLD))
    done(node, DNF.install(node.pins(NEW), node.pins(OLD)))
    ours = {f"{pin.name}-{pin.version if ':' in pin.version else '0:' + pin.version}.*" for pin in node.pins(NEW)}
    assert set(node.locks()) - ours == {"bash-0:5.1.8-9.el9.*", "!kernel-core-5.14.0-1.*"}
    assert ours < set(node.locks())
    assert "# by hand" in listed.read_text(encoding="utf-8")
    assert "already" in done(node, f"dnf -y upgrade libnvidia-ml-3:{BIG}-1.el9 2>&1 || echo already held")
    assert versions(node) == as_versions(node.pins(NEW))
    done(node, DNF.restore(node.pins(OLD), KEEP, node.pins(NEW)))
    assert set(node.locks()) == set(before)


def test_the_kernel_is_locked_with_the_driver_where_the_policy_holds_it(bench: Bench) -> None:
    node = bench.node()
    done(node, "dnf -yq install kernel-core")
    ours = {f"{pin.name}-{pin.version if ':' in pin.version else '0:' + pin.version}.*" for pin in node.pins(OLD)}
    for holds, also in ((Holds(kernel=False), set()), (Holds(), {"kernel-core-0:5.14.0-427.el9.*"})):
        manager = DNF.under(Packages(), holds) if isinstance(DNF, RuledPackages) else DNF
        assert isinstance(manager, PackageHolds)
        for _ in range(2):
            done(node, manager.hold(node.pins(OLD)))
        assert set(node.locks()) == ours | also
        assert len(node.locks()) == len(set(node.locks()))
    assert all(facts_of(node).value(f"package[{name}].hold") is True for name in (*node.members, "kernel-core"))


def test_who_holds_the_database_for_too_long_is_named_and_nothing_is_killed(bench: Bench) -> None:
    node = bench.node()
    with node.busy(6):
        said = node.sh(f"{COMMON}{WAIT}wait_for_rpm 1\n")
        assert said.exit_status == HELD
        assert "is held by process" in said.stdout
        assert "python3" in said.stdout


def test_a_full_disk_is_named_before_the_first_package_is_touched(bench: Bench) -> None:
    node = bench.node()
    wanted = node.pins(BIG)
    node.sh("mkdir -p /var/lib/muster && mount -t tmpfs -o size=2m full /var/lib/muster")
    assert "KiB free; the packages and the way back need" in refused(node, DNF.preflight(wanted, node.pins(OLD)))
    node.sh("umount /var/lib/muster")
    ready(node, wanted, node.pins(OLD))
    node.sh(
        "cp -a /usr/share/nvidia /var/tmp/kept && mount -t tmpfs -o size=1m full /usr/share/nvidia && cp -a /var/tmp/kept/. /usr/share/nvidia/"
    )
    said = refused(node, DNF.install(wanted, node.pins(OLD)))
    assert any(line.startswith("E:") and "space" in line for line in said.splitlines()), said


def test_a_damaged_database_is_named_and_left_to_a_person(bench: Bench) -> None:
    node = bench.node()
    database = node.root / "var/lib/rpm/rpmdb.sqlite"
    database.write_bytes(b"no database at all" * 300)
    for text in (DNF.preflight(node.pins(NEW), node.pins(OLD)), DNF.install(node.pins(NEW), node.pins(OLD))):
        said = node.sh(text)
        assert said.exit_status != 0
        assert "rpm's database cannot be read" in said.stdout
    assert database.read_bytes().startswith(b"no database")


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


def cut_short(node: DnfNode, wanted: tuple[PackagePin, ...]) -> None:
    """The change is killed while the script of the module's package runs: new packages are laid down, old ones not yet taken away."""
    (node.root / "var/tmp/slow").write_text("600", encoding="ascii")
    (node.root / "var/tmp/install").write_text(DNF.install(wanted, node.pins(OLD)), encoding="utf-8")
    with node.nodes.begin(node.name, ["env", "MUSTER_ROOT=", "sh", "/var/tmp/install"]) as change:
        until(lambda: node.sh("pgrep -x -f 'sleep 600'").exit_status == 0)
        node.sh("pkill -KILL -x dnf; pkill -KILL -f 'sleep [6]00'; pkill -KILL -f /var/tmp/[i]nstall")
        change.wait(LIMIT_S)
    (node.root / "var/tmp/slow").unlink()


def damage(node: DnfNode) -> None:
    """A file of a package that was cut off in mid-unpack: another version's, and the database says nothing of it."""
    (node.root / "usr/share/nvidia/nvidia-persistenced").write_text("half of another version", encoding="utf-8")


def test_a_change_that_is_cut_short_shows_in_the_facts_and_goes_back_whole(bench: Bench) -> None:
    node = bench.node()
    ready(node, node.pins(NEW), node.pins(OLD))
    cut_short(node, node.pins(NEW))
    damage(node)
    assert DNF.broken(facts_of(node)) != ()
    done(node, DNF.restore(node.pins(OLD), KEEP, node.pins(NEW)))
    assert versions(node) == as_versions(node.pins(OLD))
    assert DNF.broken(facts_of(node)) == ()
    assert node.audit() == ""


def test_a_broken_node_is_repaired_from_what_was_kept_and_from_the_repository(bench: Bench) -> None:
    assert isinstance(DNF, PackageRepairs)
    node, keep = bench.node("lost"), "/var/lib/muster/node/restore/run-2"
    now = node.pins(OLD)
    said = refused(node, DNF.repair_preflight(node.pins(OLD), now))
    assert f"cannot be had, neither from the repository nor from what was kept here: libnvidia-ml=3:{OLD}-1.el9" in said
    (node.root / KEEP.lstrip("/")).mkdir(parents=True)
    shutil.copy(next((bench.shelf / "plain").glob(f"libnvidia-ml-{OLD}-*.rpm")), node.root / KEEP.lstrip("/"))
    damage(node)
    node.sh("rpm -e --nodeps nvidia-modprobe")
    done(node, DNF.repair_preflight(node.pins(OLD), now))
    done(node, DNF.gather(node.pins(OLD), keep))
    done(node, DNF.save(node.pins(OLD), keep))
    for _ in range(2):
        done(node, DNF.repair(node.pins(OLD), now, keep))
    assert {name: (state.version, state.held, state.whole) for name, state in node.states().items()} == {
        pin.name: (pin.version, True, True) for pin in node.pins(OLD)
    }
    assert node.audit() == ""
