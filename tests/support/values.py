"""Small valid values for tests of what stores and carries them."""

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from muster.model.audit import Record
from muster.model.fact import Fact, FactValue, NodeFacts, Unknown
from muster.model.phase import Phase
from muster.model.plan import Expectation, NodePlan, Plan, PoolLimits, Stage, Step, Waiting, WaitingOn
from muster.model.run import Rollout, RolloutState, Run
from muster.model.stack import PackagePin

T0 = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)

_T = TypeVar("_T")


def inline(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a store's method, which never suspends: run without an event loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    work.close()
    raise AssertionError("a store method waited")


def later(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def plan(fleet: str = "prod-eu", *, target: str = "580.126.20", nodes: tuple[str, ...] = ("n1", "n2", "n3")) -> Plan:
    pins = (PackagePin("nvidia-driver", f"{target}-1"), PackagePin("nvidia-kernel-open", f"{target}-1"))
    back = (PackagePin("nvidia-driver", "570.86.10-1"),)
    step = Step(
        "570.86.10",
        target,
        "open",
        "apt",
        pins,
        back,
        "reload",
        (Expectation("module.nvidia.loaded_version", "570.86.10"),),
        (Expectation("module.nvidia.loaded_version", target),),
    )
    return Plan(
        fleet=fleet,
        created_at="2026-03-01T08:00:00.000Z",
        parent=None,
        target=target,
        flavour="open",
        policy_revision="p1",
        knowledge_revision="k1",
        facts_revision="f1",
        approvals=1,
        pools=(PoolLimits("train", len(nodes), 1, "wait", 3600),),
        stages=(Stage("canary", nodes[:1], (nodes[:1],), 60, True), Stage("rest", nodes[1:], (nodes[1:],), 0, False)),
        nodes=tuple(NodePlan(name, "train", step) for name in nodes),
        left_out=(Waiting("n9", WaitingOn.NO_SOLUTION, "no driver fits"),),
        because=("the policy wants it",),
    )


def rollout(plan_id: str, rollout_id: str = "rollout-1") -> Rollout:
    return Rollout(rollout_id, plan_id, RolloutState.RUNNING, "", T0, T0, "host:1")


def run(
    node: str,
    rollout_id: str = "rollout-1",
    *,
    stage: int = 0,
    group: int = 0,
    released: bool = True,
    wake_s: float = 0,
    phase: Phase = Phase.PREFLIGHT_REQUIRED,
) -> Run:
    return Run(
        f"run-{rollout_id}-{node}", rollout_id, node, stage, group, phase, released, 0, 0, later(wake_s), T0, 0, "", {}
    )  # fmt: skip


def record(kind: str = "note", **body: object) -> Record:
    return Record("2026-03-01T08:00:00.000Z", "ops", "n1", kind, body)


def look(node: str, at_s: float = 0, *, trouble: str | None = None, **values: FactValue) -> NodeFacts:
    """Facts of one look; `a__b` stands for the path `a.b`, and `temperature` is momentary."""
    facts = {
        path: Fact(path, value, "test", later(at_s), path == "temperature")
        for path, value in ((key.replace("__", "."), value) for key, value in values.items())
    }
    return NodeFacts(node, later(at_s), facts, None if trouble is None else Unknown(trouble))
