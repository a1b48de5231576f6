"""A library that was upgraded alone by the node's own real apt: `muster check` names the package, the hand, the time and the log line."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from muster.loopback.fleet import LoopbackFleet
from tests.support.desk import Desk, Said, make_fleet

OLD, NEW = "570.195.03", "580.126.20"
MOVED, STILL, BY_HAND = "gpu01", "gpu02", "gpu03"
LIBRARIES = f"libcuda1={NEW}-1 libnvidia-ml1={NEW}-1"


@dataclass(frozen=True)
class Story:
    fleet: LoopbackFleet
    before: Said
    check: Said
    words: Said

    def findings(self) -> list[Mapping[str, object]]:
        listed = self.check.body["findings"]
        assert isinstance(listed, list)
        return listed

    def of(self, code: str, node: str) -> Mapping[str, object]:
        return next(each for each in self.findings() if each["code"] == code and node in _nodes(each))


def _nodes(finding: Mapping[str, object]) -> list[str]:
    nodes = finding["nodes"]
    assert isinstance(nodes, list)
    return nodes


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp("cause")
    fleet = make_fleet(place / "fleet", dict.fromkeys((MOVED, STILL, BY_HAND), OLD))
    desk = Desk(fleet.layout.folder, place / "muster.db")
    # A node that was set up package by package: what ties all versions together is not installed.
    for node in (MOVED, BY_HAND):
        assert fleet.run(node, "apt-get remove -q -y nvidia-driver-cuda nvidia-persistenced").exit_status == 0
    desk.ok("collect")
    before = desk.muster("check", "--json")
    # apt writes down how it was called; the real unattended-upgrades is a caller of apt's library with that name.
    apt = f"exec -a /usr/bin/unattended-upgrade apt-get install -q -y {LIBRARIES}"
    assert fleet.run(MOVED, f"bash -c '{apt}'").exit_status == 0
    debs = " ".join(str(fleet.layout.repository / f"{name.replace('=', '_')}_*.deb") for name in LIBRARIES.split())
    options = '--force-not-root --force-script-chrootless --log="$MUSTER_ROOT/var/log/dpkg.log"'
    assert fleet.run(BY_HAND, f'dpkg --root="$MUSTER_ROOT" {options} -i {debs}').exit_status == 0
    desk.ok("collect")
    yield Story(fleet, before, desk.muster("check", "--json"), desk.muster("check"))
    fleet.stop()


def test_before_the_upgrade_no_library_differs(story: Story) -> None:
    assert "library-is-not-loaded" not in story.before.out


def test_the_unattended_upgrade_is_named_with_package_versions_time_and_log_line(story: Story) -> None:
    cause = str(story.of("library-is-not-loaded", MOVED)["cause"])
    (mine,) = (part for part in cause.split("; ") if part.startswith(f"{MOVED}: "))
    assert re.search(rf"lib(cuda|nvidia-ml)1 {re.escape(OLD)}-1 -> {re.escape(NEW)}-1 \(and 1 more packages\)", mine)
    assert "by unattended-upgrades, at 20" in mine
    place = re.search(r"\[(apt/history\.log):(\d+): Upgrade: (\S+) \((\S+), (\S+)\)\]", mine)
    assert place, mine
    log = (story.fleet.node_root(MOVED) / "var/log" / place[1]).read_text().splitlines()
    assert log[int(place[2]) - 1].startswith("Upgrade: ")
    assert place[3] in log[int(place[2]) - 1]
    assert log[int(place[2]) - 2].startswith("Commandline: /usr/bin/unattended-upgrade")
    start = next(line for line in reversed(log[: int(place[2])]) if line.startswith("Start-Date: "))
    assert f"at {start.split()[1]} {start.split()[2]}" in mine


def test_what_dpkg_did_without_apt_is_named_as_that(story: Story) -> None:
    cause = str(story.of("library-is-not-loaded", BY_HAND)["cause"])
    (mine,) = (part for part in cause.split("; ") if part.startswith(f"{BY_HAND}: "))
    assert "by dpkg, not through apt" in mine
    place = re.search(r"\[dpkg\.log:(\d+): upgrade (\S+)", mine)
    assert place, mine
    log = (story.fleet.node_root(BY_HAND) / "var/log/dpkg.log").read_text().splitlines()
    assert f" upgrade {place[2]} " in log[int(place[1]) - 1]


def test_a_node_that_nobody_touched_has_no_such_finding(story: Story) -> None:
    assert not any(STILL in _nodes(each) and each["code"] == "library-is-not-loaded" for each in story.findings())


def test_the_cause_is_printed_for_people_too(story: Story) -> None:
    assert "cause: gpu01: lib" in story.words.out


def test_nothing_is_unknown_on_a_node_without_containers_switches_and_firmware(story: Story) -> None:
    assert not any(each["code"] == "not-judged" for each in story.findings()), story.words.out
