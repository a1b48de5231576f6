"""Slurm's small languages: host lists, generic resources, states, time limits and times. Pure.

Shared by the readers of its JSON and of its text, which may not know each other. Every function is total over texts: it gives a value, or
raises BadInput where it says so, in time and size bounded by MOST_HOSTS.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from muster.model.errors import BadInput
from muster.model.job import Gres, JobState, NodeState

MOST_HOSTS: Final = 200_000
"""`n[000000-999999]` is a slip or an attack, not a cluster: the largest known Slurm sites have some 20,000 nodes."""

MOST_DIGITS: Final = 15
_ALIKE: Final = 1024
"""So many texts of a kind are remembered with what they mean: ten thousand nodes have dozens."""

EMPTY: Final = frozenset({"", "(null)", "N/A", "n/a", "none", "None", "NONE", "Unknown", "UNKNOWN"})
"""How Slurm writes nothing."""

_NO_VALUES: Final = frozenset({0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF, 0xFFFE, 0xFFFF})
"""NO_VAL and INFINITE of 16, 32 and 64 bits, which the JSON of old releases prints as numbers."""

_COUNT = re.compile(r"(\d{1,15})([KMGTP]?)$", re.ASCII)
_SCALE: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_LIMIT = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,4}))?(?::(\d{1,4}))?$", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$", re.ASCII)

_SIGNS: Final = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "%": "POWERING_DOWN", "$": "MAINTENANCE", "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED", "!": "POWER_DOWN", "-": "PLANNED",
}  # fmt: skip
"""The signs that sinfo hangs on a state; scontrol and the JSON write words."""

# What sinfo makes of a state and a flag, or writes short, taken apart again.
_NODE_WORDS: Final = {
    "DRAINED": ("IDLE", "DRAIN"), "DRAINING": ("ALLOCATED", "DRAIN"), "ALLOC": ("ALLOCATED",), "MIX": ("MIXED",), "DRNG": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"), "COMP": ("ALLOCATED", "COMPLETING"), "MAINT": ("IDLE", "MAINTENANCE"), "RESV": ("IDLE", "RESERVED"),
    "PLND": ("IDLE", "PLANNED"), "UNK": ("UNKNOWN",), "NO_RESPOND": ("NOT_RESPONDING",), "POWERED_DOWN": ("POWERED_DOWN",),
    "POWER": ("POWERED_DOWN",), "REBOOT": ("REBOOT_REQUESTED",), "INVAL": ("IDLE", "INVALID_REG"), "POWER_UP": ("POWERING_UP",),
}  # fmt: skip

_JOB_SHORT: Final = {
    "PD": "PENDING", "R": "RUNNING", "S": "SUSPENDED", "CG": "COMPLETING", "CD": "COMPLETED", "CA": "CANCELLED", "F": "FAILED", "TO": "TIMEOUT",
    "NF": "NODE_FAIL", "PR": "PREEMPTED", "BF": "BOOT_FAIL", "DL": "DEADLINE", "OOM": "OUT_OF_MEMORY", "CF": "CONFIGURING", "RQ": "REQUEUED",
    "RH": "REQUEUE_HOLD", "RD": "RESV_DEL_HOLD", "SE": "SPECIAL_EXIT", "SI": "SIGNALING", "SO": "STAGE_OUT", "ST": "STOPPED", "RS": "RESIZING",
}  # fmt: skip

# A flag without a state beside it says which state it goes with.
_FLAG_STATE: Final = {
    "COMPLETING": JobState.RUNNING, "CONFIGURING": JobState.RUNNING, "RESIZING": JobState.RUNNING, "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING, "STOPPED": JobState.SUSPENDED, "REQUEUED": JobState.PENDING, "REQUEUE_HOLD": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING, "REQUEUE_FED": JobState.PENDING, "SPECIAL_EXIT": JobState.PENDING,
}  # fmt: skip


def told(text: str | None) -> str:
    """The text, or nothing where Slurm wrote one of its words for nothing."""
    stripped = (text or "").strip()
    return "" if stripped in EMPTY else stripped


def split_top(text: str, separator: str = ",") -> Iterator[str]:
    """The parts between separators that stand in no bracket."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        if sign in "[(":
            depth += 1
        elif sign in "])":
            depth = max(0, depth - 1)
        elif sign == separator and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def hosts(text: str | None, most: int = MOST_HOSTS) -> tuple[str, ...]:
    """The names in a host list, in its order, each once: `rack[1-2]n[01-03,7],login`. Raises BadInput for what is none, or names too many."""
    found: dict[str, None] = {}
    left = most  # counted with repetition: a list that names one node a million times is no list either
    for part in split_top(told(text)):
        for name in _expanded(part.strip(), left):
            found[name] = None
            left -= 1
        if left < 0:
            raise BadInput(f"the host list {_short(text)} names more than {most} nodes")
    return tuple(found)


def _expanded(part: str, most: int) -> Iterable[str]:
    names = [""]
    rest = part
    while rest:
        before, bracket, after = rest.partition("[")
        if "]" in before:
            raise BadInput(f"{_short(part)} is not a host list", hint="a bracket is closed and was never opened")
        choices = [""]
        if bracket:
            inside, closed, after = after.partition("]")
            if not closed or not inside:
                raise BadInput(f"{_short(part)} is not a host list", hint="a bracket is not closed, or is empty")
            choices = list(_numbers(inside, part, most))
        if len(names) * len(choices) > max(most, 0):
            raise BadInput(f"the host list {_short(part)} names more than {MOST_HOSTS} nodes")
        names = [name + before + choice for name in names for choice in choices]
        rest = after
    return names if part else ()


def _numbers(inside: str, part: str, most: int) -> Iterator[str]:
    for item in inside.split(","):
        low, dash, high = item.partition("-")
        if not dash:
            yield item
            continue
        if not (_digits(low) and _digits(high)) or int(high) < int(low):
            raise BadInput(f"{_short(part)} is not a host list", hint=f"{_short(item)} is not a range")
        if int(high) - int(low) >= most:
            raise BadInput(f"the host list {_short(part)} names more than {MOST_HOSTS} nodes")
        for number in range(int(low), int(high) + 1):
            yield str(number).zfill(len(low))


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def _short(text: str | None) -> str:
    shown = repr(text)
    return shown if len(shown) <= 80 else shown[:76] + "...'"


@lru_cache(maxsize=_ALIKE)
def gres(text: str | None) -> tuple[Gres, ...]:
    """Generic resources: `gpu:h100:8(S:0-1),tmpdisk:7T`, also with `gres/` or `gres:` before. Never raises."""
    found = []
    for item in split_top(told(text)):
        name, bracket, detail = item.strip().partition("(")
        name = name.removeprefix("gres/").removeprefix("gres:")
        if told(name):
            found.append(_one_gres(name, detail.removesuffix(")") if bracket else ""))
    return tuple(found)


def _one_gres(name: str, detail: str) -> Gres:
    words = [word for word in name.replace("=", ":").split(":") if word != "no_consume"]
    counted = _COUNT.match(words[-1]) if len(words) > 1 else None
    if counted is not None:
        words.pop()
    kind = words[0] if words else ""
    count = int(counted[1]) * _SCALE[counted[2]] if counted is not None else (1 if words else None)
    return Gres(kind, ":".join(words[1:]), count, detail)


def gpus_of_tres(text: str | None) -> int | None:
    """GPUs in `cpu=1,node=1,gres/gpu=4,gres/gpu:h100=4`: the plain count where there is one, else the sum over types; None without any."""
    plain: int | None = None
    typed: int | None = None
    for item in split_top(told(text)):
        key, _, value = item.strip().partition("=")
        if not _digits(value):
            continue
        if key == "gres/gpu":
            plain = int(value)
        elif key.startswith("gres/gpu:"):
            typed = (typed or 0) + int(value)
    return plain if plain is not None else typed


def gpus_of_gres(text: str | None) -> int | None:
    """GPUs in a list of generic resources; None without any."""
    counts = [each.count for each in gres(text) if each.kind == "gpu" and each.count is not None]
    return sum(counts) if counts else None


def node_state(words: Iterable[str]) -> tuple[NodeState, tuple[str, ...]]:
    """The state and the flags of a node from Slurm's words: `["IDLE","DRAIN"]`, `down` with flags, `MIXED+PLANNED`, `drained*`. Never raises."""
    return _node_state(tuple(words))


@lru_cache(maxsize=_ALIKE)
def _node_state(words: tuple[str, ...]) -> tuple[NodeState, tuple[str, ...]]:
    state: NodeState | None = None
    flags: dict[str, None] = {}
    for word in (part for text in words for part in text.split("+")):
        bare = word.strip().upper()
        while bare and bare[-1] in _SIGNS:
            flags[_SIGNS[bare[-1]]] = None
            bare = bare[:-1]
        for one in _NODE_WORDS.get(bare, (bare,)):
            known = NodeState(one.lower()) if one.lower() in set(NodeState) else None
            if known is not None and state is None:
                state = known
            elif one:
                flags[one] = None
    return state or NodeState.UNKNOWN, tuple(flags)


def job_state(words: Iterable[str]) -> tuple[JobState, tuple[str, ...]]:
    """The state and the flags of a job from Slurm's words: `["RUNNING","COMPLETING"]`, `R`, `CANCELLED by 1000`. Never raises."""
    return _job_state(tuple(words))


@lru_cache(maxsize=_ALIKE)
def _job_state(words: tuple[str, ...]) -> tuple[JobState, tuple[str, ...]]:
    state: JobState | None = None
    flags: dict[str, None] = {}
    for text in words:
        for word in text.split("+"):
            bare = word.strip().upper().split(" ")[0]
            bare = _JOB_SHORT.get(bare, bare)
            known = JobState(bare.lower()) if bare.lower() in set(JobState) else None
            if known is not None and state is None:
                state = known
            elif bare:
                flags[bare] = None
    if state is None:
        state = next((_FLAG_STATE[flag] for flag in flags if flag in _FLAG_STATE), JobState.UNKNOWN)
    return state, tuple(flags)


def limit_s(text: str | None) -> tuple[int | None, bool]:
    """Seconds of `7-00:00:00`, `1:00:00`, `30:00`, `90` (minutes), and whether it is unlimited. Never raises."""
    bare = (text or "").strip()
    if bare.upper() in ("UNLIMITED", "INFINITE"):
        return None, True
    matched = _LIMIT.match(bare)
    if matched is None:
        return None, False
    days, *rest = (int(part) if part else None for part in matched.groups())
    first, second, third = rest
    if days is not None:
        return ((days * 24 + (first or 0)) * 60 + (second or 0)) * 60 + (third or 0), False
    if third is not None:
        return ((first or 0) * 60 + (second or 0)) * 60 + third, False
    return (first or 0) * 60 + (second or 0), False


def utc_text(text: str | None) -> datetime | None:
    """A time as Slurm's commands print it under TZ=UTC; None for any other text. Never raises."""
    bare = told(text).strip('"')
    if not _TIME.match(bare):
        return None
    try:
        return datetime.fromisoformat(bare).replace(tzinfo=UTC)
    except ValueError:
        return None


def utc_number(number: int | None) -> datetime | None:
    """Seconds since 1970 as a time; None for 0 and for Slurm's numbers for nothing. Never raises."""
    if number is None or number <= 0 or number in _NO_VALUES:
        return None
    try:
        return datetime.fromtimestamp(number, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def is_no_value(number: int) -> bool:
    """Whether a number is one that Slurm writes for nothing or for endless."""
    return number in _NO_VALUES


@lru_cache(maxsize=_ALIKE)
def words_of(text: str | None) -> tuple[str, ...]:
    """`a,b` as its parts; nothing for nothing."""
    return tuple(part.strip() for part in told(text).split(",") if part.strip())
