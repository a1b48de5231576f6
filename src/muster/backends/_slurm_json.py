"""What Slurm's commands print with `--json`, and slurmrestd answers, from 21.08 to 25.11. Pure.

The forms changed with each release: a number became `{"set", "infinite", "number"}`, a state became a list, `sinfo` lists groups of nodes
instead of nodes since 23.02, one object may come without a wrapper. Read is what is there, in whatever of these forms; what is missing stays
empty. Any bytes give an Answer or BadInput, in time and size bounded by their length.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from muster.backends import _slurm_words as words
from muster.model.errors import BadInput
from muster.model.job import Answer, Job, SchedulerNode

Object: TypeAlias = Mapping[str, Any]

MAX_BYTES: Final = 512 * 1024 * 1024
"""`sinfo --json` of 10,000 nodes is 13 MB, `squeue --json` of 100,000 jobs some 400 MB."""

_NOT_TOLD: Final = {"set": False}
_PER: Final = ("job", "node", "socket", "task")


def answer(content: bytes, name: str) -> Answer:
    """The nodes and jobs in what a command printed; `name` is what messages call it. Raises BadInput for what is no answer of Slurm."""
    root = _root(content, name)
    release, form = _meta(root)
    warnings = tuple(_said(root, "warnings"))
    # A slurmctld that is away makes an empty list with an error beside it, and exit status 0: that is no cluster without jobs.
    errors = tuple(_said(root, "errors"))
    if errors:
        raise BadInput(f"{name}: {'; '.join(errors[:4])}", hint="is slurmctld up, and this machine allowed to ask it?")
    if "nodes" in root and isinstance(root["nodes"], list):
        nodes = tuple(_each(root["nodes"], name, "nodes", _node))
        return Answer(release, form, nodes=nodes, warnings=warnings)
    if isinstance(root.get("sinfo"), list):
        return Answer(release, form, nodes=_grouped(root["sinfo"], name), warnings=warnings)
    if isinstance(root.get("jobs"), list):
        return Answer(release, form, jobs=tuple(_each(root["jobs"], name, "jobs", _job)), warnings=warnings)
    if isinstance(root.get("name"), str) and "state" in root and "partitions" in root:
        return Answer(release or _text(root.get("version")), form, nodes=(_node(root),), warnings=warnings)
    if isinstance(root.get("job_id"), int):
        return Answer(release, form, jobs=(_job(root),), warnings=warnings)
    raise BadInput(
        f"{name}: neither nodes nor jobs of Slurm",
        hint="it reads `sinfo --json`, `scontrol show nodes --json`, `squeue --json` and `sacct --json`",
    )


def _root(content: bytes, name: str) -> Object:
    if len(content) > MAX_BYTES:
        raise BadInput(f"{name}: {len(content)} bytes; at most {MAX_BYTES} are read", hint="ask for one partition")
    try:
        root = json.loads(content.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{name}:{error.lineno}: not JSON: {error.msg}", hint="was it cut short?") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{name}:1: not JSON that anybody wrote: a number or a nesting without end") from None
    if not isinstance(root, dict):
        raise BadInput(f"{name}:1: a JSON object is expected, not {type(root).__name__}")
    return root


def _meta(root: Object) -> tuple[str, str]:
    meta = _object(root.get("meta"))
    told = _object(meta.get("slurm")) or _object(meta.get("Slurm"))
    plugin = _object(meta.get("plugin"))
    return _text(told.get("release")), _text(plugin.get("data_parser")) or _text(plugin.get("type"))


def _said(root: Object, key: str) -> Iterator[str]:
    listed = root.get(key)
    for each in listed if isinstance(listed, list) else ():
        told = _object(each)
        texts = dict.fromkeys((_text(told.get("description")), _text(told.get("error")), _text(each)))
        yield "Slurm says: " + (": ".join(text[:200] for text in texts if text) or "something went wrong")


def _each(listed: Sequence[object], name: str, what: str, read: Any) -> Iterator[Any]:
    for number, each in enumerate(listed):
        if not isinstance(each, dict):
            raise BadInput(f"{name}: {what}[{number}] is no object")
        try:
            yield read(each)
        except BadInput as fault:
            raise BadInput(f"{name}: {what}[{number}]: {fault.message}", hint=fault.hint) from None


def _node(node: Object) -> SchedulerNode:
    name = _text(node.get("name"))  # its hostname is another thing: several nodes may share one
    if not name:
        raise BadInput("a node without a name")
    state, flags = words.node_state((*_texts(node.get("state")), *_texts(node.get("state_flags"))))
    gres, used = words.told(_text(node.get("gres"))), words.told(_text(node.get("gres_used")))
    return SchedulerNode(
        name=name,
        state=state,
        flags=flags,
        address=_text(node.get("address")),
        hostname=_text(node.get("hostname")),
        reason=words.told(_text(node.get("reason"))),
        reason_by=_text(node.get("reason_set_by_user")),
        reason_at=words.utc_number(_number(node.get("reason_changed_at"))),
        partitions=_texts(node.get("partitions")),
        features=_texts(node.get("features")),
        active_features=_texts(node.get("active_features")),
        gres=words.gres(gres),
        gres_used=words.gres(used),
        gres_text=gres,
        gres_used_text=used,
        tres=words.told(_text(node.get("tres"))),
        reservation=_text(node.get("reservation")),
        version=_text(node.get("version")) or _text(node.get("slurmd_version")),
        boot_at=words.utc_number(_number(node.get("boot_time"))),
    )


def _grouped(listed: Sequence[object], name: str) -> tuple[SchedulerNode, ...]:
    """Nodes out of sinfo's groups: a node stands in one group for each of its partitions."""
    found: dict[str, SchedulerNode] = {}
    for group in _each(listed, name, "sinfo", _group):
        for node in group:
            known = found.get(node.name)
            if known is not None:
                partitions = tuple(dict.fromkeys((*known.partitions, *node.partitions)))
                node = _with_partitions(known, partitions)
            found[node.name] = node
            if len(found) > words.MOST_HOSTS:
                raise BadInput(f"{name}: more than {words.MOST_HOSTS} nodes")
    return tuple(found.values())


def _group(group: Object) -> tuple[SchedulerNode, ...]:
    listed = _object(group.get("nodes"))
    names = _hosts(listed.get("nodes")) or _hosts(listed.get("hostnames"))
    addresses = _hosts(listed.get("addresses"))
    state, flags = words.node_state(_texts(_object(group.get("node")).get("state")))
    features, gres, reason = (_object(group.get(key)) for key in ("features", "gres", "reason"))
    total, used = words.told(_text(gres.get("total"))), words.told(_text(gres.get("used")))
    partition = _text(_object(group.get("partition")).get("name"))
    return tuple(
        SchedulerNode(
            name=name,
            state=state,
            flags=flags,
            # Sorted apart from the names, so only a group of one says whose address it is.
            address=addresses[0] if len(names) == len(addresses) == 1 else "",
            reason=words.told(_text(reason.get("description")) or _text(group.get("reason"))),
            reason_by=_text(reason.get("user")),
            reason_at=words.utc_number(_number(reason.get("time"))),
            partitions=(partition,) if partition else (),
            features=words.words_of(_text(features.get("total"))),
            active_features=words.words_of(_text(features.get("active"))),
            gres=words.gres(total),
            gres_used=words.gres(used) if len(names) == 1 else (),
            gres_text=total,
            gres_used_text=used if len(names) == 1 else "",
            reservation=_text(group.get("reservation")),
        )
        for name in names
    )


def _with_partitions(node: SchedulerNode, partitions: tuple[str, ...]) -> SchedulerNode:
    values = {key: getattr(node, key) for key in SchedulerNode.__slots__}
    return SchedulerNode(**{**values, "partitions": partitions})


def _job(job: Object) -> Job:
    current = _object(job.get("state"))
    state, flags = words.job_state((*_texts(job.get("job_state")), *_texts(current.get("current"))))
    times = _object(job.get("time"))
    limit, unlimited = _limit(job.get("time_limit", times.get("limit", _NOT_TOLD)))
    held, wanted = _tres(job, "allocated", "tres_alloc_str"), _tres(job, "requested", "tres_req_str")
    gres = _texts(job.get("gres_detail"))
    per = {f"per_{key}": text for key in _PER if (text := words.told(_text(job.get(f"tres_per_{key}"))))}
    nodes = _hosts(job.get("nodes"))
    size = _first(_number(job.get("node_count")), _number(job.get("allocation_nodes")), len(nodes) or None)
    return Job(
        job_id=str(job["job_id"]) if isinstance(job.get("job_id"), int) else _text(job.get("job_id")),
        name=_text(job.get("name")),
        nodes=nodes,
        state=state,
        flags=flags,
        reason=words.told(_text(job.get("state_reason")) or _text(current.get("reason"))),
        user=_text(job.get("user_name")) or _text(job.get("user")),
        account=_text(job.get("account")),
        partitions=words.words_of(_text(job.get("partition"))),
        size=size,
        gpus=_gpus(held, gres, wanted, per, size),
        gres=gres,
        submitted_at=words.utc_number(_first(_number(job.get("submit_time")), _number(times.get("submission")))),
        starts_at=words.utc_number(_first(_number(job.get("start_time")), _number(times.get("start")))),
        ends_at=None
        if unlimited
        else words.utc_number(_first(_number(job.get("end_time")), _number(times.get("end")))),
        limit_s=limit,
        unlimited=unlimited,
        reservation=_text(job.get("resv_name")) or _text(_object(job.get("reservation")).get("name")),
        features=_text(job.get("features")) or _text(job.get("constraints")),
        dependency=_text(job.get("dependency")),
        required_nodes=_text(job.get("required_nodes")),
        excluded_nodes=_text(job.get("excluded_nodes")),
        requeue=job.get("requeue") if isinstance(job.get("requeue"), bool) else None,
        array_id=_array(job),
        tres_wanted=wanted,
        tres_held=held,
        tres_per=per,
    )


def _gpus(held: str, gres: Sequence[str], wanted: str, per: Mapping[str, str], size: int | None) -> int | None:
    """Over all nodes: what is held counts before what is asked for. A job's TRES leaves GPUs out where a site does not account for them."""
    details = [count for text in gres if (count := words.gpus_of_gres(text)) is not None]
    asked = words.gpus_of_gres(per.get("per_job"))
    a_node = words.gpus_of_gres(per.get("per_node"))
    return _first(
        words.gpus_of_tres(held),
        sum(details) if details else None,
        words.gpus_of_tres(wanted),
        asked,
        a_node * size if a_node is not None and size is not None else None,
    )


def _tres(job: Object, kind: str, text_key: str) -> str:
    """`cpu=1,node=1,gres/gpu=4`, which sacct gives as a list of objects."""
    text = words.told(_text(job.get(text_key)))
    if text:
        return text
    listed = _object(job.get("tres")).get(kind)
    parts = []
    for each in listed if isinstance(listed, list) else ():
        told = _object(each)
        count = _number(told.get("count"))
        if _text(told.get("type")) and count is not None:
            name = _text(told.get("name"))
            parts.append(f"{_text(told['type'])}{'/' + name if name else ''}={count}")
    return ",".join(parts)


def _array(job: Object) -> str:
    array = _first(_number(job.get("array_job_id")), _number(_object(job.get("array")).get("job_id")))
    return str(array) if array else ""


def _limit(value: object) -> tuple[int | None, bool]:
    """Seconds of a limit in minutes, and whether there is none. Releases before 23.02 write nothing for endless, and an end in a year."""
    if value is None or (isinstance(value, dict) and value.get("infinite") is True):
        return None, True
    minutes = _number(value)
    if minutes is None:
        return None, isinstance(value, int) and value == 0xFFFFFFFF
    return minutes * 60, False


def _hosts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return words.hosts(value)
    return words.hosts(",".join(_texts(value)))


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    """A text that can be printed and kept: JSON can name half a character, which no file or terminal takes."""
    if value.__class__ is not str:
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _texts(value: object) -> tuple[str, ...]:
    """A list of texts, which old releases write as one text with commas."""
    if value.__class__ is list:
        return tuple(text for each in value if (text := _text(each))) if value else ()
    return words.words_of(_text(value))


def _number(value: object) -> int | None:
    """A whole number in any of its forms; None for those that mean nothing."""
    if value.__class__ is int:
        return value if not words.is_no_value(value) and abs(value) < 10**words.MOST_DIGITS else None
    if isinstance(value, dict):
        if value.get("set") is False or value.get("infinite") is True:
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int) or words.is_no_value(value):
        return None
    return value if abs(value) < 10**words.MOST_DIGITS else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
