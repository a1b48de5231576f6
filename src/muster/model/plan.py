"""The plan: an immutable proposal that leaves the executor nothing to decide, with a report of what was not planned and why.

Its id is the hash of its content. A plan is never patched; a new one is made.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from muster.model.audit import canonical
from muster.model.stack import PackagePin


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


@dataclass(frozen=True, slots=True)
class Plan:
    """An immutable proposal for a fleet. See the module for its laws."""

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

    @property
    def id(self) -> str:
        """`plan-` and the first 16 hex digits of SHA-256 over the canonical JSON of the content."""
        return "plan-" + hashlib.sha256(canonical(plan_body(self))).hexdigest()[:16]

    def node(self, name: str) -> NodePlan:
        """The part of node `name`; KeyError when the plan leaves it out."""
        for part in self.nodes:
            if part.node == name:
                return part
        raise KeyError(name)


def plan_body(plan: Plan) -> Mapping[str, object]:
    """The plan as JSON values (no floats); `plan_from_body` is its inverse."""
    return {
        "schema": "muster.plan/1",
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
