"""The plain sources, and how nodes of each are reached and placed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.backends.inventory import hosts, slurm
from muster.control.reach import Reach
from muster.model.command import Answered, Collect, Command, Outcome, Unreachable
from muster.model.errors import BadInput, DocumentFaults, Partial
from muster.model.node import LOCAL_ADDRESS, Node
from muster.model.policy import SlurmSource
from muster.planner.policy import policy_from_document
from muster.planner.pools import place

LOOK = Command(("sh", "-s"), b"", 5, Collect(()))


class Recorded:
    """A transport that answers with given texts and keeps what it was asked."""

    def __init__(self, *answers: Outcome) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.closed = False
        self._answers = list(answers)

    async def run(self, node: Node, command: Command) -> Outcome:
        self.asked.append(command.argv)
        return self._answers.pop(0) if self._answers else Answered(0, b"", b"")

    async def close(self) -> None:
        self.closed = True


def test_each_node_is_reached_its_own_way_and_a_carried_one_never() -> None:
    async def work() -> None:
        ssh, local = Recorded(), Recorded()
        reach = Reach(ssh, local, sudo=True)
        for address in ("10.0.0.1", LOCAL_ADDRESS, "files:out"):
            last = await reach.run(Node("n", address, None, None, {}, "test"), LOOK)
        assert isinstance(last, Unreachable)
        assert (ssh.asked, local.asked) == ([("sh", "-s")], [("sudo", "-n", "--", "sh", "-s")])
        await reach.close()
        assert ssh.closed
        assert local.closed

    asyncio.run(work())


def test_every_fault_of_a_hosts_file_is_told_with_its_line() -> None:
    with pytest.raises(DocumentFaults) as told:
        hosts.nodes_from_text("gpu01\n# one\ngpu01 # again\ngpu02 gpu03\n", "hosts")
    assert told.value.faults == ("hosts:3: gpu01 stands already in line 1", "hosts:4: one name a line, not 2")


@given(st.text(max_size=60))
def test_any_text_of_a_hosts_file_is_read_or_refused(text: str) -> None:
    try:
        assert all(node.name for node in hosts.nodes_from_text(text, "hosts"))
    except DocumentFaults as fault:
        assert all(line.startswith("hosts:") for line in fault.faults)


def test_a_hosts_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "hosts", tmp_path / "missing", Path("/dev/zero")):
        with pytest.raises(BadInput, match=f"{path}: cannot be read"):
            hosts.read(path)


@pytest.mark.parametrize(
    ("partition", "pools"),
    [("train", ("train",)), ("batch", ("batch",)), ("train,batch", ("train", "batch")), ("tra", ())],
)
def test_a_node_in_several_partitions_matches_each_of_them(partition: str, pools: tuple[str, ...]) -> None:
    both = "{train: {match: {slurm.partition: train}}, batch: {match: {slurm.partition: [batch, x]}}}"
    text = f"schema: 1\nfleet: a\ninventory: [{{slurm: {{}}}}]\npools: {both}\n"
    node = Node("n", "n", None, None, {"slurm.partition": partition}, "slurm")
    assert place(node, None, policy_from_document(text, "fleet.yaml")).pools == pools


SINFO = b"""{"nodes": [
 {"name": "n1", "address": "n1", "state": ["IDLE"], "partitions": ["a"], "gres": "gpu:h100:8"},
 {"name": "n2", "address": "10.0.0.2", "state": ["FUTURE"], "partitions": ["a"]},
 {"name": "n3", "address": "10.0.0.3", "state": ["DOWN"], "partitions": ["b"], "features": ["x", "y"]}]}"""


def test_a_future_node_is_no_machine_and_a_node_that_is_down_is_one() -> None:
    found = asyncio.run(slurm.read(Recorded(Answered(0, SINFO, b"")), SlurmSource()))
    assert [(node.name, node.address, dict(node.labels)) for node in found.nodes] == [
        ("n1", "n1", {"slurm.partition": "a", "slurm.gpu": "h100"}),
        ("n3", "10.0.0.3", {"slurm.partition": "b", "slurm.feature": "x,y"}),
    ]


def test_a_slurm_without_json_is_asked_for_its_text() -> None:
    text = b"NodeName=n1 State=IDLE Partitions=a NodeAddr=10.0.0.1 \n"
    transport = Recorded(
        Answered(1, b"", b"unrecognized option"), Answered(1, b"", b"unrecognized option"), Answered(0, text, b"")
    )
    found = asyncio.run(slurm.read(transport, SlurmSource(("a",))))
    assert [node.address for node in found.nodes] == ["10.0.0.1"]
    assert [argv[4] for argv in transport.asked] == ["sinfo", "scontrol", "scontrol"]


@pytest.mark.parametrize(
    "last",
    [
        Answered(1, b"", b"slurm_load_node error: Unable to contact slurm controller\n"),
        Unreachable("timeout", "no answer", "look"),
    ],
)
def test_a_slurm_that_is_away_is_said_and_never_an_empty_cluster(last: Outcome) -> None:
    away = Answered(0, b'{"errors": [{"error": "Unspecified error"}], "nodes": []}', b"")
    with pytest.raises(Partial, match="Slurm's nodes are unknown"):
        asyncio.run(slurm.read(Recorded(away, away, last), SlurmSource()))
