"""A kernel that moves with the driver: its packages are named after the running one's, and it is part of what a step expects and proves."""

from collections.abc import Mapping

import pytest

from muster.model.fact import FactValue
from muster.model.plan import KernelMove, Step, WaitingOn, plan_body
from muster.model.plan_form import plan_from_body
from muster.model.policy import KernelPolicy
from muster.model.stack import PackagePin
from muster.model.versions.kernel import KernelVersion
from muster.planner.lint import lint
from muster.planner.propose import propose
from muster.planner.words import lines
from tests.support.planning import NEW, OLD, carrying, given, node, policy, pool, seen

RUNS, WANTED = "6.1.0-18-amd64", "6.1.0-21-amd64"
VERSION = "6.1.90-1"


def kernel_packages(names: Mapping[str, str]) -> Mapping[str, FactValue]:
    found: dict[str, FactValue] = {}
    for name, version in names.items():
        found |= {f"package[{name}].version": version, f"package[{name}].state": "installed"}
    return found


DEBIAN = kernel_packages(
    {
        f"linux-image-{RUNS}": "6.1.76-1", f"linux-headers-{RUNS}": "6.1.76-1", "linux-headers-6.1.0-18-common": "6.1.76-1",
        "linux-kbuild-6.1": "6.1.76-1", "linux-image-amd64": "6.1.76-1",
    }
)  # fmt: skip


def wish(want: str = WANTED) -> KernelPolicy:
    return KernelPolicy(KernelVersion.parse(want), VERSION)


def planned(facts: Mapping[str, FactValue], want: str = WANTED, driver: str = NEW) -> Step | str:
    wanted = policy(pool("train", kernel=wish(want), want=driver))
    nodes = [node("n1")]
    plan = propose(given(nodes, {"n1": seen("n1", facts)}, wanted))
    if not plan.nodes:
        (left,) = plan.left_out
        return f"{left.on.value}: {left.detail}"
    assert [note for note in lint(plan) if note.severity == "fatal"] == []
    assert plan_from_body(plan_body(plan)).id == plan.id
    assert any(f"from {RUNS} to {want}" in line for line in lines(plan, (), 0))
    return plan.nodes[0].step


def test_a_kernel_comes_in_the_packages_of_the_running_one_under_its_own_name() -> None:
    step = planned(DEBIAN)
    assert isinstance(step, Step)
    new = (f"linux-headers-{WANTED}", "linux-headers-6.1.0-21-common", f"linux-image-{WANTED}")
    assert step.kernel == KernelMove(RUNS, WANTED, tuple(PackagePin(name, VERSION) for name in sorted(new)))
    assert step.restart == "reboot"
    assert {each.path: each.value for each in step.expects}["kernel.running"] == RUNS
    done = {each.path: each.value for each in step.done_when}
    assert done["kernel.running"] == WANTED
    assert done[f"package[linux-image-{WANTED}].version"] == VERSION


def test_tools_that_would_be_older_than_the_headers_move_with_them_and_come_back() -> None:
    step = planned(DEBIAN)
    assert isinstance(step, Step)
    assert PackagePin("linux-kbuild-6.1", VERSION) in step.packages
    assert PackagePin("linux-kbuild-6.1", "6.1.76-1") in step.back
    newer = planned({**DEBIAN, "package[linux-kbuild-6.1].version": "6.1.99-1"})
    assert isinstance(newer, Step)
    assert "linux-kbuild-6.1" not in {pin.name for pin in newer.incoming}


def test_a_kernel_that_is_installed_already_is_not_called_new_and_is_not_removed_on_the_way_back() -> None:
    there = kernel_packages({f"linux-image-{WANTED}": VERSION, f"linux-headers-{WANTED}": VERSION})
    step = planned({**DEBIAN, **there})
    assert isinstance(step, Step)
    assert step.kernel is not None
    assert [pin.name for pin in step.kernel.packages] == ["linux-headers-6.1.0-21-common"]
    assert f"linux-image-{WANTED}" not in step.coming


def test_the_driver_may_stay_where_only_the_kernel_moves_and_nothing_is_done_where_both_are_there() -> None:
    step = planned({**DEBIAN, **carrying(NEW)})
    assert isinstance(step, Step)
    assert (step.from_driver, step.to_driver, step.restart) == (NEW, NEW, "reboot")
    assert planned({**DEBIAN, **carrying(NEW)}, want=RUNS) == f"{WaitingOn.NOTHING_TO_DO.value}: already runs {NEW}"


def test_a_node_whose_kernel_no_package_carries_is_left_out_by_name() -> None:
    said = planned({})
    assert isinstance(said, str)
    assert f"no installed package carries the running kernel {RUNS}" in said


@pytest.mark.parametrize("driver", [OLD, NEW])
def test_a_pool_without_a_kernel_keeps_every_step_as_it_was(driver: str) -> None:
    plan = propose(given([node("n1")], {"n1": seen("n1", {**DEBIAN, **carrying(driver)})}, policy(pool("train"))))
    for part in plan.nodes:
        assert part.step.kernel is None
        assert all(each.path != "kernel.running" for each in part.step.expects)
