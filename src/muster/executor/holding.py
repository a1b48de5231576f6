"""What a step that only holds does in each phase: the lease, the holds, and nothing else. The node is never taken out of service."""

from collections.abc import Awaitable, Callable, Mapping

from muster.executor import phases
from muster.executor.phases import PHASES, SAVE_S
from muster.executor.scene import Result, Scene, away
from muster.model.command import Hold, Unreachable
from muster.model.phase import Event, Phase
from muster.ports import PackageHolds


async def preflight(scene: Scene) -> Result:
    facts = await scene.session.look()
    if isinstance(facts, Unreachable):
        return away(facts)
    moved = phases.unmet(scene.step.expects, facts)
    if moved:
        return Result(Event.REFUSED, "the node moved since the plan was made: " + "; ".join(moved))
    return Result(Event.PASSED, "as it was seen")


async def apply(scene: Scene) -> Result:
    assert isinstance(scene.manager, PackageHolds), f"{scene.manager.name} was planned with and cannot hold"
    text = scene.manager.hold(scene.step.packages)
    return phases.retried(scene, await scene.session.task("hold", text, Hold(scene.step.packages), SAVE_S), "the hold")


async def passed(scene: Scene) -> Result:
    return Result(Event.PASSED, "nothing to do: no package changes")


async def verify(scene: Scene) -> Result:
    """The stack is what it was."""
    facts = await scene.session.look()
    if isinstance(facts, Unreachable):
        return away(facts)
    wrong = phases.unmet(scene.step.done_when, facts)
    return Result(Event.FAILED, "; ".join(wrong)) if wrong else Result(Event.PASSED, "held, and nothing else changed")


async def no_way_back(scene: Scene) -> Result:
    return Result(Event.FAILED, "the holds could not be set: a person decides")


HOLD: Mapping[Phase, Callable[[Scene], Awaitable[Result]]] = {
    **PHASES,
    Phase.PREFLIGHT_REQUIRED: preflight,
    Phase.APPLY_REQUIRED: apply,
    Phase.VERIFY_REQUIRED: verify,
    Phase.ROLLBACK_REQUIRED: no_way_back,
    **dict.fromkeys(
        (
            Phase.FETCH_REQUIRED, Phase.CORDON_REQUIRED, Phase.DRAIN_REQUIRED, Phase.BASELINE_REQUIRED, Phase.RESTORE_POINT_REQUIRED,
            Phase.RELOAD_REQUIRED, Phase.VALIDATE_REQUIRED,
        ),
        passed,
    ),
}  # fmt: skip
"""Every phase of a hold that is not an end, with what is done in it."""
