"""Reads a plan back from its body, strictly: what a person or another release changed in it is named, not guessed at.

It opens no file; whose plan it is, and whether its id is the one it was kept under, is asked elsewhere.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from muster.model.frozen import dataclass
from muster.model.plan import (
    SCHEMA,
    SCHEMA_1,
    Bound,
    Expectation,
    Forecast,
    KernelMove,
    NodePlan,
    Plan,
    PoolLimits,
    Span,
    Stage,
    Step,
    StepKind,
    Stratum,
    Waiting,
    WaitingOn,
)
from muster.model.stack import PackagePin

_SHARED = (
    "schema", "fleet", "created_at", "parent", "target", "flavour", "policy_revision", "knowledge_revision", "facts_revision", "approvals",
    "because", "pools", "stages", "nodes", "left_out",
)  # fmt: skip
_OF_2 = ("control", "bounds", "strata", "steps", "forecast")


def plan_from_body(body: object) -> Plan:
    """The inverse of `plan_body`; pins and expectations come back in name order, which leaves the id as it was.

    Strict: raises ValueError naming the field (`plan.steps[3].restart: ...`) for one that is missing, unknown or of another form.
    """
    is_old = isinstance(body, Mapping) and body.get("schema") == SCHEMA_1
    top = _Part.of(body, "plan", *_SHARED, *(() if is_old else _OF_2))
    if top.text("schema") not in (SCHEMA, SCHEMA_1):
        raise ValueError(f"plan.schema: must be {SCHEMA}, not {top.text('schema')!r}")
    steps = () if is_old else tuple(_step_from(value, at) for at, value in top.items("steps"))
    return Plan(
        fleet=top.text("fleet"),
        created_at=top.text("created_at"),
        parent=None if top.members["parent"] is None else top.text("parent"),
        target=top.text("target"),
        flavour=top.text("flavour"),
        policy_revision=top.text("policy_revision"),
        knowledge_revision=top.text("knowledge_revision"),
        facts_revision=top.text("facts_revision"),
        approvals=top.whole("approvals"),
        pools=tuple((_pool_1 if is_old else _pool)(value, at) for at, value in top.items("pools")),
        stages=tuple(_stage(value, at, is_old=is_old) for at, value in top.items("stages")),
        nodes=tuple(_node_1(value, at) if is_old else _node(value, at, steps) for at, value in top.items("nodes")),
        left_out=tuple(each for at, value in top.items("left_out") for each in _left(value, at, is_old=is_old)),
        because=top.texts("because"),
        control=0 if is_old else top.whole("control"),
        bounds=() if is_old else tuple(_bound(value, at) for at, value in top.items("bounds")),
        strata=() if is_old else tuple(_stratum(value, at) for at, value in top.items("strata")),
        forecast=None if is_old or top.members["forecast"] is None else _forecast(top.members["forecast"]),
        schema=top.text("schema"),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """One object of a plan's body, read strictly: every getter raises ValueError with the field's place."""

    members: Mapping[str, object]
    at: str

    @classmethod
    def of(cls, value: object, at: str, *keys: str) -> "_Part":
        if not isinstance(value, Mapping):
            raise ValueError(f"{at}: must be an object")
        for key in keys:
            if key not in value:
                raise ValueError(f"{at}.{key}: is missing")
        for key in value:
            if key not in keys:
                raise ValueError(f"{at}.{key}: is not known")
        return cls(value, at)

    def text(self, key: str) -> str:
        return _text(self.members[key], f"{self.at}.{key}")

    def whole(self, key: str) -> int:
        return _whole(self.members[key], f"{self.at}.{key}")

    def flag(self, key: str) -> bool:
        value = self.members[key]
        if not isinstance(value, bool):
            raise ValueError(f"{self.at}.{key}: must be true or false")
        return value

    def items(self, key: str) -> tuple[tuple[str, object], ...]:
        return _items(self.members[key], f"{self.at}.{key}")

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(_text(value, at) for at, value in self.items(key))

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        value, at = self.members[key], f"{self.at}.{key}"
        if not isinstance(value, Mapping):
            raise ValueError(f"{at}: must be an object")
        return tuple((_text(name, at), _text(value[name], f"{at}.{name}")) for name in sorted(value))


def _text(value: object, at: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{at}: must be a text")
    return value


def _whole(value: object, at: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{at}: must be a whole number")
    return value


def _items(value: object, at: str) -> tuple[tuple[str, object], ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{at}: must be a list")
    return tuple((f"{at}[{index}]", item) for index, item in enumerate(value))


_POOL_1 = ("pool", "nodes", "unavailable", "drain_policy", "drain_limit_s")


def _pool_1(value: object, at: str) -> PoolLimits:
    return _limits(_Part.of(value, at, *_POOL_1))


def _pool(value: object, at: str) -> PoolLimits:
    may_be = ("drain_signal", "checkpoint_wait_s")
    there = tuple(key for key in may_be if isinstance(value, Mapping) and key in value)
    part = _Part.of(value, at, *_POOL_1, "tier", "windows", *there)
    windows = tuple(_span(span, here) for here, span in part.items("windows"))
    return replace(
        _limits(part),
        tier=part.text("tier"),
        windows=windows,
        drain_signal=part.text("drain_signal") if "drain_signal" in there else "",
        checkpoint_wait_s=part.whole("checkpoint_wait_s") if "checkpoint_wait_s" in there else 0,
    )


def _limits(part: "_Part") -> PoolLimits:
    return PoolLimits(
        part.text("pool"), part.whole("nodes"), part.whole("unavailable"), part.text("drain_policy"), part.whole("drain_limit_s")
    )  # fmt: skip


def _span(value: object, at: str) -> Span:
    ends = [_time(text, here) for here, text in _items(value, at)]
    if len(ends) != 2:
        raise ValueError(f"{at}: must be two times")
    return Span(ends[0], ends[1])


def _time(value: object, at: str) -> datetime:
    text = _text(value, at)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{at}: {text!r} is no time") from None
    if found.utcoffset() != timedelta(0) or found.isoformat() != text:
        raise ValueError(f"{at}: {text!r} is not in the form of UTC that a plan has")
    return found


def _stage(value: object, at: str, *, is_old: bool) -> Stage:
    part = _Part.of(value, at, "name", "nodes", "groups", "soak_s", "canary", *(() if is_old else ("control",)))
    groups = tuple(
        tuple(_text(name, here) for here, name in _items(group, there)) for there, group in part.items("groups")
    )
    control = False if is_old else part.flag("control")
    return Stage(part.text("name"), part.texts("nodes"), groups, part.whole("soak_s"), part.flag("canary"), control)


def _bound(value: object, at: str) -> Bound:
    part = _Part.of(value, at, "kind", "name", "nodes", "unavailable")
    return Bound(part.text("kind"), part.text("name"), part.whole("nodes"), part.whole("unavailable"))


def _stratum(value: object, at: str) -> Stratum:
    part = _Part.of(value, at, "name", "units", "control")
    return Stratum(part.text("name"), part.whole("units"), part.whole("control"))


def _forecast(value: object) -> Forecast:
    part = _Part.of(value, "plan.forecast", "duration_s", "drain_node_s", "lost_gpu_s", "stages_s", "untold")
    stages = tuple(_whole(each, at) for at, each in part.items("stages_s"))
    return Forecast(
        part.whole("duration_s"), part.whole("drain_node_s"), part.whole("lost_gpu_s"), stages, part.whole("untold")
    )


def _step_from(value: object, at: str) -> Step:
    step = _Part.of(
        value,
        at,
        "from_driver",
        "to_driver",
        "flavour",
        "manager",
        "packages",
        "back",
        "restart",
        "expects",
        "done_when",
        *(key for key in ("kind", "kernel") if isinstance(value, Mapping) and key in value),
    )
    kind = step.text("kind") if "kind" in step.members else StepKind.CHANGE.value
    if kind not in tuple(StepKind) or (kind == StepKind.CHANGE.value and "kind" in step.members):
        raise ValueError(f"{at}.kind: {kind!r} is no kind of step")
    return Step(
        from_driver=step.text("from_driver"),
        to_driver=step.text("to_driver"),
        flavour=step.text("flavour"),
        manager=step.text("manager"),
        packages=tuple(PackagePin(name, version) for name, version in step.pairs("packages")),
        back=tuple(PackagePin(name, version) for name, version in step.pairs("back")),
        restart=step.text("restart"),
        expects=tuple(Expectation(path, text) for path, text in step.pairs("expects")),
        done_when=tuple(Expectation(path, text) for path, text in step.pairs("done_when")),
        kind=StepKind(kind),
        kernel=_kernel(step.members["kernel"], f"{at}.kernel") if "kernel" in step.members else None,
    )  # fmt: skip


def _kernel(value: object, at: str) -> KernelMove:
    part = _Part.of(value, at, "from_kernel", "to_kernel", "packages")
    packages = tuple(PackagePin(name, version) for name, version in part.pairs("packages"))
    return KernelMove(part.text("from_kernel"), part.text("to_kernel"), packages)


def _node_1(value: object, at: str) -> NodePlan:
    part = _Part.of(value, at, "node", "pool", "step")
    return NodePlan(part.text("node"), part.text("pool"), _step_from(part.members["step"], f"{at}.step"))


def _node(value: object, at: str, steps: tuple[Step, ...]) -> NodePlan:
    part = _Part.of(
        value,
        at,
        "node",
        "pool",
        "step",
        "stratum",
        "rack",
        "zone",
        "tenant",
        "domain",
        "gpus",
        "jobs",
        "free_at",
        "drain",
    )
    number = part.whole("step")
    if not 0 <= number < len(steps):
        raise ValueError(f"{at}.step: there is no step {number}")
    return NodePlan(
        node=part.text("node"),
        pool=part.text("pool"),
        step=steps[number],
        stratum=part.text("stratum"),
        rack=part.text("rack"),
        zone=part.text("zone"),
        tenant=part.text("tenant"),
        domain=part.text("domain"),
        gpus=part.whole("gpus"),
        jobs=part.texts("jobs"),
        free_at=part.text("free_at"),
        drain=part.text("drain"),
    )


def _left(value: object, at: str, *, is_old: bool) -> tuple[Waiting, ...]:
    part = _Part.of(value, at, "on", "detail", "subject" if is_old else "subjects")
    if part.text("on") not in tuple(WaitingOn):
        raise ValueError(f"{at}.on: {part.text('on')!r} is no reason to wait")
    subjects = (part.text("subject"),) if is_old else part.texts("subjects")
    return tuple(Waiting(subject, WaitingOn(part.text("on")), part.text("detail")) for subject in subjects)
