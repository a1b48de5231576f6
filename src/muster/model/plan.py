"""The plan: an immutable proposal that leaves the executor nothing to decide, with a report of what was not planned and why.

Its id is the hash of its content. A plan is never patched; a new one is made. How its body is read back is `plan_form`'s.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property

from muster.model.audit import canonical
from muster.model.frozen import dataclass
from muster.model.stack import PackagePin

SCHEMA = "muster.plan/2"
SCHEMA_1 = "muster.plan/1"
"""The form of plans before strata, bounds and windows. A rollout outlives our releases, so such a plan keeps its id."""

CHANGE_S = 3600
"""What must be left of a window when a change begins: a restart may take half an hour and a validation a quarter, and the packages come
before both. A change that has begun is not stopped by the end of its window."""

UNTOLD = "unknown"
"""Stands in `NodePlan.free_at` where nobody knows when the node's jobs end."""


class WaitingOn(StrEnum):
    """Why a node, or a stage, is not going on. Closed."""

    BUDGET = "budget"
    DRAIN = "drain"
    SOAK = "soak"
    UNKNOWN_HEALTH = "unknown-health"
    BREAKER = "breaker"
    STALE_FACTS = "stale-facts"
    NO_SOLUTION = "no-solution"
    WINDOW = "window"
    APPROVAL = "approval"
    OWNED_BY_HUMAN = "owned-by-human"
    NOTHING_TO_DO = "nothing-to-do"


@dataclass(frozen=True, slots=True)
class Waiting:
    """One thing that was left out or held back: who, on what, and the words for it."""

    subject: str
    on: WaitingOn
    detail: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a step expects to find on its node: the fact at `path` is the text `value`."""

    path: str
    value: str


class StepKind(StrEnum):
    """What is done to the node. `change`: from one whole stack to another, with a way back. `repair`: from whatever lies there to one whole
    stack; there is nothing worth going back to. `install`: the first driver of a bare node; the way back leads to no driver. `hold`:
    nothing but what keeps others from the driver and the kernel; the node stays in service. Closed."""

    CHANGE = "change"
    REPAIR = "repair"
    INSTALL = "install"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class KernelMove:
    """The kernel that a node is moved to together with its driver.

    `packages` come new to the node; on the way back they leave, once the old kernel runs again. The new kernel is booted once, and is the
    node's default only after it was validated.
    """

    from_kernel: str
    to_kernel: str
    packages: tuple[PackagePin, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one node's stack: from what to what, by which packages, what it expects and when it is done.

    `manager` names the node's package manager, `restart` is `reload` or `reboot`. `back` are the packages of the way
    back; the change is refused where they can't be had. Of a repair they are what lies there, whole or not.
    With a `kernel` it is always a reboot.
    """

    from_driver: str
    to_driver: str
    flavour: str
    manager: str
    packages: tuple[PackagePin, ...]
    back: tuple[PackagePin, ...]
    restart: str
    expects: tuple[Expectation, ...]
    done_when: tuple[Expectation, ...]
    kind: StepKind = StepKind.CHANGE
    kernel: KernelMove | None = None

    @property
    def incoming(self) -> tuple[PackagePin, ...]:
        """All packages that the step installs: the driver's, and those of a new kernel."""
        return self.packages if self.kernel is None else (*self.packages, *self.kernel.packages)

    @property
    def leaving(self) -> tuple[str, ...]:
        """Names of packages that go: they change their names with the branch or the flavour."""
        return _names_only_in(self.back, self.packages)

    @property
    def coming(self) -> tuple[str, ...]:
        """Names of packages that are new on the node, and go on the way back."""
        return _names_only_in(self.packages, self.back)


def _names_only_in(some: tuple[PackagePin, ...], others: tuple[PackagePin, ...]) -> tuple[str, ...]:
    known = {pin.name for pin in others}
    return tuple(pin.name for pin in some if pin.name not in known)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What is to be done on one node, and what of it the order of the rollout rests on.

    `stratum` is what software can see of it (model, VBIOS, kernel, flavour); `rack`, `zone` (of cooling) and `tenant` are empty where nobody
    named them; nodes with one `domain` (an NVLink domain) are changed as one. `jobs` run on it; `free_at` is when they end (RFC 3339 UTC),
    UNTOLD where nobody knows, empty for a node without work. `drain` is how its jobs are treated.
    """

    node: str
    pool: str
    step: Step
    stratum: str = ""
    rack: str = ""
    zone: str = ""
    tenant: str = ""
    domain: str = ""
    gpus: int = 0
    jobs: tuple[str, ...] = ()
    free_at: str = ""
    drain: str = "wait"

    @property
    def unit(self) -> str:
        """What it is changed together with: its NVLink domain, else itself."""
        return f"domain {self.domain}" if self.domain else self.node

    @property
    def idle(self) -> bool:
        """Whether nothing runs on it, as far as was seen."""
        return not self.free_at


@dataclass(frozen=True, slots=True)
class Stage:
    """Nodes released in small groups. `groups` partitions `nodes`; a group is released when the one before ended well.

    The `control` stage is the last one: its nodes stay as they are, for comparison, until everything before them has soaked.
    """

    name: str
    nodes: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    soak_s: int
    canary: bool
    control: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which a pool may be changed: from `opens` until `closes`, aware UTC."""

    opens: datetime
    closes: datetime

    def takes(self, at: datetime) -> bool:
        """Whether a change may begin at `at`: the window is open, and long enough still."""
        return self.opens <= at and at + timedelta(seconds=CHANGE_S) <= self.closes


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """What the plan may take from a pool at one time: `unavailable` nodes of `nodes`; how long a drain may take, by which policy.

    `windows` are the times, in order, in which its nodes may be changed; none: at any time.
    """

    pool: str
    nodes: int
    unavailable: int
    drain_policy: str
    drain_limit_s: int
    tier: str = "standard"
    windows: tuple[Span, ...] = ()
    drain_signal: str = ""
    """What a job that is to be interrupted is sent first (`USR1`); empty: nothing."""
    checkpoint_wait_s: int = 0
    """How long after that it may go on."""

    def open_at(self, at: datetime) -> bool:
        """Whether a change in this pool may begin at `at`."""
        return not self.windows or any(span.takes(at) for span in self.windows)

    def next_open(self, at: datetime) -> datetime | None:
        """From when on, not before `at`, a change may begin; None after the last of the windows."""
        if self.open_at(at):
            return at
        return next((span.opens for span in self.windows if span.opens > at and span.takes(span.opens)), None)


@dataclass(frozen=True, slots=True)
class Bound:
    """What may be away of one rack or tenant (`kind`) at one time, over all pools: `unavailable` nodes of `nodes`."""

    kind: str
    name: str
    nodes: int
    unavailable: int


@dataclass(frozen=True, slots=True)
class Stratum:
    """Units of the plan that software cannot tell apart, and how many of them are held back for comparison until the last soak.

    With fewer than STRATUM_AT_LEAST units there is no comparison, and nothing is held back.
    """

    name: str
    units: int
    control: int


STRATUM_AT_LEAST = 3
"""Below this many units a stratum has no statistical gate: one canary and one control say nothing of each other. Two may differ by chance."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the rollout costs if all goes well, by simple arithmetic: how long it takes, how long its nodes take no new work while they are
    drained (node-seconds), how long their GPUs stand still for the change (GPU-seconds). `stages_s` is when each stage has ended, from the
    beginning. `untold` counts the nodes whose jobs end at a time that nobody knows: each is taken for the pool's whole limit.
    """

    duration_s: int
    drain_node_s: int
    lost_gpu_s: int
    stages_s: tuple[int, ...]
    untold: int


@dataclass(frozen=True)
class Plan:
    """An immutable proposal for a fleet. See the module for its laws.

    `parent` is the plan whose approval may cover this one. `control` is the share of each stratum that the policy holds back, in hundredths
    of a percent. `schema` is the form under which it has its id: a plan of an earlier release keeps its own.

    Without slots, so that the id and the way to a node's part are worked out once: both are asked for at every step of every run.
    """

    fleet: str
    created_at: str
    parent: str | None
    target: str
    flavour: str
    policy_revision: str
    knowledge_revision: str
    facts_revision: str
    approvals: int
    pools: tuple[PoolLimits, ...]
    stages: tuple[Stage, ...]
    nodes: tuple[NodePlan, ...]
    left_out: tuple[Waiting, ...]
    because: tuple[str, ...]
    control: int = 0
    bounds: tuple[Bound, ...] = ()
    strata: tuple[Stratum, ...] = ()
    forecast: Forecast | None = None
    schema: str = SCHEMA

    @cached_property
    def id(self) -> str:
        """`plan-` and the first 16 hex digits of SHA-256 over the canonical JSON of the content."""
        return "plan-" + hashlib.sha256(self.text).hexdigest()[:16]

    @cached_property
    def text(self) -> bytes:
        """The canonical JSON of the content, from which the id is made and which a store keeps."""
        return canonical(plan_body(self))

    def node(self, name: str) -> NodePlan:
        """The part of node `name`; KeyError when the plan leaves it out."""
        return self._parts[name]

    def place(self, name: str) -> int:
        """The place of a planned node in the order of change."""
        return self._places[name]

    def limits(self, node: str) -> PoolLimits:
        """The limits of the pool of a planned node."""
        return self._limits[self.node(node).pool]

    @cached_property
    def _parts(self) -> Mapping[str, NodePlan]:
        return {part.node: part for part in reversed(self.nodes)}

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {part.node: at for at, part in enumerate(self.nodes)}

    @cached_property
    def _limits(self) -> Mapping[str, PoolLimits]:
        return {limits.pool: limits for limits in self.pools}


def plan_body(plan: Plan) -> Mapping[str, object]:
    """The plan as JSON values (no floats); `plan_form.plan_from_body` is its inverse.

    Nodes that are alike share a step, and those left out for one reason stand together: ten thousand nodes are dozens of cases.
    """
    body: dict[str, object] = {
        "schema": plan.schema,
        "fleet": plan.fleet,
        "created_at": plan.created_at,
        "parent": plan.parent,
        "target": plan.target,
        "flavour": plan.flavour,
        "policy_revision": plan.policy_revision,
        "knowledge_revision": plan.knowledge_revision,
        "facts_revision": plan.facts_revision,
        "approvals": plan.approvals,
        "because": list(plan.because),
    }
    if plan.schema == SCHEMA_1:
        return body | _body_1(plan)
    # The same object is the same step, which is asked first: that is cheaper than to compare thousands by content.
    shared = {id(part.step): part.step for part in plan.nodes}
    bodies = {key: _step_body(step) for key, step in shared.items()}
    numbers: dict[bytes, int] = {}
    number_of = {key: numbers.setdefault(canonical(step), len(numbers)) for key, step in bodies.items()}
    steps = {number_of[key]: step for key, step in bodies.items()}
    return body | {
        "control": plan.control,
        "pools": [_pool_body(limits) for limits in plan.pools],
        "bounds": [
            {"kind": b.kind, "name": b.name, "nodes": b.nodes, "unavailable": b.unavailable} for b in plan.bounds
        ],
        "strata": [{"name": s.name, "units": s.units, "control": s.control} for s in plan.strata],
        "stages": [_stage_body(stage) | {"control": stage.control} for stage in plan.stages],
        "steps": [steps[number] for number in range(len(steps))],
        "nodes": [_node_body(part, number_of[id(part.step)]) for part in plan.nodes],
        "left_out": _left_body(plan.left_out),
        "forecast": None if plan.forecast is None else _forecast_body(plan.forecast),
    }


def _body_1(plan: Plan) -> dict[str, object]:
    pools = [
        {"pool": p.pool, "nodes": p.nodes, "unavailable": p.unavailable, "drain_policy": p.drain_policy, "drain_limit_s": p.drain_limit_s}
        for p in plan.pools
    ]  # fmt: skip
    return {
        "pools": pools,
        "stages": [_stage_body(stage) for stage in plan.stages],
        "nodes": [{"node": part.node, "pool": part.pool, "step": _step_body(part.step)} for part in plan.nodes],
        "left_out": [{"subject": w.subject, "on": w.on.value, "detail": w.detail} for w in plan.left_out],
    }


def _pool_body(limits: PoolLimits) -> dict[str, object]:
    # Left out where nothing is set: a plan that was made before there were these keeps its id.
    interrupts: dict[str, object] = {"drain_signal": limits.drain_signal} if limits.drain_signal else {}
    interrupts |= {"checkpoint_wait_s": limits.checkpoint_wait_s} if limits.checkpoint_wait_s else {}
    return {
        "pool": limits.pool, "nodes": limits.nodes, "unavailable": limits.unavailable, "drain_policy": limits.drain_policy,
        "drain_limit_s": limits.drain_limit_s, "tier": limits.tier,
        "windows": [[span.opens.isoformat(), span.closes.isoformat()] for span in limits.windows],
    } | interrupts  # fmt: skip


def _stage_body(stage: Stage) -> dict[str, object]:
    return {
        "name": stage.name, "nodes": list(stage.nodes), "groups": [list(g) for g in stage.groups], "soak_s": stage.soak_s,
        "canary": stage.canary,
    }  # fmt: skip


def _step_body(step: Step) -> dict[str, object]:
    return {
        "from_driver": step.from_driver,
        "to_driver": step.to_driver,
        "flavour": step.flavour,
        "manager": step.manager,
        "packages": {p.name: p.version for p in step.packages},
        "back": {p.name: p.version for p in step.back},
        "restart": step.restart,
        "expects": {e.path: e.value for e in step.expects},
        "done_when": {e.path: e.value for e in step.done_when},
        # Plans of before there were other kinds keep their ids.
        **({} if step.kind is StepKind.CHANGE else {"kind": step.kind.value}),
        **({} if step.kernel is None else {"kernel": _kernel_body(step.kernel)}),
    }


def _kernel_body(move: KernelMove) -> dict[str, object]:
    packages = {p.name: p.version for p in move.packages}
    return {"from_kernel": move.from_kernel, "to_kernel": move.to_kernel, "packages": packages}


def _node_body(part: NodePlan, step: int) -> dict[str, object]:
    return {
        "domain": part.domain, "drain": part.drain, "free_at": part.free_at, "gpus": part.gpus, "jobs": list(part.jobs),
        "node": part.node, "pool": part.pool, "rack": part.rack, "step": step, "stratum": part.stratum, "tenant": part.tenant,
        "zone": part.zone,
    }  # fmt: skip  # in the order of canonical JSON, which then has nothing to sort in ten thousand of them


def _left_body(left_out: tuple[Waiting, ...]) -> list[dict[str, object]]:
    groups: list[tuple[Waiting, list[str]]] = []
    for left in left_out:
        if not groups or (groups[-1][0].on, groups[-1][0].detail) != (left.on, left.detail):
            groups.append((left, []))
        groups[-1][1].append(left.subject)
    return [{"on": first.on.value, "detail": first.detail, "subjects": subjects} for first, subjects in groups]


def _forecast_body(forecast: Forecast) -> dict[str, object]:
    return {
        "duration_s": forecast.duration_s, "drain_node_s": forecast.drain_node_s, "lost_gpu_s": forecast.lost_gpu_s,
        "stages_s": list(forecast.stages_s), "untold": forecast.untold,
    }  # fmt: skip
