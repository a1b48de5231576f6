"""Fleets that the tests of this folder share; a test that changes a node has a node of its own."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.tools import require_tools
from muster.model.errors import MissingTool

WAIT_S = 300.0


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip by name where apt and dpkg are not to be had, such as on a Fedora."""
    try:
        require_tools()
    except MissingTool as missing:
        pytest.skip(missing.message)


Until = Callable[[Callable[[], bool]], None]


@pytest.fixture
def until() -> Until:
    """Waits for what another process does, with a bound."""

    def wait(holds: Callable[[], bool]) -> None:
        limit = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < limit, "waited too long"
            time.sleep(0.02)

    return wait


@pytest.fixture(scope="session")
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoopbackFleet:
    """A fleet without a server: its nodes are worked on through their environment alone. gpu01 and gpu02 are never changed.

    There is one more for each test that changes one, whichever of them this process gets to run.
    """
    count = 2 + sum("untouched" in getattr(item, "fixturenames", ()) for item in request.session.items)
    return LoopbackFleet.create(tmp_path_factory.mktemp("still") / "fleet", nodes=count, initial=_all_old(count))


@pytest.fixture(scope="session")
def untouched(fleet: LoopbackFleet) -> Iterator[str]:
    """Names of nodes that no test has changed yet."""
    return iter(fleet.names[2:])


@pytest.fixture
def node(untouched: Iterator[str]) -> str:
    """A node of the test's own."""
    return next(untouched)


@pytest.fixture(scope="session")
def served_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackFleet]:
    """A fleet of four nodes behind SSH."""
    folder: Path = tmp_path_factory.mktemp("served") / "fleet"
    fleet = LoopbackFleet.create(folder, nodes=4)
    fleet.start()
    yield fleet
    fleet.stop()


def _all_old(count: int) -> dict[str, str]:
    return {f"gpu{index:02d}": "570.195.03" for index in range(1, count + 1)}
