"""Every recorded answer of a scheduler gives what the index says of it, and every key of the index is held by some part of the reading."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.backends import _kubernetes_labels, _scheduler_captures, _slurm_json, _slurm_log, _slurm_text
from muster.model.errors import BadInput

FOLDER = Path(__file__).parent.parent / "fixtures" / "scheduler"
SAMPLES: Mapping[str, Mapping[str, Any]] = {
    sample["file"]: sample for sample in yaml.safe_load((FOLDER / "INDEX.yaml").read_text())["samples"]
}
MAPPING = yaml.safe_load((FOLDER / "mapping.yaml").read_text())

SQUEUE = _scheduler_captures.SQUEUE_EXPORTER


def reading(file: str) -> dict[str, Any]:
    """All that is read out of a recorded answer, as plain values."""
    content = (FOLDER / file).read_bytes()
    if file.startswith("k8s"):
        labels = _kubernetes_labels.labels(content, file)
        return {"labels": dict(labels), "gpu_labels": asdict(_kubernetes_labels.gpu_labels(labels))}
    if file.endswith(".log"):
        return {"complaints": [asdict(each) for each in _slurm_log.complaints(content)]}
    found = asdict(_slurm_json.answer(content, file)) if file.endswith(".json") else _text(file, content)
    return _shaped(found)


def _shaped(found: dict[str, Any]) -> dict[str, Any]:
    """As the mapping file names it."""
    for each in (*found.get("nodes", ()), *found.get("jobs", ())):
        each["states"] = [each.pop("state").upper(), *each.pop("flags")]
    for job in found.get("jobs", ()):
        days, rest = divmod(job["limit_s"] or 0, 86400)
        job["limit"] = f"{days}-{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    keys = {"gres": "gres_text", "gres_used": "gres_used_text", "state": "states"}
    found["gpu_nodes"] = {
        node["name"]: {key: node[path] for key, path in keys.items()} for node in found.get("nodes", ()) if "gpu" in node["gres_text"]
    }  # fmt: skip
    return found


def _text(file: str, content: bytes) -> dict[str, Any]:
    kind = file.partition("_")[0].removesuffix(".txt")
    match kind:
        case "squeue":
            return {"jobs": [asdict(each) for each in _slurm_text.squeue(content, file, SQUEUE, "|#")]}
        case "scontrol-show-config":
            return {"config": asdict(_slurm_text.config(content, file))}
        case "scontrol-show-partition":
            return {"partitions": [asdict(each) for each in _slurm_text.partitions(content, file)]}
        case "scontrol-show-node":
            return {"nodes": [asdict(each) for each in _slurm_text.nodes(content, file)]}
        case "scontrol-show-job":
            try:
                _slurm_json.answer(content, file)
                refusal = ""
            except BadInput as fault:
                refusal = fault.message
            return {"jobs": [asdict(each) for each in _slurm_text.jobs(content, file)], "refusal": refusal}
        case _:
            raise AssertionError(file)


def keys_of(file: str) -> Iterator[tuple[str, Any]]:
    """The index's keys of a sample, those of its first job by their own."""
    for key, value in SAMPLES[file]["expect"].items():
        if key == "first_job":
            yield from ((f"first_job.{inner}", each) for inner, each in value.items())
        elif not key.startswith("nvidia.com/"):
            yield key, value
    labels = {key: value for key, value in SAMPLES[file]["expect"].items() if key.startswith("nvidia.com/")}
    if labels:
        yield "nvidia.com/*", labels


def places(file: str) -> Mapping[str, Any]:
    rules = [rule["keys"] for rule in MAPPING if fnmatch(file, rule["files"])]
    assert len(rules) == 1, f"{len(rules)} rules for {file}"
    found: Mapping[str, Any] = rules[0]
    return found


def held(root: Any, path: str) -> Any:
    """The value at a path; None when there is none."""
    path, _, more = path.partition("+")
    value = root
    words = path.split(".")
    for number, word in enumerate(words):
        if word == "#":
            return None if value is None else len(value) + int(more or 0)
        if word == "*":
            return [held(each, ".".join(words[number + 1 :])) for each in value]
        if isinstance(value, Mapping):
            value = value.get(word)
        elif isinstance(value, list | tuple) and word.isdigit() and int(word) < len(value):
            value = value[int(word)]
        else:
            return None
    return value


def agrees(key: str, said: Any, root: Any, path: str | list[str]) -> bool:
    """Whether the reading holds what the index says."""
    values = [held(root, each) for each in path] if isinstance(path, list) else held(root, path)
    match key:
        case "first_line_starts":
            return all(value and _written(value) in said for value in values)
        case "json":
            return isinstance(values, str) and said.partition(":")[0] in values
        case "NodeList":
            return bool([value if value is None else value or "(null)" for value in values] == said)
        case "nvidia.com/*":
            return isinstance(values, Mapping) and bool({k: v for k, v in values.items() if k in said} == said)
        case _:
            return bool(_plain(values) == _plain(said))


def _written(value: object) -> str:
    return value.strftime("%Y-%m-%dT%H:%M:%S") if isinstance(value, datetime) else str(value)


def _plain(value: Any) -> Any:
    """A text and a list of one are the same, numbers are texts, a state's case is the release's own."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        listed = [_plain(each) for each in value]
        return listed[0] if len(listed) == 1 else listed
    return value if value is None else str(value.value if isinstance(value, StrEnum) else value).upper()


def without(root: Any, path: str) -> Any:
    """The reading without what stands at a path."""
    copied = copy.deepcopy(root)
    words = path.partition("+")[0].split(".")
    words = words[: words.index("*")] if "*" in words else words
    words = words[:-1] if words[-1] == "#" else words
    parent = held(copied, ".".join(words[:-1])) if len(words) > 1 else copied
    last = words[-1]
    if isinstance(parent, Mapping):
        parent.pop(last, None)  # type: ignore[attr-defined]
    else:
        parent[int(last)] = None
    if "*" in path:
        copied[words[0]] = []
    return copied


# In old releases the flags stand beside the state, and the index holds the state alone.
def expected(file: str, key: str, said: Any) -> Any:
    if key == "gpu_nodes" and file.startswith("sinfo-json_21.08"):
        flags = {"test-node-1": ["NOT_RESPONDING"]}
        return {name: {**node, "state": [node["state"], *flags.get(name, [])]} for name, node in said.items()}
    return said


def test_every_sample_of_the_index_is_here_and_every_file_is_in_the_index() -> None:
    assert len(SAMPLES) == 37
    assert set(SAMPLES) == {path.name for path in FOLDER.iterdir()} - {"INDEX.yaml", "mapping.yaml"}
    assert all(sample["source"] for sample in SAMPLES.values())


@pytest.mark.parametrize("file", SAMPLES)
def test_a_recorded_answer_gives_what_the_index_says_of_it(file: str) -> None:
    root, paths = reading(file), places(file)
    for key, said in keys_of(file):
        assert key in paths, f"no part of the reading holds {key}"
        assert agrees(key, expected(file, key, said), root, paths[key]), (key, said, held(root, str(paths[key])))


@pytest.mark.parametrize("file", SAMPLES)
def test_a_reading_that_loses_a_field_does_not_pass(file: str) -> None:
    root, paths = reading(file), places(file)
    for key, said in keys_of(file):
        for path in paths[key] if isinstance(paths[key], list) else [paths[key]]:
            assert not agrees(key, expected(file, key, said), without(root, path), paths[key]), (key, path)


RAW = {
    "gpu_nodes": ("name", "gres", "gres_used", "state"), "nodes": ("nodes",), "jobs": ("jobs",), "slurm_release": ("release",),
    "data_parser": ("data_parser", "type"),
}  # fmt: skip


@pytest.mark.parametrize("file", [file for file in SAMPLES if file.endswith(".json") and not file.startswith("k8s")])
def test_an_answer_that_loses_a_field_does_not_pass(file: str) -> None:
    content, paths = (FOLDER / file).read_text(), places(file)
    for key, said in keys_of(file):
        if not said:
            continue  # an absent list reads as an empty one
        for raw in RAW.get(key, (key.removeprefix("first_job."),)):
            if f'"{raw}"' not in content or (raw == "type" and '"data_parser"' in content):
                continue  # in another form under another name
            try:
                found = _shaped(asdict(_slurm_json.answer(content.replace(f'"{raw}"', '"lost"').encode(), file)))
            except BadInput:
                continue
            assert not agrees(key, expected(file, key, said), found, paths[key]), (key, raw)
