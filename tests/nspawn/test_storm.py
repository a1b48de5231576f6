"""One change is one package transaction on real machines too: fifty kills of carrier, wrapper and connection, counted in dpkg.log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from lab.fleet import Lab
from lab.packages import OPEN, RELEASES, names
from lab.tools import PROGRAMS
from muster.loopback.observe import Transition, transitions
from tests.support.desk import Desk
from tests.support.storm import Storm, faults

OLD, NEW = "580.126.20", "595.71.05"
NODES, KILLS, SEED = 2, 50, 20261201
SOURCES = {release.version: release for release in RELEASES}

pytestmark = [pytest.mark.slow, pytest.mark.lab(*PROGRAMS), pytest.mark.xdist_group("nspawn")]


@dataclass
class Containers:
    """A laboratory as a world."""

    lab: Lab

    @property
    def names(self) -> Sequence[str]:
        return [node.name for node in self.lab.nodes]

    def log(self, node: str) -> tuple[Transition, ...]:
        kept = transitions(next(each for each in self.lab.nodes if each.name == node).root)
        # What is purged after its removal goes in two lines of the log; what comes again over settings that were left names
        # their version as its old one.
        return tuple(
            replace(each, old="<none>") if each.action == "install" else each for each in kept if each.action != "purge"
        )

    def kill_wrapper(self, node: str) -> bool:
        return self._sh(
            node, 'pid=$(pgrep -f \'^[^ ]*sh [^ ]*/wrapper \' | head -n 1); [ -n "$pid" ] && kill -9 "$pid"'
        )

    def cut(self, node: str) -> bool:
        return self._sh(node, "pids=$(pgrep -f '^sshd: root'); [ -n \"$pids\" ] && kill -9 $pids")

    def look_after(self) -> None:
        for node in self.names:
            self._sh(node, "rm -f /var/lib/muster/node/restarts")

    def _sh(self, node: str, text: str) -> bool:
        return next(each for each in self.lab.nodes if each.name == node).sh(text).exit_status == 0


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Storm]]:
    place = tmp_path_factory.mktemp("storm")
    lab = Lab.up(place / "lab", nodes=NODES)
    try:
        for node in lab.nodes:
            lab.install(node, OLD)
        found = Storm(Desk(lab.folder, place / "muster.db"), Containers(lab), (OLD, NEW), KILLS, SEED)
        found.rage()
        yield lab, found
    finally:
        lab.down()


def members(driver: str) -> Mapping[str, str]:
    return dict.fromkeys(names(SOURCES[driver], OPEN).all, SOURCES[driver].package_version)


def test_under_fifty_kills_each_change_is_one_transaction(storm: tuple[Lab, Storm]) -> None:
    _, found = storm
    assert found.delivered.total() >= KILLS
    assert set(found.delivered) == {"carrier", "wrapper", "connection"}, found.delivered
    assert faults(found, members) == []


def test_after_fifty_kills_every_node_is_whole_and_nobody_holds_it(storm: tuple[Lab, Storm]) -> None:
    lab, _ = storm
    for node in lab.nodes:
        truth = node.truth()
        assert truth["loaded"] == truth["library"] == truth["disk"], truth
        assert (truth["audit"], truth["lease"]) == ("", ""), truth
        assert truth["packages"].split() == [f"{name}={version}" for name, version in members(truth["loaded"]).items()]
