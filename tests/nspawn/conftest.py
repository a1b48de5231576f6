"""One node as a container for each story: own systemd, sshd, apt and dpkg, a signed repository. Needs root; skipped by name without."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.fleet import Lab
from lab.node import LabNode
from lab.packages import OPEN
from tests.support.desk import Desk, Said

OLD = "580.126.20"


@dataclass(frozen=True)
class Bench:
    """A laboratory of one node with a terminal in front of it."""

    lab: Lab
    desk: Desk

    @property
    def node(self) -> LabNode:
        return self.lab.nodes[0]

    def planned(self, driver: str, flavour: str = OPEN) -> str:
        """Look, plan and approve a change to `driver`; the plan's id."""
        policy = self.lab.folder / "fleet.yaml"
        text = policy.read_text(encoding="utf-8")
        line = next(line for line in text.splitlines() if "driver: {want:" in line)
        policy.write_text(text.replace(line, f"    driver: {{want: {driver}, flavour: {flavour}}}"), encoding="utf-8")
        self.desk.ok("collect")
        return self.desk.planned()

    def change(self, driver: str, flavour: str = OPEN) -> Said:
        """Plan, approve and carry out a change to `driver`, watched to its end."""
        return self.desk.muster("apply", self.planned(driver, flavour))

    def phase(self) -> str:
        return self.desk.phases().get(self.node.name, "")

    def transactions(self) -> list[tuple[str, ...]]:
        """(action, package, old, new) of every change that the node's own dpkg logged."""
        lines = (self.node.root / "var/log/dpkg.log").read_text(encoding="utf-8").splitlines()
        rows = (tuple(line.split()[2:]) for line in lines)
        return [row for row in rows if len(row) == 4 and row[0] in ("install", "upgrade", "remove", "purge")]


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Makes a bench with a driver installed and held."""
    made: list[Lab] = []

    def make(driver: str = OLD, flavour: str = OPEN) -> Bench:
        lab = Lab.up(tmp_path / "lab")
        made.append(lab)
        lab.install(lab.nodes[0], driver, flavour)
        return Bench(lab, Desk(lab.folder, tmp_path / "muster.db"))

    yield make
    for lab in made:
        lab.down()
