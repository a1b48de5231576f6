"""`facts parse` on the recorded answers of schedulers: each is recognised, and what its reader finds stands there under a path."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.backends import _slurm_json, _slurm_text
from muster.backends._scheduler_captures import READERS
from muster.control.bootstrap import capture_readers
from muster.control.captures import parse_file
from muster.model.fact import Unknown

FOLDER = Path(__file__).parent.parent / "fixtures" / "scheduler"
FILES = sorted(file.name for file in FOLDER.iterdir() if file.name not in ("INDEX.yaml", "mapping.yaml"))
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "captures.md"

KINDS: Mapping[str, str] = {
    "k8s_": "kubernetes_labels", "scontrol-show-config": "slurm_config", "scontrol-show-job": "slurm_jobs",
    "scontrol-show-node": "slurm_nodes", "scontrol-show-partition": "slurm_partitions", "squeue_parsable": "slurm_squeue",
    "slurmctld_log": "slurm_log", "slurmd_log": "slurm_log",
}  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_a_recorded_answer_is_recognised_and_read(file: str) -> None:
    capture = parse_file(str(FOLDER / file), kind=None, readers=capture_readers())
    assert capture.kind == next((kind for start, kind in KINDS.items() if file.startswith(start)), "slurm_json")
    assert capture.understood, capture.facts


@pytest.mark.parametrize("file", [name for name in FILES if name.endswith(".json") and not name.startswith("k8s_")])
def test_every_node_and_job_of_an_answer_has_its_facts(file: str) -> None:
    facts = parse_file(str(FOLDER / file), kind=None, readers=capture_readers()).facts
    answer = _slurm_json.answer((FOLDER / file).read_bytes(), file)
    for node in answer.nodes:
        assert facts[f"slurm.node[{node.name}].state"] == node.state.value
        assert facts.get(f"slurm.node[{node.name}].gres_text", "") == node.gres_text
        assert facts.get(f"slurm.node[{node.name}].flags", ()) == node.flags
    for job in answer.jobs:
        assert facts[f"slurm.job[{job.job_id}].state"] == job.state.value
        assert facts.get(f"slurm.job[{job.job_id}].gpus") == job.gpus
        assert facts.get(f"slurm.job[{job.job_id}].nodes", ()) == job.nodes


def test_text_and_labels_tell_what_their_readers_find() -> None:
    text = (FOLDER / "scontrol-show-node_small.txt").read_bytes()
    facts = parse_file(str(FOLDER / "scontrol-show-node_small.txt"), kind=None, readers=capture_readers()).facts
    assert [facts[f"slurm.node[{node.name}].state"] for node in _slurm_text.nodes(text, "")] == [
        node.state.value for node in _slurm_text.nodes(text, "")
    ]
    labels = parse_file(str(FOLDER / "k8s_node-labels_8x-h100_xe9680.json"), kind=None, readers=capture_readers()).facts
    assert labels["kubernetes.gpu.gpus"] == 8


@given(st.binary(max_size=400), st.sampled_from(READERS))
def test_any_bytes_give_facts_or_unknown(data: bytes, reader: object) -> None:
    text = data.decode("utf-8", "replace")
    parse = reader.parse  # type: ignore[attr-defined]
    assert all(isinstance(path, str) for path in parse(text))
    assert 0 <= reader.sniff(text) <= 100  # type: ignore[attr-defined]


def test_what_is_no_answer_is_unknown_with_the_reason() -> None:
    (slurm,) = [reader for reader in READERS if reader.name == "slurm_json"]
    assert isinstance(slurm.parse("{}")["scheduler.answer"], Unknown)


def test_the_page_lists_every_kind_of_answer() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"- `\w+`: ", line)]
    assert rows == [f"- `{reader.name}`: {reader.what}" for reader in READERS]
