"""What `scontrol show node|job|partition|reservation|config` and `squeue` print as text. Pure.

It is the way back where the JSON plugins are not installed, and it looks the same over all releases. Times are those of TZ=UTC: the caller
sets it, since the text names no zone. Users choose the text of some fields (a job's name, command, comment): a `Key=value` inside such a
field is never taken for Slurm's own word. Any bytes give values or BadInput with the line.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, TypeVar

from muster.backends import _slurm_words as words
from muster.model.errors import BadInput
from muster.model.job import Job, Partition, Reservation, SchedulerConfig, SchedulerNode

T = TypeVar("T")

MAX_BYTES: Final = 512 * 1024 * 1024

_KEY = re.compile(r"(?:^|(?<=\s))([A-Z][A-Za-z_:/]*)=")
# Whoever drained the node chose these words; they end where Slurm says who that was, and when.
_REASON = re.compile(r"(?:^|\s)Reason=([^\n]*?)\[([^\]\[@\n]*)@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]", re.MULTILINE)
_SETTING = re.compile(r"([A-Za-z][\w/.\[\]]*)\s*= ?(.*)$", re.ASCII)

_FREE_LINES: Final = frozenset(
    {
        "Command",
        "WorkDir",
        "StdErr",
        "StdIn",
        "StdOut",
        "Comment",
        "AdminComment",
        "SystemComment",
        "SubmitLine",
        "Extra",
    }
)
"""Fields of a job that stand alone on a line and hold what a user wrote."""


def _records(content: bytes, name: str, first: str) -> Iterator[tuple[int, list[str]]]:
    """The line number and the lines of each record, which begins with `first=` and ends before the next one."""
    if len(content) > MAX_BYTES:
        raise BadInput(f"{name}: {len(content)} bytes; at most {MAX_BYTES} are read", hint="ask for one partition")
    lines: list[str] = []
    start = 0
    for number, raw in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
        line = raw.rstrip()
        if line.startswith(f"{first}="):
            if lines:
                yield start, lines
            lines, start = [line], number
        elif line and lines:
            lines.append(line)
        elif line and not line.startswith(("No ", "Slurmctld")):
            raise BadInput(f"{name}:{number}: `{first}=` is expected, not {line[:60]!r}")
    if lines:
        yield start, lines


def _read(content: bytes, name: str, first: str, read: Callable[[list[str]], T]) -> tuple[T, ...]:
    found = []
    for number, lines in _records(content, name, first):
        try:
            found.append(read(lines))
        except BadInput as fault:
            raise BadInput(f"{name}:{number}: {fault.message}", hint=fault.hint) from None
    return tuple(found)


def _fields(lines: Sequence[str], free_lines: frozenset[str] = frozenset()) -> Mapping[str, str]:
    """`Key=value` pairs; a value goes on to the next key, those of `free_lines` to the end of the line. The first of a key counts."""
    found: dict[str, str] = {}
    for line in lines:
        places = list(_KEY.finditer(line))
        for place, following in zip_longest(places, places[1:]):
            free = place[1] in free_lines
            end = len(line) if free or following is None else following.start()
            found.setdefault(place[1], line[place.end() : end].strip())
            if free:
                break
    return found


def nodes(content: bytes, name: str) -> tuple[SchedulerNode, ...]:
    """The nodes of `scontrol show node`, with `-o` or without. Raises BadInput with the line for anything else."""
    return _read(content, name, "NodeName", _node)


def _node(lines: list[str]) -> SchedulerNode:
    told = _fields(lines)
    if not told["NodeName"]:
        raise BadInput("a node without a name")
    state, flags = words.node_state((told.get("State", "").partition(" ")[0],))
    gres, used = words.told(told.get("Gres")), words.told(told.get("GresUsed"))
    reason, by, at = words.told(told.get("Reason")), "", None
    if reason and (matched := _REASON.search("\n".join(lines))):
        reason, by, at = matched[1].strip(), matched[2], words.utc_text(matched[3])
    return SchedulerNode(
        name=told["NodeName"],
        state=state,
        flags=flags,
        address=words.told(told.get("NodeAddr")),
        hostname=words.told(told.get("NodeHostName")),
        reason=reason,
        reason_by=by,
        reason_at=at,
        partitions=words.words_of(told.get("Partitions")),
        features=words.words_of(told.get("AvailableFeatures")),
        active_features=words.words_of(told.get("ActiveFeatures")),
        gres=words.gres(gres),
        gres_used=words.gres(used),
        gres_text=gres,
        gres_used_text=used,
        tres=words.told(told.get("CfgTRES")),
        reservation=words.told(told.get("ReservationName")),
        version=words.told(told.get("Version")),
        boot_at=words.utc_text(told.get("BootTime")),
    )


def jobs(content: bytes, name: str) -> tuple[Job, ...]:
    """The jobs of `scontrol show job` (without `-o`: on one line a job's name could pass for its nodes). Raises BadInput with the line."""
    return _read(content, name, "JobId", _job)


def _job(lines: list[str]) -> Job:
    head, separator, called = lines[0].partition(" JobName=")
    if not separator:
        raise BadInput("a job without a name")
    if len(lines) == 1:
        raise BadInput("jobs on one line each cannot be read safely", hint="print them without -o")
    told = {**_fields(lines[1:], _FREE_LINES), **_fields([head])}
    state, flags = words.job_state((told.get("JobState", "").partition(" ")[0],))
    limit, unlimited = words.limit_s(told.get("TimeLimit"))
    # Old releases write one TRES: what a running job holds and what a waiting one asks for.
    wanted = words.told(told.get("ReqTRES") or told.get("TRES"))
    held = words.told(told.get("AllocTRES")) or (
        wanted if "ReqTRES" not in told and words.told(told.get("NodeList")) else ""
    )
    size = told.get("NumNodes", "").partition("-")[0]
    gres = tuple(
        gres for line in lines for gres in re.findall(r"(?:^|\s)(?:JOB_GRES|GRES)=(\S+)", line) if words.told(gres)
    )
    per = {
        key: text
        for key, field in (("per_job", "TresPerJob"), ("per_node", "TresPerNode"), ("per_task", "TresPerTask"))
        if (text := words.told(told.get(field)))
    }
    per_job, per_node = words.gpus_of_gres(per.get("per_job")), words.gpus_of_gres(per.get("per_node"))
    if per_job is None and per_node is not None and size.isdecimal():
        per_job = per_node * int(size[:9])
    counts = (words.gpus_of_tres(held), words.gpus_of_tres(wanted), per_job)
    return Job(
        job_id=told["JobId"].partition(" ")[0],
        name=called,
        nodes=words.hosts(told.get("NodeList")),
        state=state,
        flags=flags,
        reason=words.told(told.get("Reason")),
        user=told.get("UserId", "").partition("(")[0],
        account=words.told(told.get("Account")),
        partitions=words.words_of(told.get("Partition")),
        size=int(size[:9]) if size.isdecimal() else None,
        gpus=next((count for count in counts if count is not None), None),
        gres=gres,
        submitted_at=words.utc_text(told.get("SubmitTime")),
        starts_at=words.utc_text(told.get("StartTime")),
        ends_at=None if unlimited else words.utc_text(told.get("EndTime")),
        limit_s=limit,
        unlimited=unlimited,
        reservation=words.told(told.get("Reservation")),
        features=words.told(told.get("Features")),
        dependency=words.told(told.get("Dependency")),
        required_nodes=words.told(told.get("ReqNodeList")),
        excluded_nodes=words.told(told.get("ExcNodeList")),
        requeue={"1": True, "0": False}.get(told.get("Requeue", "")),
        array_id=words.told(told.get("ArrayJobId")),
        tres_wanted=wanted,
        tres_held=held,
        tres_per=per,
    )


SQUEUE_FIELDS: Final = (
    "job_id", "array_id", "state", "partition", "user", "account", "size", "nodes", "limit", "starts_at", "ends_at", "submitted_at",
    "reservation", "features", "per_node", "dependency", "requeue", "reason", "name",
)  # fmt: skip
"""What SQUEUE_FORMAT prints, in its order; the name is last, since it may hold the separator."""

SQUEUE_FORMAT: Final = "%A|%F|%T|%P|%u|%a|%D|%N|%l|%S|%e|%V|%v|%f|%b|%E|%h|%r|%j"


RUNNING_FIELDS: Final = ("job_id", "state", "size", "limit", "ends_at", "partition", "account", "nodes")
RUNNING_FORMAT: Final = "%A|%T|%D|%l|%e|%P|%a|%N"
"""What a planner needs of running jobs, and no text that a user chose: as safe as JSON, at a hundredth of its length."""


def squeue(content: bytes, name: str, fields: Sequence[str] = SQUEUE_FIELDS, separator: str = "|") -> tuple[Job, ...]:
    """The jobs of `squeue` without a header, one a line, in columns of these names; others are passed over. Raises BadInput with the line."""
    found = []
    for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
        if not line.strip():
            continue
        cells = line.split(separator, len(fields) - 1)
        if len(cells) < len(fields):
            raise BadInput(f"{name}:{number}: {len(cells)} columns, {len(fields)} are expected")
        told = dict(zip(fields, (cell.strip() for cell in cells), strict=True))
        try:
            found.append(_row(told))
        except BadInput as fault:
            raise BadInput(f"{name}:{number}: {fault.message}", hint=fault.hint) from None
    return tuple(found)


def _row(told: Mapping[str, str]) -> Job:
    if not told.get("job_id"):
        raise BadInput("a job without a number")
    state, flags = words.job_state((told.get("state", ""),))
    limit, unlimited = words.limit_s(told.get("limit"))
    nodes = words.hosts(told.get("nodes"))
    size = int(told["size"][:9]) if told.get("size", "").isdecimal() else (len(nodes) or None)
    tres, per_node = words.told(told.get("tres")), words.told(told.get("per_node"))
    a_node = words.gpus_of_gres(per_node)
    counted = words.gpus_of_tres(tres)
    running = bool(nodes)
    return Job(
        job_id=told["job_id"],
        name=told.get("name", ""),
        nodes=nodes,
        state=state,
        flags=flags,
        reason=words.told(told.get("reason")),
        user=told.get("user", ""),
        account=words.told(told.get("account")),
        partitions=words.words_of(told.get("partition")),
        size=size,
        gpus=counted if counted is not None else (a_node * size if a_node is not None and size is not None else None),
        gres=(),
        submitted_at=words.utc_text(told.get("submitted_at")),
        starts_at=words.utc_text(told.get("starts_at")),
        ends_at=None if unlimited else words.utc_text(told.get("ends_at")),
        limit_s=limit,
        unlimited=unlimited,
        reservation=words.told(told.get("reservation")),
        features=words.told(told.get("features")),
        dependency=words.told(told.get("dependency")),
        requeue={"1": True, "0": False}.get(told.get("requeue", "")),
        array_id=words.told(told.get("array_id")),
        tres_wanted="" if running else tres,
        tres_held=tres if running else "",
        tres_per={"per_node": per_node} if per_node else {},
    )


def partitions(content: bytes, name: str) -> tuple[Partition, ...]:
    """The partitions of `scontrol show partition`. Raises BadInput with the line."""
    return _read(content, name, "PartitionName", _partition)


def _partition(lines: list[str]) -> Partition:
    told = _fields(lines)
    seconds, _ = words.limit_s(told.get("MaxTime"))
    return Partition(
        told["PartitionName"],
        words.hosts(told.get("Nodes")),
        words.told(told.get("State")),
        told.get("Default") == "YES",
        seconds,
    )


def reservations(content: bytes, name: str) -> tuple[Reservation, ...]:
    """The reservations of `scontrol show reservation`. Raises BadInput with the line."""
    return _read(content, name, "ReservationName", _reservation)


def _reservation(lines: list[str]) -> Reservation:
    told = _fields(lines)
    return Reservation(
        told["ReservationName"],
        words.hosts(told.get("Nodes")),
        words.utc_text(told.get("StartTime")),
        words.utc_text(told.get("EndTime")),
        words.words_of(told.get("Flags")),
        words.words_of(told.get("Users")),
    )


def config(content: bytes, name: str) -> SchedulerConfig:
    """The settings of `scontrol show config`. Raises BadInput when it does not say its release."""
    settings: dict[str, str] = {}
    text = content.decode("utf-8", "replace")
    as_of = text.partition("\n")[0].removeprefix("Configuration data as of ")
    for line in text.split("\n"):
        matched = _SETTING.match(line.rstrip())
        if matched is not None:
            settings.setdefault(matched[1], matched[2].strip())
    version = settings.get("SLURM_VERSION", "")
    if not version:
        raise BadInput(f"{name}:1: does not say SLURM_VERSION", hint="it reads `scontrol show config`")
    return SchedulerConfig(version, words.told(settings.get("ClusterName")), settings, words.utc_text(as_of))
