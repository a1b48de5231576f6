"""The plan: an immutable proposal that leaves the executor nothing to decide, with a report of what was not planned and why.

Its id is the hash of its content. A plan is never patched; a new one is made.
"""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from muster.model.audit import canonical
from muster.model.frozen import dataclass
from muster.model.stack import PackagePin

SCHEMA = "muster.plan/1"


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


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one node's stack: from what to what, by which packages, what it expects and when it is done.

    `manager` names the node's package manager, `restart` is `reload` or `reboot`. `back` are the packages of the way
    back; the change is refused where they can't be had.
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
    """What is to be done on one node."""

    node: str
    pool: str
    step: Step


@dataclass(frozen=True, slots=True)
class Stage:
    """Nodes released in small groups. `groups` partitions `nodes`; a group is released when the one before ended well."""

    name: str
    nodes: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    soak_s: int
    canary: bool


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """What the plan may take from a pool at one time: `unavailable` nodes of `nodes`; how long a drain may take, by which policy."""

    pool: str
    nodes: int
    unavailable: int
    drain_policy: str
    drain_limit_s: int


@dataclass(frozen=True)
class Plan:
    """An immutable proposal for a fleet. See the module for its laws.

    Without slots, so that the id and the way to a node's part are worked out once: over 10,000 nodes the hash takes half a second, and
    both are asked for at every step of every run.
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

    @cached_property
    def id(self) -> str:
        """`plan-` and the first 16 hex digits of SHA-256 over the canonical JSON of the content."""
        return "plan-" + hashlib.sha256(canonical(plan_body(self))).hexdigest()[:16]

    def node(self, name: str) -> NodePlan:
        """The part of node `name`; KeyError when the plan leaves it out."""
        return self._parts[name]

    @cached_property
    def _parts(self) -> Mapping[str, NodePlan]:
        return {part.node: part for part in reversed(self.nodes)}


def plan_body(plan: Plan) -> Mapping[str, object]:
    """The plan as JSON values (no floats); `plan_from_body` is its inverse."""
    return {
        "schema": SCHEMA,
        "fleet": plan.fleet,
        "created_at": plan.created_at,
        "parent": plan.parent,
        "target": plan.target,
        "flavour": plan.flavour,
        "policy_revision": plan.policy_revision,
        "knowledge_revision": plan.knowledge_revision,
        "facts_revision": plan.facts_revision,
        "approvals": plan.approvals,
        "pools": [_fields(p) for p in plan.pools],
        "stages": [
            {
                "name": s.name, "nodes": list(s.nodes), "groups": [list(g) for g in s.groups], "soak_s": s.soak_s,
                "canary": s.canary,
            }
            for s in plan.stages
        ],
        "nodes": [_node_body(n) for n in plan.nodes],
        "left_out": [{"subject": w.subject, "on": w.on.value, "detail": w.detail} for w in plan.left_out],
        "because": list(plan.because),
    }  # fmt: skip


def _fields(limits: PoolLimits) -> Mapping[str, object]:
    return {
        "pool": limits.pool, "nodes": limits.nodes, "unavailable": limits.unavailable, "drain_policy": limits.drain_policy,
        "drain_limit_s": limits.drain_limit_s,
    }  # fmt: skip


def _node_body(part: NodePlan) -> Mapping[str, object]:
    step = part.step
    return {
        "node": part.node,
        "pool": part.pool,
        "step": {
            "from_driver": step.from_driver,
            "to_driver": step.to_driver,
            "flavour": step.flavour,
            "manager": step.manager,
            "packages": {p.name: p.version for p in step.packages},
            "back": {p.name: p.version for p in step.back},
            "restart": step.restart,
            "expects": {e.path: e.value for e in step.expects},
            "done_when": {e.path: e.value for e in step.done_when},
        },
    }


def plan_from_body(body: object) -> Plan:
    """The inverse of `plan_body`; pins and expectations come back in name order, which leaves the id as it was.

    Strict: raises ValueError naming the field (`nodes[3].step.restart: ...`) for one that is missing, unknown or of another form.
    """
    top = _Part.of(
        body, "plan", "schema", "fleet", "created_at", "parent", "target", "flavour", "policy_revision", "knowledge_revision",
        "facts_revision", "approvals", "pools", "stages", "nodes", "left_out", "because",
    )  # fmt: skip
    if top.text("schema") != SCHEMA:
        raise ValueError(f"plan.schema: must be {SCHEMA}, not {top.text('schema')!r}")
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
        pools=tuple(_pool_from(value, at) for at, value in top.items("pools")),
        stages=tuple(_stage_from(value, at) for at, value in top.items("stages")),
        nodes=tuple(_node_from(value, at) for at, value in top.items("nodes")),
        left_out=tuple(_waiting_from(value, at) for at, value in top.items("left_out")),
        because=top.texts("because"),
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
        value = self.members[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{self.at}.{key}: must be a whole number")
        return value

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


def _items(value: object, at: str) -> tuple[tuple[str, object], ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{at}: must be a list")
    return tuple((f"{at}[{index}]", item) for index, item in enumerate(value))


def _pool_from(value: object, at: str) -> PoolLimits:
    part = _Part.of(value, at, "pool", "nodes", "unavailable", "drain_policy", "drain_limit_s")
    return PoolLimits(
        part.text("pool"), part.whole("nodes"), part.whole("unavailable"), part.text("drain_policy"), part.whole("drain_limit_s")
    )  # fmt: skip


def _stage_from(value: object, at: str) -> Stage:
    part = _Part.of(value, at, "name", "nodes", "groups", "soak_s", "canary")
    groups = tuple(
        tuple(_text(name, here) for here, name in _items(group, there)) for there, group in part.items("groups")
    )
    return Stage(part.text("name"), part.texts("nodes"), groups, part.whole("soak_s"), part.flag("canary"))


def _node_from(value: object, at: str) -> NodePlan:
    part = _Part.of(value, at, "node", "pool", "step")
    step = _Part.of(
        part.members["step"], f"{at}.step", "from_driver", "to_driver", "flavour", "manager", "packages", "back", "restart", "expects",
        "done_when",
    )  # fmt: skip
    return NodePlan(
        part.text("node"),
        part.text("pool"),
        Step(
            from_driver=step.text("from_driver"),
            to_driver=step.text("to_driver"),
            flavour=step.text("flavour"),
            manager=step.text("manager"),
            packages=tuple(PackagePin(name, version) for name, version in step.pairs("packages")),
            back=tuple(PackagePin(name, version) for name, version in step.pairs("back")),
            restart=step.text("restart"),
            expects=tuple(Expectation(path, text) for path, text in step.pairs("expects")),
            done_when=tuple(Expectation(path, text) for path, text in step.pairs("done_when")),
        ),
    )


def _waiting_from(value: object, at: str) -> Waiting:
    part = _Part.of(value, at, "subject", "on", "detail")
    if part.text("on") not in tuple(WaitingOn):
        raise ValueError(f"{at}.on: {part.text('on')!r} is no reason to wait")
    return Waiting(part.text("subject"), WaitingOn(part.text("on")), part.text("detail"))
