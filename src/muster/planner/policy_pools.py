"""The `pools` section of a fleet.yaml: who belongs to a pool, what it shall carry and how gently it is changed.

Apart from `planner.policy` only for size; it reads no file and knows no other section.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from muster.documents import Entry, Fields, Map, Node, Reader, Scalar, Sequence
from muster.model.frozen import dataclass
from muster.model.plan import CHANGE_S
from muster.model.policy import (
    Drain,
    DrainPolicy,
    DriverPolicy,
    DriverWish,
    Flavour,
    KernelPolicy,
    Match,
    MaxUnavailable,
    Permission,
    Pool,
    ReleaseLine,
    Tier,
    WantBranch,
    WantNewest,
    WantVersion,
)
from muster.model.quantities import AMOUNT_HINT, DURATION_HINT, WINDOW_HINT, Amount, Window, parse_duration_s
from muster.model.ranges import Ranges, parse_ranges
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.driver import DriverVersion
from muster.model.versions.kernel import KernelVersion

Check = Callable[[str], None]
"""Raises ValueError for a text that the machine or the knowledge base does not know."""


def anything(text: str) -> None:
    """The check that knows no better."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What reading a policy cannot know by itself: whether a time zone, a GPU family, the folder of a site's knowledge exist.

    The folder is asked about before any family.
    """

    zone: Check = anything
    gpu: Check = anything
    knowledge: Check = anything


TIERS: Final = {tier.value: tier for tier in Tier}
FLAVOURS: Final = {flavour.value: flavour for flavour in Flavour}
PERMISSIONS: Final = {permission.value: permission for permission in Permission}
_LINES: Final = {line.value: line for line in ReleaseLine}
_DRAINS: Final = {policy.value: policy for policy in DrainPolicy}
# What a batch system can deliver and a training script can catch; KILL cannot be caught, so it asks for nothing.
_SIGNALS: Final = {name: name for name in ("USR1", "USR2", "TERM", "INT", "HUP", "CONT", "QUIT")}
_POOL_KEYS: Final = ("match", "tier", "driver", "cuda", "drain", "max_unavailable", "windows", "reload", "kernel")
_WISH_KEYS: Final = ("want", "branch", "newest")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_MATCH_KEY = re.compile(r"gpu|(?:label|slurm)\.[A-Za-z0-9_./-]+|[a-z][a-z0-9_]*(?:\[[^\[\]]+\])?"
                        r"(?:\.[a-z][a-z0-9_]*(?:\[[^\[\]]+\])?)+|arch|hostname", re.ASCII)  # fmt: skip
_PACKAGE_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~:_-]{0,99}", re.ASCII)
_BRANCH = re.compile(r"R[0-9]{3}", re.ASCII)


def name_text(text: str) -> str:
    """A name that may stand in paths, labels and ids; raises ValueError for any other."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name: up to 63 letters, digits, '.', '_', '-', the first a letter or digit")
    return text


def read_pools(reader: Reader, node: Node, checks: Checks) -> tuple[Pool, ...]:
    """Every pool, in the order written; faults also two pools of which one must hold every node of the other."""
    entries = reader.entries(node, "pools", "write 'NAME: {match: {...}, driver: {...}}'")
    if isinstance(node, Map) and not entries:
        reader.fault(node, "pools names no pool", "add one, or nothing would ever be looked after")
    pools: list[Pool] = []
    for entry in entries:
        try:
            name_text(entry.key)
        except ValueError as error:
            reader.fault(entry, f"pool name {error}", "a short name such as train")
        pool = _pool(reader, entry, checks)
        pools.append(pool)
    for at, pool in enumerate(pools):
        for other, before in zip(entries[:at], pools[:at], strict=False):
            words = _overlap(pool, before)
            if words:
                message = f"pool {pool.name} {words} pool {before.name} on line {other.line}"
                reader.fault(entries[at], message, "a node belongs to one pool at most; tell them apart in match")
                break
    return tuple(pools)


def _overlap(pool: Pool, other: Pool) -> str:
    """How the matches of two pools must collide, whatever nodes there are; empty where that is not certain."""
    within, around = _is_within(pool.match, other.match), _is_within(other.match, pool.match)
    if within and around:
        return "matches the same nodes as"
    return "matches only nodes that are also in" if within else "matches every node of" if around else ""


def _is_within(inner: tuple[Match, ...], outer: tuple[Match, ...]) -> bool:
    """Whether every node that meets `inner` meets `outer` too: each condition of it is there, at least as narrow."""
    asked = {match.key: match.values for match in inner}
    return bool(outer) and all(
        match.key in asked and ("*" in match.values or set(asked[match.key]) <= set(match.values)) for match in outer
    )


def _pool(reader: Reader, entry: Entry, checks: Checks) -> Pool:
    what = f"pool {entry.key}"
    fields = reader.fields(entry.value, what, _POOL_KEYS, required=("match",))
    match, driver = fields.node_of("match"), fields.node_of("driver")
    drain, bound = fields.node_of("drain"), fields.node_of("max_unavailable")
    windows, kernel = fields.node_of("windows"), fields.node_of("kernel")
    return Pool(
        name=entry.key,
        match=() if match is None else _match(reader, match, what, checks.gpu),
        tier=fields.choice("tier", TIERS, Tier.STANDARD),
        driver=None if driver is None else _driver(reader, driver, what),
        cuda=fields.value("cuda", cuda_range, None, 'write a range such as ">=12.4" or ">=12.4,<14"'),
        drain=Drain() if drain is None else _drain(reader, drain, what),
        max_unavailable=MaxUnavailable() if bound is None else _max_unavailable(reader, bound, what),
        windows=() if windows is None else _windows(reader, windows, what, checks.zone),
        reload=fields.choice("reload", PERMISSIONS, Permission.ALLOWED),
        kernel=None if kernel is None else _kernel(reader, kernel, fields, what),
    )


def _kernel(reader: Reader, node: Node, pool: Fields, what: str) -> KernelPolicy | None:
    what = f"{what}: kernel"
    fields = reader.fields(node, what, ("want", "package"), required=("want", "package"))
    want = fields.value("want", KernelVersion.parse, None, "a kernel as `uname -r` prints it, such as 6.8.0-49-generic")
    package = fields.value(
        "package", package_version, "", "the version of its packages, as `apt list linux-image-...` shows it"
    )
    where = pool.entry("kernel")
    if "driver" not in pool and where is not None:
        hint = "a kernel is changed together with the driver: say which driver the pool wants"
        reader.fault(where, f"{what} is wanted, and no driver", hint)
    return None if want is None or not package else KernelPolicy(want, package)


def package_version(text: str) -> str:
    """A version as package managers write them; raises ValueError."""
    if not _PACKAGE_VERSION.fullmatch(text):
        raise ValueError(f"{text!r} is no version of a package")
    return text


def _match(reader: Reader, node: Node, what: str, check_gpu: Check) -> tuple[Match, ...]:
    entries = reader.entries(node, f"{what}: match", "write {gpu: H100} or {label.role: train}")
    if isinstance(node, Map) and not entries:
        reader.fault(node, f"{what}: match is empty", 'write {gpu: "*"} for every node with a GPU')
    matches = []
    for entry in entries:
        if not _MATCH_KEY.fullmatch(entry.key):
            hint = "use gpu, label.NAME, slurm.NAME or the path of a fact such as module.nvidia.flavour"
            reader.fault(entry, f"{what}: match cannot look at {entry.key!r}", hint)
        values = _values(reader, entry.value, f"{what}: match {entry.key}")
        if entry.key == "gpu":
            _check_values(reader, entry, what, check_gpu)
        matches.append(Match(entry.key, values))
    return tuple(matches)


def _values(reader: Reader, node: Node, what: str) -> tuple[str, ...]:
    if not isinstance(node, Sequence):
        return (reader.text(node, what, hint="a value or a list of values"),)
    if not node.items:
        reader.fault(node, f"{what} lists no value", "no node could match; name one, or remove the key")
    return tuple(reader.text(item, what, hint="a value, quoted if need be") for item in node.items)


def _check_values(reader: Reader, entry: Entry, what: str, check: Check) -> None:
    for item in entry.value.items if isinstance(entry.value, Sequence) else (entry.value,):
        if isinstance(item, Scalar) and item.text and item.text != "*":
            try:
                check(item.text)
            except ValueError as error:
                hint = "a family such as H100, or * for any; a product is matched by gpu.product"
                reader.fault(item, f"{what}: match {entry.key}: {error}", getattr(error, "hint", None) or hint)


def _driver(reader: Reader, node: Node, what: str) -> DriverPolicy:
    what = f"{what}: driver"
    fields = reader.fields(node, what, (*_WISH_KEYS, "flavour"))
    given = [entry for key in _WISH_KEYS if (entry := fields.entry(key)) is not None]
    if isinstance(node, Map) and not given:
        reader.fault(node, f"{what} says not which", "give one of want, branch, newest")
    given.sort(key=lambda entry: (entry.line, entry.column))
    for extra in given[1:]:
        message = f"{what} gives both {given[0].key} (line {given[0].line}) and {extra.key}"
        reader.fault(extra, message, "they can contradict; keep one")
    return DriverPolicy(_wish(fields), fields.choice("flavour", FLAVOURS, None))


def _wish(fields: Fields) -> DriverWish:
    version = fields.value("want", DriverVersion.parse, None, "a driver version such as 580.126.20")
    branch = fields.value("branch", branch_name, "", "a branch such as R580")
    line = fields.choice("newest", _LINES, ReleaseLine.PRODUCTION)
    if version is not None:
        return WantVersion(version)
    return WantBranch(branch) if "branch" in fields else WantNewest(line)


def branch_name(text: str) -> str:
    """`R580`; raises ValueError."""
    if not _BRANCH.fullmatch(text):
        raise ValueError(f"{text!r} is no driver branch")
    return text


def cuda_range(text: str) -> Ranges[CudaVersion] | None:
    """A range of CUDA versions that some version can be in; raises ValueError."""
    ranges = parse_ranges(text, CudaVersion)
    if ranges.is_empty:
        raise ValueError(f"no CUDA version can be in {text!r}")
    return ranges


def signal_name(text: str) -> str:
    """A signal without its `SIG`, and with the `B:` of Slurm's `--signal` where it stands there: then the batch script alone is sent it, else
    the job's steps. Raises ValueError for one that cannot be caught or does not exist."""
    batch = "B:" if text.startswith("B:") else ""
    name = text.removeprefix(batch).removeprefix("SIG")
    if name not in _SIGNALS:
        raise ValueError(f"{text!r} is no signal a job can catch: {', '.join(_SIGNALS)}")
    return batch + name


def _drain(reader: Reader, node: Node, what: str) -> Drain:
    what = f"{what}: drain"
    fields = reader.fields(node, what, ("policy", "signal", "checkpoint_wait", "limit"), required=("policy",))
    default = Drain()
    drain = Drain(
        policy=fields.choice("policy", _DRAINS, default.policy),
        signal=fields.value("signal", signal_name, None, "write USR1, USR2 or TERM; B:USR1 for the batch script alone"),
        checkpoint_wait_s=fields.value("checkpoint_wait", parse_duration_s, 0, DURATION_HINT),
        limit_s=fields.value("limit", parse_duration_s, default.limit_s, DURATION_HINT),
    )
    _check_drain(reader, fields, drain, what)
    return drain


def _check_drain(reader: Reader, fields: Fields, drain: Drain, what: str) -> None:
    policy, limit = fields.entry("policy"), fields.entry("limit")
    wait = fields.entry("checkpoint_wait")
    if drain.policy is DrainPolicy.WAIT and policy is not None and _is_text(policy.value, "wait"):
        for entry in (fields.entry("signal"), wait):
            if entry is not None:
                message = f"{what}: {entry.key} has no meaning with policy wait (line {policy.line})"
                reader.fault(
                    entry, message, "jobs are left to end by themselves; use requeue or evict to interrupt them"
                )
    if limit is not None and drain.limit_s == 0 and isinstance(limit.value, Scalar):
        reader.fault(limit, f"{what}: limit 0 would empty no node", "give the time a node may take to become empty")
    elif wait is not None and drain.checkpoint_wait_s > drain.limit_s:
        where = f"limit (line {limit.line})" if limit is not None else "the default limit of 24h"
        reader.fault(
            wait, f"{what}: checkpoint_wait is longer than {where}", "a node would be given up before its jobs"
        )


def _is_text(node: Node, text: str) -> bool:
    return isinstance(node, Scalar) and node.text == text


def _max_unavailable(reader: Reader, node: Node, what: str) -> MaxUnavailable:
    what = f"{what}: max_unavailable"
    fields = reader.fields(node, what, ("pool", "rack", "tenant"))
    default = MaxUnavailable()
    hint = f"{AMOUNT_HINT}; with none, nothing could ever be changed"
    return MaxUnavailable(
        pool=fields.value("pool", Amount.parse, default.pool, hint),
        rack=fields.value("rack", Amount.parse, None, hint),
        tenant=fields.value("tenant", Amount.parse, None, hint),
    )


def _windows(reader: Reader, node: Node, what: str, check_zone: Check) -> tuple[Window, ...]:
    what = f"{what}: windows"

    def convert(text: str) -> Window | None:
        window = Window.parse(text)
        check_zone(window.zone)
        if (window.end_minute - window.start_minute) * 60 < CHANGE_S:
            raise ValueError(f"{text!r} is shorter than the {CHANGE_S // 60} minutes that one change may take")
        return window

    items = reader.items(node, what, f"a list: [{WINDOW_HINT.removeprefix('write ').split(',')[0]}]")
    if isinstance(node, Sequence) and not items:
        reader.fault(node, f"{what} lists no window", "remove the key to allow changes at any time")
    found = [(reader.value(item, what, convert, None, WINDOW_HINT), item) for item in items]
    seen: dict[Window, int] = {}
    for window, item in found:
        if window is not None and window in seen:
            reader.fault(item, f"{what}: the same window as on line {seen[window]}", "keep one of the two")
        elif window is not None:
            seen[window] = item.line
    return tuple(seen)


def pool_lines(reader: Reader, node: Node) -> Mapping[str, int]:
    """The line of each pool and of each of its keys, as `pools.NAME` and `pools.NAME.KEY`."""
    lines: dict[str, int] = {}
    for entry in node.entries if isinstance(node, Map) else ():
        lines[f"pools.{entry.key}"] = entry.line
        for inner in entry.value.entries if isinstance(entry.value, Map) else ():
            lines[f"pools.{entry.key}.{inner.key}"] = inner.line
    return lines
