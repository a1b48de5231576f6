"""One node as a virtual machine for each story: real kernel, modules, dkms, initramfs, GRUB. Needs root and QEMU; skipped by name without."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.guest import Guest
from lab.packages import OPEN
from tests.support.desk import Desk, Said

OLD, NEW = "580.126.20", "595.71.05"
SAME_BRANCH = "580.95.05"
"""An older build of the branch: going to it needs no restart."""

APPLY_LIMIT_S = 3600.0
"""A change with builds and restarts takes minutes under emulation, and more on a busy machine."""


@dataclass(frozen=True)
class Bench:
    """A virtual machine with a terminal in front of it."""

    guest: Guest
    desk: Desk

    def planned(self, driver: str, kernel: str = "") -> str:
        """Look, plan and approve a change to `driver` (and `kernel`); the plan's id."""
        policy = self.guest.folder / "fleet.yaml"
        lines = policy.read_text(encoding="utf-8").splitlines(keepends=True)
        text = "".join(line for line in lines if not line.startswith("    kernel:"))
        line = next(line for line in text.splitlines() if "driver: {want:" in line)
        wanted = f"    driver: {{want: {driver}, flavour: {OPEN}}}" + (f"\n    kernel: {kernel}" if kernel else "")
        policy.write_text(text.replace(line, wanted), encoding="utf-8")
        self.desk.ok("collect")
        return self.desk.planned()

    def change(self, driver: str, kernel: str = "") -> Said:
        """Plan, approve and carry out a change, watched to its end."""
        return self.desk.muster("apply", self.planned(driver, kernel), limit_s=APPLY_LIMIT_S)

    def phase(self) -> str:
        return self.desk.phases().get(self.guest.name, "")

    def said_by_phases(self) -> str:
        """What each phase came to, for messages."""
        return self.desk.muster("rollouts", "show", "--json").out


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Makes a bench with a driver installed, held and loaded."""
    made: list[Guest] = []

    def make(driver: str = OLD) -> Bench:
        guest = Guest.up(tmp_path / "guest", driver)
        made.append(guest)
        return Bench(guest, Desk(guest.folder, tmp_path / "muster.db"))

    yield make
    for guest in made:
        guest.down()
