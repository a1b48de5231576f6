"""Laws of input that cannot be used: an exit code, the place, a hint, in words and in JSON; never a traceback; nothing lost."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from muster.loopback.fleet import LoopbackFleet
from tests.support.desk import LIMIT_S, Desk, make_fleet, until

OLD = "570.195.03"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackFleet]:
    fleet = make_fleet(tmp_path_factory.mktemp("input") / "fleet", dict.fromkeys(("gpu01", "gpu02", "gpu03"), OLD))
    yield fleet
    fleet.stop()


@pytest.fixture(scope="module")
def desk(fleet: LoopbackFleet) -> Desk:
    """A desk whose store holds one look at a whole fleet."""
    desk = Desk(fleet.layout.folder, fleet.layout.folder.parent / "muster.db")
    desk.ok("collect")
    return desk


@pytest.fixture
def copy(fleet: LoopbackFleet, tmp_path: Path) -> Desk:
    """A desk in a folder with copies of the policy and the inventory, that a test may break."""
    for name in ("fleet.yaml", "inventory.ini", "ssh_config"):
        (tmp_path / name).write_bytes((fleet.layout.folder / name).read_bytes())
    return Desk(tmp_path, tmp_path / "muster.db")


def refused(desk: Desk, *words: str, code: int, names: str, hint: str) -> None:
    """The command ends with `code`; its message names `names` and its hint says `hint`, in words and in JSON."""
    said = desk.here(*words, "--json")
    assert said.exit_code == code, said.err
    assert names in str(said.body["message"])
    assert hint in str(said.body["hint"])
    for line in str(said.body["message"]).splitlines():
        assert line in said.err
    assert str(said.body["hint"]) in said.err
    assert str(said.body["code"]).startswith("MST-")


def test_a_broken_policy_is_refused_with_file_line_and_the_nearest_key(copy: Desk) -> None:
    text = (copy.folder / "fleet.yaml").read_text(encoding="utf-8")
    (copy.folder / "fleet.yaml").write_text(text.replace("max_unavailable", "max_unavailible"), encoding="utf-8")
    said = copy.here("status", "--json")
    assert said.exit_code == 3
    assert "fleet.yaml:" in str(said.body["message"])
    assert "max_unavailable" in str(said.body["message"])
    assert str(said.body["message"]).count("max_unavailible") == 2


def test_a_missing_policy_is_refused_and_the_ways_to_name_one_are_said(tmp_path: Path) -> None:
    said = Desk(tmp_path, tmp_path / "muster.db").here("status", "--json")
    assert said.exit_code == 3
    assert "fleet.yaml" in str(said.body["message"])
    assert "--fleet" in str(said.body["message"]) + str(said.body["hint"])


def test_a_missing_inventory_is_named_with_where_it_is_asked_for(copy: Desk) -> None:
    (copy.folder / "inventory.ini").unlink()
    refused(copy, "status", code=3, names="inventory.ini", hint="inventory")


def test_every_fault_of_an_inventory_is_named_with_its_line(copy: Desk) -> None:
    with (copy.folder / "inventory.ini").open("a", encoding="utf-8") as file:
        file.write("\n[train]\ngpu01 ansible_port=many\n[unclosed\n")
    said = copy.here("status", "--json")
    assert said.exit_code == 3
    assert str(said.body["message"]).count("inventory.ini:") == 2


def test_a_missing_ssh_config_is_refused_before_any_node_is_asked(copy: Desk) -> None:
    (copy.folder / "ssh_config").unlink()
    refused(copy, "collect", code=3, names="ssh_config", hint="ssh")


@pytest.mark.parametrize("words", [("nodes", "show", "gpu1"), ("collect", "--limit", "gqu01"), ("why", "gpu04")])
def test_an_unknown_node_is_refused_and_near_ones_are_named(desk: Desk, words: tuple[str, ...]) -> None:
    refused(desk, *words, code=3, names=words[-1], hint="gpu01")


def test_an_unknown_pool_is_refused_and_the_nearest_is_named(desk: Desk) -> None:
    refused(desk, "plan", "--pool", "trian", code=3, names="trian", hint="train")


def test_an_unknown_driver_is_refused_and_the_nearest_known_are_named(desk: Desk) -> None:
    refused(desk, "plan", "--driver", "580.126.21", code=3, names="580.126.21", hint="580.126.20")


def test_a_text_that_is_no_driver_version_is_refused(desk: Desk) -> None:
    refused(desk, "plan", "--driver", "newest", code=3, names="newest", hint="580.126.20")


@pytest.mark.parametrize("words", [("apply",), ("plans", "show"), ("plans", "approve")])
def test_an_unknown_plan_is_refused(desk: Desk, words: tuple[str, ...]) -> None:
    refused(desk, *words, "plan-beef", code=3, names="plan-beef", hint="plan")


@pytest.mark.parametrize("words", [("rollouts", "show"), ("rollouts", "watch"), ("audit", "verify"), ("why",)])
def test_an_unknown_rollout_is_refused(desk: Desk, words: tuple[str, ...]) -> None:
    refused(desk, *words, "rollout-beef", code=3, names="rollout-beef", hint="rollout")


@pytest.mark.parametrize(
    ("knob", "says"), [("unreachable", "refused"), ("wrong-host-key", "host-key")], ids=["unreachable", "wrong-key"]
)
def test_a_node_that_cannot_be_looked_at_is_named_and_the_others_are_collected(
    fleet: LoopbackFleet, tmp_path: Path, knob: str, says: str
) -> None:
    desk = Desk(fleet.layout.folder, tmp_path / "muster.db")
    fleet.set_knob("gpu02", knob)
    try:
        said = desk.muster("collect", "--json")
    finally:
        fleet.set_knob("gpu02", knob, None)
    assert said.exit_code == 5
    away = said.body["unreachable"]
    assert isinstance(away, dict)
    assert list(away) == ["gpu02"]
    assert says in away["gpu02"]
    assert "ssh" in away["gpu02"]
    assert said.body["drivers"] == {OLD: 2}
    assert desk.here("check", "--json").exit_code == 5
    assert desk.here("collect", "--limit", "gpu02").exit_code == 0


def test_a_command_that_is_interrupted_ends_with_130_and_without_a_traceback(
    fleet: LoopbackFleet, tmp_path: Path
) -> None:
    desk = Desk(fleet.layout.folder, tmp_path / "muster.db")
    fleet.set_knob("gpu03", "silent")
    collecting = desk.start("collect")
    try:
        until(lambda: connected(collecting.pid))
        collecting.send_signal(signal.SIGINT)
        _, err = collecting.communicate(timeout=LIMIT_S)
    finally:
        fleet.set_knob("gpu03", "silent", None)
        collecting.kill()
        collecting.communicate()
    assert collecting.returncode == 130
    assert err.strip() == "interrupted"
    assert desk.here("collect", "--limit", "gpu03").exit_code == 0


def connected(pid: int) -> bool:
    """Whether the process has a TCP connection."""
    links = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it may be closed since it was listed
            links.append(str(each.readlink()))
    mine = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")}
    rows = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return any(row.split()[9] in mine for row in rows)


def test_a_store_of_a_newer_release_is_refused_untouched(copy: Desk) -> None:
    copy.here("status")
    with closing(sqlite3.connect(copy.store)) as on, on:
        on.execute("UPDATE meta SET value = '99'")
    before = copy.store.read_bytes()
    refused(copy, "status", code=4, names="99", hint="release")
    assert copy.store.read_bytes() == before


def test_a_store_that_is_no_database_is_refused_untouched(copy: Desk) -> None:
    copy.store.write_text("dear diary\n" * 100, encoding="utf-8")
    refused(copy, "status", code=3, names="not a database", hint="--store")
    assert copy.store.read_text(encoding="utf-8").startswith("dear diary")


def test_a_store_in_a_place_that_cannot_be_written_is_refused(copy: Desk) -> None:
    refused(copy, "status", "--store", "/proc/muster/muster.db", code=3, names="/proc/muster", hint="--store")


def test_without_a_store_every_node_is_unknown_and_the_way_to_look_is_said(copy: Desk) -> None:
    said = copy.here("check")
    assert said.exit_code == 5
    assert "muster collect" in said.out


def test_a_plan_from_no_facts_changes_nothing_and_says_why(copy: Desk) -> None:
    said = copy.here("plan", "--json")
    assert said.exit_code == 5
    plan = said.body["plan"]
    assert isinstance(plan, dict)
    assert plan["nodes"] == []
    assert {left["detail"] for left in plan["left_out"]} == {"was never collected"}


def test_an_empty_plan_cannot_be_approved_or_carried_out(copy: Desk) -> None:
    copy.here("plan")
    refused(copy, "plans", "approve", "last", code=4, names="changes nothing", hint="muster plans show")


def test_an_unknown_command_is_a_usage_error_that_names_the_nearest(tmp_path: Path) -> None:
    said = Desk(tmp_path, tmp_path / "muster.db").here("colect")
    assert said.exit_code == 2
    assert "collect" in said.err


@pytest.mark.parametrize("words", [("status", "--jsn"), ("plans", "aprove"), ("plan", "--pool"), ("apply",)])
def test_a_wrong_option_word_or_missing_argument_is_a_usage_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = Desk(tmp_path, tmp_path / "muster.db").here(*words)
    assert said.exit_code == 2
    assert "--help" in said.err or "requires an argument" in said.err


def test_a_reader_that_goes_away_ends_the_command_quietly(desk: Desk) -> None:
    shell = subprocess.run(
        ["/bin/sh", "-c", '"$0" -m muster nodes show gpu01 | head -n 1', sys.executable],
        cwd=desk.folder,
        env=desk.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shell.stdout.count("\n"), shell.stderr) == (1, "")


def test_a_fault_of_ours_ends_with_70_in_a_line_and_keeps_its_details_in_a_file(copy: Desk) -> None:
    # A file where the state folder of a lock should be is nothing any code expects.
    (copy.folder / "sitecustomize.py").write_text(
        "import muster.planner.pools as pools\n"
        "def placed(nodes, facts, policy):\n    raise KeyError('planted')\n"
        "pools.placed = placed\n",
        encoding="utf-8",
    )
    path = f"{copy.folder}{os.pathsep}{copy.environment['PYTHONPATH']}"
    said = copy.muster("status", "--json", PYTHONPATH=path)
    assert said.exit_code == 70
    assert said.body["code"] == "MST-BUG-001"
    assert "KeyError" in str(said.body["message"])
    kept = copy.folder / "state/muster/faults.log"
    assert str(kept) in str(said.body["hint"])
    assert "planted" in kept.read_text(encoding="utf-8")
    assert kept.stat().st_mode & 0o777 == 0o600
