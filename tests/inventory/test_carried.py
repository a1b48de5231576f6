"""Outputs that were carried here: old evidence looks old, a folder from anywhere cannot lead elsewhere, and nothing absent is a value."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.backends.inventory import directory
from muster.control.bootstrap import fact_specs, script_to_carry
from muster.health.identity import one_machine
from muster.model.errors import BadInput
from muster.model.fact import Fact, NodeFacts, Unknown
from muster.model.finding import Severity
from muster.model.node import Via
from muster.node.carry import parse_carried
from tests.support.desk import Desk

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SPECS = fact_specs()
UPTIME = Path(__file__).parent.parent / "fixtures" / "facts" / "uptime" / "debian12.txt"


def written(path: Path, content: bytes, at: datetime = NOW) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (at.timestamp(), at.timestamp()))


@pytest.fixture(scope="module")
def output() -> bytes:
    """What the text prints on this machine."""
    return subprocess.run(["sh"], input=script_to_carry().encode(), capture_output=True, timeout=120, check=True).stdout


def test_the_text_run_by_hand_gives_the_same_facts_as_a_look(output: bytes, tmp_path: Path) -> None:
    told = parse_carried(b"Welcome to node\n" + output)
    assert told is not None
    assert set(told.frames) == {spec.name for spec in SPECS}
    assert told.hostname == os.uname().nodename
    written(tmp_path / f"{told.hostname}.out", output)
    after = datetime.fromtimestamp(told.epoch_s, UTC) + timedelta(days=3)
    found = directory.carried(tmp_path, SPECS, after)
    (facts,) = found.facts
    assert found.warnings == ()
    assert facts.value("kernel.running") == os.uname().release
    assert facts.observed_at == facts.facts["kernel.running"].observed_at == after - timedelta(days=3)


def test_the_nodes_of_a_folder_are_its_outputs(tmp_path: Path) -> None:
    written(tmp_path / "gpu01.out", b"x")
    written(tmp_path / "gpu02.site" / "uptime.txt", UPTIME.read_bytes())
    found = directory.read(tmp_path)
    assert [(node.name, node.via) for node in found.nodes] == [("gpu01", Via.FILES), ("gpu02.site", Via.FILES)]


def test_a_single_output_has_its_files_time_and_what_was_not_carried_is_unknown(tmp_path: Path) -> None:
    at = NOW - timedelta(days=40)
    written(tmp_path / "gpu01" / "uptime.txt", UPTIME.read_bytes(), at)
    (facts,) = directory.carried(tmp_path, SPECS, NOW).facts
    assert (facts.value("uptime_s"), facts.observed_at) == (2564, at)
    assert facts.value("kernel.running") == Unknown("system: no output of it was carried here")


def test_a_clock_that_was_ahead_is_said_and_not_believed(output: bytes, tmp_path: Path) -> None:
    written(tmp_path / f"{os.uname().nodename}.out", output, NOW - timedelta(days=400))
    found = directory.carried(tmp_path, SPECS, NOW - timedelta(days=399))
    assert found.facts[0].observed_at == NOW - timedelta(days=400)
    assert "clock was ahead" in found.warnings[0]


def test_an_output_of_another_node_is_said(output: bytes, tmp_path: Path) -> None:
    written(tmp_path / "gpu77.out", output)
    assert "calls itself" in directory.carried(tmp_path, SPECS, datetime.now(UTC) + timedelta(days=1)).warnings[0]


def test_links_pipes_and_strange_names_are_said_and_not_followed(tmp_path: Path) -> None:
    written(tmp_path / "gpu01" / "uptime.txt", UPTIME.read_bytes())
    (tmp_path / "gpu01" / "system.txt").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "gpu01" / "disk.txt")
    written(tmp_path / "gpu01" / "sistem.txt", b"x")
    (tmp_path / "gpu02.out").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "gpu03.out")
    (tmp_path / "gpu04").symlink_to("/etc")
    written(tmp_path / "-rf" / "x.txt", b"")
    found = directory.carried(tmp_path, SPECS, NOW)
    assert [facts.node for facts in found.facts] == ["gpu01"]
    said = "\n".join(found.warnings)
    for name in ("gpu01/system.txt", "gpu01/disk.txt", "gpu02.out", "gpu03.out", "gpu04", "-rf"):
        assert f"/{name}: " in said
    assert "did you mean system.txt?" in said
    assert "root:" not in repr(found)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")])
def test_a_folder_without_outputs_is_refused_by_name(tmp_path: Path, make: object) -> None:
    make(tmp_path / "out")  # type: ignore[operator]
    with pytest.raises(BadInput, match=r"out: (cannot be read|holds no outputs)"):
        directory.read(tmp_path / "out")


def test_any_bytes_in_an_output_give_facts_or_trouble(tmp_path_factory: pytest.TempPathFactory, output: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")

    @settings(max_examples=60)
    @given(
        st.one_of(st.binary(max_size=200), st.just(output)),
        st.binary(max_size=20),
        st.integers(0, 50_000),
        st.integers(0, 5_000),
    )
    def holds(base: bytes, splice: bytes, at: int, gap: int) -> None:
        at %= len(base) + 1
        content = base[:at] + splice + base[at + gap :]
        written(folder / "a.out", content)
        written(folder / "b" / "system.txt", content)
        assert [facts.node for facts in directory.carried(folder, SPECS, NOW).facts] == ["a", "b"]

    holds()


POLICY = """\
schema: 1
fleet: away
inventory:
  - ansible: inv.ini
  - directory: out
pools:
  all: {match: {label.role: train}}
"""


def test_collect_from_a_folder_contacts_nobody_and_knows_nodes_by_all_their_names(
    tmp_path: Path, output: bytes
) -> None:
    (tmp_path / "fleet.yaml").write_text(POLICY)
    (tmp_path / "inv.ini").write_text(
        "[train]\ngpu01.site.example ansible_host=192.0.2.1 role=train\ngpu09 ansible_host=192.0.2.9\n"
    )
    written(tmp_path / "out" / "gpu01.out", output, datetime.now(UTC))
    written(tmp_path / "usb" / "gpu09.out", output, datetime.now(UTC))
    written(tmp_path / "usb" / "stranger.out", output, datetime.now(UTC))
    desk = Desk(tmp_path, tmp_path / "muster.db")
    said = desk.here("collect", "--from", "usb", "--json")
    assert (said.exit_code, said.body["nodes"]) == (0, 1)
    assert any("stranger is not in the inventory" in warning for warning in json.loads(said.out)["warnings"])
    listed = desk.here("nodes", "list", "--json").data
    assert isinstance(listed, list)
    first, second = listed
    assert (first["node"], first["other_names"], first["seen"], first["pool"]) == (
        "gpu01.site.example",
        "gpu01",
        "never",
        "all",
    )
    assert (second["node"], second["trouble"]) == ("gpu09", "")
    assert second["seen"] != "never"
    shown = desk.here("nodes", "show", "gpu01", "--json").body
    assert (shown["node"], shown["address"]) == ("gpu01.site.example", "192.0.2.1")
    assert [each["name"] for each in shown["named_by"]] == ["gpu01.site.example", "gpu01"]  # type: ignore[attr-defined]
    assert desk.here("collect", "--from", "nowhere").exit_code == 3
    (tmp_path / "usb" / "gpu09.out").unlink()
    assert desk.here("collect", "--from", "usb").exit_code == 5


def test_this_machine_is_looked_at_without_ssh_and_carried_nodes_out_of_their_folder(
    tmp_path: Path, output: bytes
) -> None:
    (tmp_path / "fleet.yaml").write_text(POLICY.replace("ansible: inv.ini", "local: true"))
    written(tmp_path / "out" / "gpu01.out", output, datetime.now(UTC))
    desk = Desk(tmp_path, tmp_path / "muster.db")
    said = desk.here("collect", "--json")
    assert (said.exit_code, said.body["nodes"], said.body["unreachable"]) == (0, 2, {})
    found = desk.here("nodes", "show", socket.gethostname(), "--json").body
    assert found["via"] == "local"
    facts = {fact["path"]: fact["value"] for fact in found["facts"]}  # type: ignore[attr-defined]
    assert facts["kernel.running"] == os.uname().release
    if isinstance(facts["machine.id"], dict):
        return  # an image that was never booted has no id of its own
    same = desk.here("check", "--json").body["findings"]
    machine = [each for each in same if each["code"] == "machine-id-not-unique"]  # type: ignore[attr-defined]
    assert [each["nodes"] for each in machine] == [sorted(["gpu01", socket.gethostname()])]


def looked(node: str, **values: str) -> NodeFacts:
    paths = {key.replace("__", "."): value for key, value in values.items()}
    return NodeFacts(node, NOW, {path: Fact(path, value, "test", NOW) for path, value in paths.items()})


def gpus(node: str, *uuids: str, serial: str = "0") -> NodeFacts:
    facts = {f"gpu[{uuid}].serial": Fact(f"gpu[{uuid}].serial", f"{serial}", "gpu", NOW) for uuid in uuids}
    return NodeFacts(node, NOW, facts)


def test_the_same_gpus_under_two_names_are_one_machine_and_an_error() -> None:
    (found,) = one_machine([gpus("a", "GPU-1", "GPU-2"), gpus("b", "GPU-1", "GPU-2"), gpus("c", "GPU-3")])
    assert (found.code, found.severity, found.nodes) == ("one-machine-two-names", Severity.ERROR, ("a", "b"))
    (found,) = one_machine([gpus("a", "GPU-1", serial="1650"), gpus("b", "GPU-2", serial="1650")])
    assert found.nodes == ("a", "b")
    assert one_machine([gpus("a", "GPU-1"), gpus("b", "GPU-2")]) == ()


def test_one_machine_id_under_two_names_is_a_warning_since_images_are_cloned() -> None:
    (found,) = one_machine(
        [looked("a", machine__id="ab" * 16), looked("b", machine__id="ab" * 16), looked("c", machine__id="cd" * 16)]
    )
    assert (found.code, found.severity, found.nodes) == ("machine-id-not-unique", Severity.WARNING, ("a", "b"))
    assert one_machine([looked("a"), looked("b")]) == ()
