"""Laws of `status`, `nodes` and `facts`: any fact chooses and groups, and what is unknown is never taken for different."""

from pathlib import Path

import pytest

from muster.model.fact import Unknown
from tests.support.desk import Desk
from tests.support.planning import carrying, seen
from tests.support.shelf import FLEET, NEW, OLD, made_now, put, shelf


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return shelf(tmp_path_factory.mktemp("shelf"))


def names(desk: Desk, *words: str) -> list[str]:
    said = desk.here("nodes", "list", *words, "--json")
    assert said.exit_code == 0, said.err
    assert isinstance(said.data, list)
    return [row["node"] for row in said.data]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["gpu.product=H100*"], ["n1"]),
        (["gpu.product=nvidia a100*"], ["n2"]),
        (["gpu.product!=H100*"], ["n2"]),
        (["gpu.product=unknown"], ["n3", "n4"]),
        (["gpu.product!=unknown"], ["n1", "n2"]),
        (["module.nvidia.loaded_version=570.*"], ["n1", "n2"]),
        (["module.nvidia.loaded_version=570"], []),
        (["gpu[*].ecc.mode=Disabled"], ["n1"]),
        (["gpu[GPU-c].ecc.mode=Enabled"], ["n2"]),
        (["lease.held=false"], ["n1", "n2", "n3"]),
        (["label.rack=r2"], ["n2", "n3"]),
        (["label.rack=r2", "gpu.product=*"], ["n2"]),
        (["pool=inference"], ["n3", "n4"]),
        (["health=unknown"], ["n4"]),
        (["gpu.count=8", "pool!=train"], ["n3"]),
    ],
)
def test_nodes_are_chosen_by_any_fact_and_all_conditions_must_hold(
    desk: Desk, where: list[str], expected: list[str]
) -> None:
    words = [word for each in where for word in ("--where", each)]
    assert names(desk, *words) == expected


def test_how_many_nodes_could_not_be_judged_is_said(desk: Desk) -> None:
    said = desk.here("status", "--where", "gpu.product!=H100*")
    assert "gpu.product is unknown on 2 nodes, which are left out" in said.err


def test_a_pool_is_chosen_by_its_name_and_a_wrong_name_is_refused_with_the_nearest(desk: Desk) -> None:
    assert names(desk, "--pool", "train") == ["n1", "n2"]
    said = desk.here("status", "--pool", "trian", "--json")
    assert said.exit_code == 3
    assert "train" in str(said.body["hint"])


@pytest.mark.parametrize("words", [("--where", "gpu.prodct=x"), ("--by", "gpu.prodct")])
def test_a_fact_that_nothing_knows_is_refused_with_the_nearest(desk: Desk, words: tuple[str, str]) -> None:
    said = desk.here("status", *words, "--json")
    assert said.exit_code == 3
    assert "gpu.product" in str(said.body["hint"])


def test_a_condition_without_a_value_is_refused_with_its_form(desk: Desk) -> None:
    said = desk.here("status", "--where", "gpu.product", "--json")
    assert said.exit_code == 3
    assert "PATH=PATTERN" in str(said.body["hint"])


def test_a_source_that_no_node_answered_yet_can_be_asked_for(desk: Desk) -> None:
    assert names(desk, "--where", "gpu[*].vbios=96*") == []


def test_the_fleet_is_grouped_by_any_fact(desk: Desk) -> None:
    said = desk.here("status", "--by", "label.rack", "--by", "module.nvidia.loaded_version", "--json")
    groups = said.body["groups"]
    assert isinstance(groups, list)
    assert [(g["label.rack"], g["module.nvidia.loaded_version"], g["names"]) for g in groups] == [
        ("r1", OLD, ["n1"]), ("r2", OLD, ["n2"]), ("r2", NEW, ["n3"]), ("unknown", "unknown", ["n4"]),
    ]  # fmt: skip
    said = desk.here("status", "--by", "gpu[*].ecc.mode", "--where", "node=n1", "--json")
    assert isinstance(said.body["groups"], list)
    assert said.body["groups"][0]["gpu[*].ecc.mode"] == "Disabled x1, Enabled x1"


def test_csv_is_one_line_of_names_and_a_line_a_group(desk: Desk) -> None:
    lines = desk.here("status", "--by", "pool", "--csv").out.splitlines()
    assert lines == ["pool,nodes,names", "inference,2,n3 n4", "train,2,n1 n2"]
    assert desk.here("nodes", "list", "--csv").out.splitlines()[0] == "node,pool,other_names,source,seen,trouble"


def test_what_changed_on_a_node_is_told_with_before_and_after(tmp_path: Path) -> None:
    desk = shelf(tmp_path)
    assert "nothing has changed since" in desk.here("nodes", "show", "n1", "--history").out
    put(desk, [made_now(seen("n1", {**FLEET["n1"], **carrying(NEW), "extra.path": 1}))])
    said = desk.here("nodes", "show", "n1", "--history", "--json")
    listed = said.body["changes"]
    assert isinstance(listed, list)
    changed = {each["path"]: (each["before"], each["after"]) for each in listed}
    assert changed["module.nvidia.loaded_version"] == (OLD, NEW)
    assert changed["extra.path"] == (None, 1)
    assert "gpu.product" not in changed
    shown = desk.here("nodes", "show", "n1", "--history").out
    assert f"module.nvidia.loaded_version: {OLD} -> {NEW}" in shown
    assert "extra.path: (not there) -> 1" in shown
    assert "was never looked at" in desk.here("nodes", "show", "n4", "--history").out


def test_the_list_of_facts_fits_a_terminal_of_a_hundred_columns(desk: Desk) -> None:
    lines = desk.here("facts", "list").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert any("gpu.product" in line for line in lines)


def test_what_a_source_lost_at_once_is_told_in_one_line_and_a_single_loss_by_itself(tmp_path: Path) -> None:
    desk = shelf(tmp_path)
    base = {**FLEET["n1"], **{f"extra[{key}].x": "1" for key in "abcdefgh"}}
    put(desk, [made_now(seen("n1", base))])
    put(desk, [made_now(seen("n1", {**FLEET["n1"], "gpu[GPU-a].ecc.mode": Unknown("ERR!")}))])
    shown = desk.here("nodes", "show", "n1", "--history").out.splitlines()
    assert [line for line in shown if "gpu[GPU-a].ecc.mode: Enabled -> unknown: ERR!" in line]
    lost = [line for line in shown if "not reported any more" in line]
    assert len(lost) == 1
    assert "extra[a].x: 1 -> unknown: not reported any more (and 7 more of " in lost[0]
    changes = desk.here("nodes", "show", "n1", "--history", "--json").body["changes"]
    assert isinstance(changes, list)
    assert sum(each["after"] == {"unknown": "not reported any more"} for each in changes) == 8
