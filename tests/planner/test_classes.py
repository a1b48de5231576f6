"""Node classes: what matters to the driver makes them, and a package carries a driver by its upstream version."""

import pytest

from muster.backends.packages.apt import BACKEND as APT
from muster.model.fact import Unknown
from muster.planner.classes import NEEDED, carries, node_class, unknown_facts
from tests.support.planning import GOOD, OLD, seen


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("580.126.20-1", True), ("2:580.126.20-0ubuntu1", True), ("580.126.20", True), ("580.126.20-1+site1", True),
        ("580.126.2-1", False), ("580.126.200-1", False), ("1580.126.20-1", False), ("", False),
    ],
)  # fmt: skip
def test_a_package_carries_a_driver_by_its_upstream_version(version: str, fits: bool) -> None:
    assert carries(version, "580.126.20") == fits
    assert not carries(version, "")


def test_nodes_that_differ_in_nothing_that_matters_are_of_one_class() -> None:
    one = node_class(seen("a", {"holder.pids": ("1",), "root_fs.kind": "xfs"}), (APT,))
    assert one is not None
    assert one == node_class(seen("b", {}), (APT,))
    assert {pin.version for pin in one.packages} == {f"{OLD}-1"}


@pytest.mark.parametrize("path", NEEDED)
def test_a_node_of_which_a_needed_fact_is_unknown_has_no_class(path: str) -> None:
    facts = seen("a", {path: Unknown("no answer")})
    assert node_class(facts, (APT,)) is None
    assert unknown_facts(facts) == (f"{path} (no answer)",)


def test_a_node_whose_packages_could_not_be_read_has_no_class() -> None:
    gone = {path: None for path in GOOD if path.startswith("package[")}
    facts = seen("a", {**gone, "package[*].version": Unknown("dpkg-query: no answer")})
    assert node_class(facts, (APT,)) is None
    assert unknown_facts(facts) == ("the installed packages (dpkg-query: no answer)",)


def test_a_node_that_no_package_manager_serves_has_no_class() -> None:
    assert node_class(seen("a", {}), ()) is None
