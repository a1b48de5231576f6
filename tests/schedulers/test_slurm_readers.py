"""The laws that the readers of Slurm's answers hold, whatever the answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.backends import _kubernetes_labels, _slurm_json, _slurm_log, _slurm_text, _slurm_words
from muster.model.errors import BadInput
from muster.model.job import Gres, Job, JobState, NodeState

FOLDER = Path(__file__).parent.parent / "fixtures" / "scheduler"
READERS: dict[str, Callable[[bytes, str], object]] = {
    "json": _slurm_json.answer,
    "nodes": _slurm_text.nodes,
    "jobs": _slurm_text.jobs,
    "squeue": _slurm_text.squeue,
    "partitions": _slurm_text.partitions,
    "reservations": _slurm_text.reservations,
    "config": _slurm_text.config,
    "log": lambda content, _: _slurm_log.complaints(content),
    "labels": lambda content, name: _kubernetes_labels.gpu_labels(_kubernetes_labels.labels(content, name)),
}
RECORDED = [path.read_bytes() for path in sorted(FOLDER.iterdir()) if not path.name.endswith(".yaml")]


def job(**values: object) -> Job:
    base: dict[str, object] = {"job_id": 7, "name": "train", "nodes": "n[1-2]", "job_state": ["RUNNING"]}
    return _slurm_json.answer(json.dumps({"jobs": [base | values]}).encode(), "squeue --json").jobs[0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[01-03,7]", ["gpu01", "gpu02", "gpu03", "gpu7"]),
        ("rack[1-2]n[08-10]", ["rack1n08", "rack1n09", "rack1n10", "rack2n08", "rack2n09", "rack2n10"]),
        ("a[1-2].site,b,a1.site", ["a1.site", "a2.site", "b"]),
        ("(null)", []),
        ("", []),
    ],
)
def test_a_host_list_names_each_of_its_nodes_once_in_order(text: str, names: list[str]) -> None:
    assert list(_slurm_words.hosts(text)) == names


@pytest.mark.parametrize(
    "text", ["n[1-", "n[]", "n]1[", "n[3-1]", "n[a-b]", "n[1-2-3]", "n[0-999999999]", "[0-999][0-999]"]
)
def test_a_host_list_that_is_none_or_names_a_world_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="host list"):
        _slurm_words.hosts(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:h100:8(S:0-1)", [Gres("gpu", "h100", 8, "S:0-1")]),
        ("gpu:4", [Gres("gpu", "", 4)]),
        ("gpu", [Gres("gpu", "", 1)]),
        (
            "gpu:a100_1g.5gb:7(S:0,2),tmpdisk:7T",
            [Gres("gpu", "a100_1g.5gb", 7, "S:0,2"), Gres("tmpdisk", "", 7 * 1024**4)],
        ),
        ("gres/gpu:h100:1", [Gres("gpu", "h100", 1)]),
        ("gres:gpu:2", [Gres("gpu", "", 2)]),
        ("bandwidth:lustre:no_consume:4G", [Gres("bandwidth", "lustre", 4 * 1024**3)]),
        ("gpu:h100:0(IDX:N/A)", [Gres("gpu", "h100", 0, "IDX:N/A")]),
        ("(null)", []),
    ],
)
def test_generic_resources_are_read_in_all_their_forms(text: str, found: list[Gres]) -> None:
    assert list(_slurm_words.gres(text)) == found


@pytest.mark.parametrize(
    ("words", "state", "flags"),
    [
        (["IDLE", "DRAIN"], NodeState.IDLE, ["DRAIN"]),
        (["down", "NOT_RESPONDING"], NodeState.DOWN, ["NOT_RESPONDING"]),
        (["MIXED+PLANNED+RESERVED"], NodeState.MIXED, ["PLANNED", "RESERVED"]),
        (["DOWN*+DRAIN"], NodeState.DOWN, ["NOT_RESPONDING", "DRAIN"]),
        (["drained*"], NodeState.IDLE, ["NOT_RESPONDING", "DRAIN"]),
        (["draining@"], NodeState.ALLOCATED, ["REBOOT_REQUESTED", "DRAIN"]),
        (["IDLE+CLOUD+POWERED_DOWN"], NodeState.IDLE, ["CLOUD", "POWERED_DOWN"]),
        (["SOMETHING_NEW"], NodeState.UNKNOWN, ["SOMETHING_NEW"]),
        ([], NodeState.UNKNOWN, []),
    ],
)
def test_a_nodes_state_and_flags_are_told_apart(words: list[str], state: NodeState, flags: list[str]) -> None:
    assert _slurm_words.node_state(words) == (state, tuple(flags))


def test_a_job_that_completes_still_holds_its_nodes_and_a_requeued_one_waits() -> None:
    assert _slurm_words.job_state(["COMPLETING"]) == (JobState.RUNNING, ("COMPLETING",))
    assert _slurm_words.job_state(["CG"]) == (JobState.RUNNING, ("COMPLETING",))
    assert _slurm_words.job_state(["REQUEUED"]) == (JobState.PENDING, ("REQUEUED",))
    assert _slurm_words.job_state(["CANCELLED by 1000"]) == (JobState.CANCELLED, ())
    assert _slurm_words.job_state(["WHATEVER"]) == (JobState.UNKNOWN, ("WHATEVER",))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7-00:00:00", 604800),
        ("1:00:00", 3600),
        ("30:00", 1800),
        ("90", 5400),
        ("1-12", 129600),
        ("N/A", None),
        ("Partition_Limit", None),
    ],
)
def test_a_time_limit_is_seconds(text: str, seconds: int | None) -> None:
    assert _slurm_words.limit_s(text) == (seconds, False)


def test_a_job_without_a_limit_has_no_end() -> None:
    endless = {"set": False, "infinite": True, "number": 0}
    told = {"set": True, "infinite": False, "number": 1762784706}
    assert job(time_limit=endless, end_time=told).ends_at is None
    assert job(time_limit=endless, end_time=told).unlimited
    assert job(time_limit=told, end_time=told).ends_at == datetime(2025, 11, 10, 14, 25, 6, tzinfo=UTC)


def test_a_job_on_several_nodes_is_a_gang_and_so_is_one_that_waits_for_several() -> None:
    assert job().gang
    assert job(nodes="", node_count=8, job_state="PENDING").gang
    assert not job(nodes="n1", node_count=1).gang


def test_gpus_are_counted_where_a_site_does_not_account_for_them() -> None:
    assert job(tres_alloc_str="cpu=1,gres/gpu=16,gres/gpu:h100=16").gpus == 16
    assert job(tres_alloc_str="cpu=1", gres_detail=["gpu:h100:8(IDX:0-7)", "gpu:h100:8(IDX:0-7)"]).gpus == 16
    assert job(nodes="", node_count=4, tres_per_node="gres/gpu:h100:8").gpus == 32
    assert job().gpus is None


SINFO_GROUPS = {
    "sinfo": [
        {
            "partition": {"name": partition}, "node": {"state": ["MIXED", "DRAIN"]}, "nodes": {"nodes": names, "hostnames": [], "addresses": []},
            "gres": {"total": "tmpsize:7T,gpu:l40s:4(S:0-1)", "used": "gpu:l40s:1(IDX:0)"}, "features": {"total": "l40s,rack1", "active": ""},
            "reason": {"description": "Xid 79", "time": {"set": True, "infinite": False, "number": 1762784646}, "user": "root"},
        }
        for partition, names in (("train", ["n1", "n2"]), ("batch", ["n[2-3]"]))
    ],
    "meta": {"slurm": {"release": "24.11.5"}},
}  # fmt: skip


def test_sinfo_of_later_releases_lists_groups_and_a_node_keeps_all_its_partitions() -> None:
    found = _slurm_json.answer(json.dumps(SINFO_GROUPS).encode(), "sinfo --json")
    assert {node.name: node.partitions for node in found.nodes} == {
        "n1": ("train",),
        "n2": ("train", "batch"),
        "n3": ("batch",),
    }
    assert {(node.state, node.flags, node.gpus, node.reason) for node in found.nodes} == {
        (NodeState.MIXED, ("DRAIN",), 4, "Xid 79")
    }
    assert found.release == "24.11.5"


def test_an_empty_answer_with_an_error_beside_it_is_no_cluster_without_nodes() -> None:
    # As 22.05 prints it, with exit status 0: to take it for a cluster without nodes would be the end of every rule about jobs.
    body = {"errors": [{"error": "Unable to contact slurm controller", "errno": -1}], "nodes": [], "meta": {}}
    with pytest.raises(BadInput, match="Unable to contact slurm controller"):
        _slurm_json.answer(json.dumps(body).encode(), "sinfo --json")


NODE = b"""NodeName=gpu03 Arch=x86_64 CoresPerSocket=8
   AvailableFeatures=h100,rack1
   Gres=gpu:h100:8(S:0-1)
   NodeAddr=10.0.0.3 NodeHostName=gpu03 Version=22.05.8
   OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)
   State=IDLE+DRAIN+NOT_RESPONDING ThreadsPerCore=1
   Partitions=gpu,batch
   CfgTRES=cpu=16,mem=4G,billing=16,gres/gpu=8
   Reason=muster: lease 17 [admin@2026-11-30T10:00:00]
"""


def test_a_drained_node_says_why_by_whom_and_when() -> None:
    for content in (NODE, b" ".join(NODE.split(b"\n   ")) + b"\n"):
        (node,) = _slurm_text.nodes(content, "scontrol")
        assert (node.reason, node.reason_by, node.reason_at) == (
            "muster: lease 17",
            "admin",
            datetime(2026, 11, 30, 10, tzinfo=UTC),
        )
        assert (node.state, node.flags, node.partitions) == (
            NodeState.IDLE,
            ("DRAIN", "NOT_RESPONDING"),
            ("gpu", "batch"),
        )
        assert (node.address, node.gpus, node.features, node.takes_jobs) == ("10.0.0.3", 8, ("h100", "rack1"), False)


def test_a_recorded_drain_is_told_alike_by_json_and_by_text() -> None:
    by_json = _slurm_json.answer((FOLDER / "sinfo-json_22.05.8_drain.json").read_bytes(), "sinfo").nodes
    by_text = _slurm_text.nodes((FOLDER / "scontrol-show-node_22.05.8_one-line.txt").read_bytes(), "scontrol")
    told = [
        [(n.name, n.state, n.flags, n.reason, n.reason_by, n.reason_at, n.partitions) for n in nodes]
        for nodes in (by_json, by_text)
    ]
    assert told[0] == told[1]
    assert told[0][2][3:5] == ("Xid 79 State=DOWN", "root")


def test_a_jobs_own_words_never_pass_for_slurms() -> None:
    content = b"""JobId=5 JobName=x NodeList=gpu[01-99] JobState=COMPLETED UserId=root(0) GroupId=root(0)
   UserId=eve(1001) GroupId=eve(1001) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   NodeList=gpu07
   NumNodes=1 NumCPUs=1
   Command=/tmp/a NodeList=gpu[01-99]
   WorkDir=/tmp JobState=COMPLETED
"""
    (found,) = _slurm_text.jobs(content, "scontrol")
    assert (found.nodes, found.state, found.user) == (("gpu07",), JobState.RUNNING, "eve")
    with pytest.raises(BadInput, match="scontrol:1: jobs on one line"):
        _slurm_text.jobs(b" ".join(content.split(b"\n   ")), "scontrol")


def test_a_jobs_name_may_hold_the_separator_of_squeue() -> None:
    times = "1-00:00:00|2026-11-30T10:00:00|2026-12-01T10:00:00|2026-11-30T09:00:00"
    row = f"12|12|RUNNING|gpu|eve|a|2|n[1-2]|{times}|(null)|h100|gres/gpu:8|(null)|1|None|a|b|c"
    (found,) = _slurm_text.squeue(row.encode(), "squeue")
    assert (found.name, found.nodes, found.gpus, found.requeue) == ("a|b|c", ("n1", "n2"), 16, True)
    assert found.ends_at == datetime(2026, 12, 1, 10, tzinfo=UTC)


def test_a_reservation_keeps_nodes_over_a_time() -> None:
    content = b"""ReservationName=root_1 StartTime=2026-11-30T10:00:00 EndTime=2026-11-30T12:00:00 Duration=02:00:00
   Nodes=gpu[01-02] NodeCnt=2 CoreCnt=32 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE
"""
    (found,) = _slurm_text.reservations(content, "scontrol")
    assert (found.name, found.nodes, found.users) == ("root_1", ("gpu01", "gpu02"), ("root",))
    assert found.flags == ("MAINT", "IGNORE_JOBS", "SPEC_NODES")
    assert found.ends_at == datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert _slurm_text.reservations(b"No reservations in the system\n", "scontrol") == ()


def test_a_refusal_names_the_answer_and_its_line() -> None:
    with pytest.raises(BadInput, match=r"^sinfo --json:2: not JSON"):
        _slurm_json.answer(b'{"nodes": [\n{]}', "sinfo --json")
    with pytest.raises(BadInput, match=r"^scontrol:3: .*host list"):
        _slurm_text.partitions(b"PartitionName=a Nodes=n1\n\nPartitionName=b Nodes=n[1-\n", "scontrol")
    with pytest.raises(BadInput, match=r"^squeue:2: 1 columns"):
        _slurm_text.squeue(b"\nnonsense", "squeue")


@pytest.mark.parametrize("reader", READERS)
def test_any_bytes_give_a_value_or_a_refusal_that_names_the_answer(reader: str) -> None:
    read = READERS[reader]

    @settings(max_examples=150)
    @given(
        st.one_of(st.binary(max_size=200), st.sampled_from(RECORDED)),
        st.binary(max_size=12),
        st.integers(0, 20_000),
        st.integers(0, 3_000),
    )
    def holds(base: bytes, splice: bytes, at: int, gap: int) -> None:
        at %= len(base) + 1
        try:
            read(base[:at] + splice + base[at + gap :], "the answer")
        except BadInput as fault:
            assert fault.message.startswith("the answer:")

    holds()


WORDS = st.sampled_from(["n[1-3]", "gpu:h100:8", "IDLE"])
KEYS = st.sampled_from(["set", "number", "infinite", "nodes", "total"])
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.data())
def test_any_value_at_any_key_is_read_or_refused(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([each for each in RECORDED if each.lstrip().startswith(b"{")]))
    root = json.loads(source)
    listed = next((root[key] for key in ("nodes", "jobs") if isinstance(root.get(key), list)), [root])
    target = data.draw(st.sampled_from(listed))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(JSON_VALUES)
    try:
        _slurm_json.answer(json.dumps(root).encode(), "the answer")
    except BadInput as fault:
        assert fault.message.startswith("the answer:")


HOSTILE = (
    b"[" * 500_000,
    b'{"nodes": ' + b"[" * 500_000,
    b'{"jobs": [' + b"9" * 500_000 + b"]}",
    b'{"nodes": [' + b'{"name": "n", "gres": "' + b"gpu:" * 200_000 + b'"}]}',
    b'{"jobs": [{"job_id": 1, "nodes": "' + b"n[1-2]" * 50_000 + b'"}]}',
    b'{"jobs": [{"job_id": 1, "nodes": "' + b"n[1-9]," * 50_000 + b'"}]}',
    b"NodeName=" + b" A=" * 300_000,
    b"NodeName=n Reason=" + b" [a@2" * 100_000,
    b"NodeName=n Reason=" + b" " * 200_000 + b"x",
    b"PartitionName=p Nodes=" + b"n[1-99999]," * 50,
    b"JobId=1 JobName=" + b"(" * 500_000 + b"\n  NodeList=" + b"[" * 500_000,
    b"A" * 500_000 + b"=",
    b"\n" * 1_000_000,
)


def test_half_a_character_in_an_answer_can_be_printed_and_kept() -> None:
    (found,) = _slurm_json.answer(
        b'{"jobs": [{"job_id": 1, "name": "a\\ud800", "gres_detail": ["\\udfff"]}]}', "squeue"
    ).jobs
    assert (found.name.encode(), found.gres) == (b"a?", ("?",))


@pytest.mark.parametrize("reader", READERS)
def test_an_answer_made_to_be_hard_is_read_or_refused_in_bounded_time(reader: str) -> None:
    before = time.process_time()
    for content in HOSTILE:
        try:
            READERS[reader](content, "the answer")
        except BadInput as fault:
            assert len(fault.message) < 1000
    assert time.process_time() - before < 20
