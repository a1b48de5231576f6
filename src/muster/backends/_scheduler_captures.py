"""Captured answers of schedulers, for `muster facts parse`: what the readers of Slurm's and Kubernetes' answers find, as facts by path. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any, Final

from muster.backends import _kubernetes_labels, _slurm_json, _slurm_log, _slurm_text
from muster.model.capture import CaptureSpec
from muster.model.errors import BadInput
from muster.model.fact import FactValue, Unknown

MOST: Final = 10_000
"""How many nodes or jobs of one answer are told."""

SQUEUE_EXPORTER: Final = (
    "per_node", "min_cpus", "array", "job_id", "name", "limit", "memory", "command", "priority", "state", "user", "cpus", "size", "left",
    "used", "nodes", "dependency", "excluded", "starts_at", "submitted_at", "eligible_at", "accrue_at", "pending_s", "comment", "partition",
    "account", "qos", "reason", "tres", "reservation", "requeue", "features", "restarts", "scheduled", "rest",
)  # fmt: skip
"""The columns in which a widespread exporter of metrics asks squeue for all it has, with `|#` between them."""

_UNSAFE = re.compile(r"[^\w./:+-]")

_Facts = Mapping[str, FactValue]


def _value(value: object) -> FactValue | None:
    if value is None or value == "" or value == ():
        return None
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return value
    return None


def _told(prefix: str, one: object) -> Iterable[tuple[str, FactValue]]:
    """The fields of one node, job, ... that were told."""
    for field in fields(one):  # type: ignore[arg-type]
        value = getattr(one, field.name)
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if (plain := _value(inner)) is not None:
                    yield f"{prefix}.{field.name}[{_key(key)}]", plain
        elif (plain := _value(value)) is not None:
            yield f"{prefix}.{field.name}", plain


def _key(text: str) -> str:
    return _UNSAFE.sub("_", text)[:120]


def _all(kind: str, named: str, found: Iterable[object]) -> dict[str, FactValue]:
    facts: dict[str, FactValue] = {}
    listed = tuple(found)
    facts[f"slurm.{kind}s"] = len(listed)
    for each in listed[:MOST]:
        facts |= _told(f"slurm.{kind}[{_key(str(getattr(each, named)))}]", each)
    return facts


def _json(content: bytes) -> _Facts:
    answer = _slurm_json.answer(content, "the answer")
    facts: dict[str, FactValue] = {"slurm.release": answer.release} if answer.release else {}
    facts |= {"slurm.form": answer.form} if answer.form else {}
    if answer.nodes or not answer.jobs:
        facts |= _all("node", "name", answer.nodes)
    if answer.jobs or not answer.nodes:
        facts |= _all("job", "job_id", answer.jobs)
    return facts


def _config(content: bytes) -> _Facts:
    return dict(_told("slurm.config", _slurm_text.config(content, "the answer")))


def _log(content: bytes) -> _Facts:
    facts: dict[str, FactValue] = {}
    for number, complaint in enumerate(_slurm_log.complaints(content), 1):
        facts |= _told(f"slurm.complaint[{number:07}]", complaint)
    return facts


def _labels(content: bytes) -> _Facts:
    labels = _kubernetes_labels.labels(content, "the answer")
    facts: dict[str, FactValue] = {f"label[{_key(key)}]": value for key, value in list(labels.items())[:MOST]}
    return facts | dict(_told("kubernetes.gpu", _kubernetes_labels.gpu_labels(labels)))


def _parsed(read: Callable[[bytes], _Facts], text: str) -> _Facts:
    try:
        return read(text.encode("utf-8", "replace"))
    except BadInput as fault:
        return {"scheduler.answer": Unknown(fault.message)}


def _begins(words: str, head: str) -> int:
    """By the first word of its first line."""
    return 95 if head.lstrip().startswith(words) else 0


def _is_json(head: str, *, labels: bool) -> int:
    if not head.lstrip().startswith("{"):
        return 0
    is_kubernetes = (
        '"metadata"' in head
        or re.search(r'"(?:nvidia\.com|kubernetes\.io|beta\.kubernetes\.io|feature\.node)', head) is not None
    )
    slurm = any(
        word in head
        for word in ('"Slurm', '"data_parser"', '"slurm"', '"active_features"', '"accrue_time"', '"allocating_node"')
    )
    if labels:
        return 90 if is_kubernetes and not slurm else 0
    return 92 if slurm else 0


def _is_log(head: str) -> int:
    return 91 if "gres.conf file" in head or "gres/gpu count reported lower" in head else 0


def _is_squeue(head: str) -> int:
    return 91 if head.partition("\n")[0].count("|#") >= len(SQUEUE_EXPORTER) - 2 else 0


def _spec(name: str, what: str, sniff: Callable[[str], int], read: Callable[[bytes], Any]) -> CaptureSpec:
    return CaptureSpec(name, what, sniff, partial(_parsed, read))


READERS: Final[tuple[CaptureSpec, ...]] = (
    _spec("kubernetes_labels", "kubectl get node NAME -o json", partial(_is_json, labels=True), _labels),
    _spec(
        "slurm_config", "scontrol show config", partial(_begins, "Configuration data as of"), _config
    ),
    _spec(
        "slurm_jobs", "scontrol show job", partial(_begins, "JobId="),
        lambda content: _all("job", "job_id", _slurm_text.jobs(content, "the answer")),
    ),
    _spec("slurm_json", "sinfo, squeue, sacct or scontrol show with --json; what slurmrestd answers", partial(_is_json, labels=False), _json),
    _spec("slurm_log", "the log of slurmd or slurmctld", _is_log, _log),
    _spec(
        "slurm_nodes", "scontrol show node", partial(_begins, "NodeName="),
        lambda content: _all("node", "name", _slurm_text.nodes(content, "the answer")),
    ),
    _spec(
        "slurm_partitions", "scontrol show partition", partial(_begins, "PartitionName="),
        lambda content: _all("partition", "name", _slurm_text.partitions(content, "the answer")),
    ),
    _spec(
        "slurm_squeue", "squeue with the columns of a metrics exporter, `|#` between them", _is_squeue,
        lambda content: _all("job", "job_id", _slurm_text.squeue(content, "the answer", SQUEUE_EXPORTER, "|#")),
    ),
)  # fmt: skip
"""The readers, by name."""
