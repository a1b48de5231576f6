"""What a first installation does otherwise than a change, phase by phase; the phases and their order are the same.

A bare node has no driver to be validated beforehand, and the way back leads to no driver: the packages are taken away again, and nothing is
validated after it.
"""

from collections.abc import Awaitable, Callable, Mapping

from muster.executor import phases
from muster.executor.holding import HOLD
from muster.executor.phases import FETCH_S, INSTALL_S, PHASES, PREFLIGHT_S, SAVE_S
from muster.executor.repairs import REPAIR, expected_gpus, needs_beside
from muster.executor.scene import Result, Scene, away, waiting
from muster.executor.session import NOT_BEGUN, TaskEnd, TaskState
from muster.executor.words import last_words
from muster.model.command import FetchPackages, InstallPackages, SaveRestorePoint, Unreachable
from muster.model.fact import NodeFacts
from muster.model.phase import Event, Phase
from muster.model.plan import StepKind
from muster.node import readiness, settings
from muster.ports import PackageInstalls


async def preflight(scene: Scene) -> Result:
    facts = await scene.session.look()
    if isinstance(facts, Unreachable):
        return away(facts)
    moved = (*phases.unmet(scene.step.expects, facts), *_driver(scene, facts))
    if moved:
        return Result(Event.REFUSED, "the node moved since the plan was made: " + "; ".join(moved))
    names = tuple(pin.name for pin in scene.step.packages)
    text = phases.wanted(needs_beside(scene)) + readiness.before(names, restarts=scene.step.restart == "reboot")
    text += _manager(scene).first_preflight(scene.step.packages)
    outcome = await scene.session.ask(text, deadline_s=PREFLIGHT_S)
    if isinstance(outcome, Unreachable):
        return away(outcome)
    if outcome.exit_status != 0:
        return Result(Event.REFUSED, last_words(outcome.stdout) or last_words(outcome.stderr) or "preflight failed")
    return Result(Event.PASSED, last_words(outcome.stdout))


async def fetch(scene: Scene) -> Result:
    text = _manager(scene).first_fetch(scene.step.packages, scene.keep)
    work = FetchPackages(scene.step.packages, ())
    return phases.retried(scene, await scene.session.task("fetch", text, work, FETCH_S), "fetch")


async def baseline(scene: Scene) -> Result:
    return Result(Event.PASSED, "not validated: there is no driver yet", notes=expected_gpus(scene))


async def restore_point(scene: Scene) -> Result:
    text = settings.save(scene.keep) + scene.manager.save((), scene.keep)
    ended = await scene.session.task("save", text, SaveRestorePoint(scene.run.run_id), SAVE_S)
    return phases.retried(scene, ended, "writing down what is there")


async def apply(scene: Scene) -> Result:
    text = _manager(scene).first_install(scene.step.packages)
    ended = await scene.session.task("apply", text, InstallPackages(scene.step.packages), INSTALL_S)
    if not isinstance(ended, TaskEnd):
        return away(ended)
    if ended.state is TaskState.RUNNING:
        return waiting("the packages are being installed")
    if ended.state in NOT_BEGUN:
        return phases.not_begun(scene, ended, "the installation")
    if ended.state is TaskState.DONE and ended.exit_status == 0:
        event = Event.RESTART_BY_REBOOT if scene.step.restart == "reboot" else Event.PASSED
        return Result(event, f"packages of {scene.step.to_driver} are installed")
    return phases.driver_failed(scene, f"the packages could not be installed: {ended.words}")


async def rollback(scene: Scene) -> Result:
    text = _manager(scene).take_away(scene.step.packages, scene.keep)
    work = InstallPackages((), scene.step.coming)
    return phases.retried(
        scene, await scene.session.task("take-away", text, work, INSTALL_S), "taking the driver away again"
    )


async def rolled_back(scene: Scene) -> Result:
    """Nothing of the driver is left, loaded or on disk."""
    facts = await scene.session.look()
    if isinstance(facts, Unreachable):
        return away(facts)
    left = _driver(scene, facts)
    return Result(Event.FAILED, "; ".join(left)) if left else Result(Event.PASSED, "nothing of the driver is left")


async def nothing_to_do(scene: Scene) -> Result:
    return Result(Event.PASSED, "there is no driver to load or to validate")


def _driver(scene: Scene, facts: NodeFacts) -> tuple[str, ...]:
    """What of a driver is on the node; what cannot be told counts as there."""
    there = scene.manager.installed(facts)
    return (
        *(f"{pin.name} is installed" for pin in scene.step.packages if pin.name in there),
        *(f"{name} is half-installed" for name in scene.manager.broken(facts)),
        *(() if facts.value("module.nvidia.on_disk") is False else ("a module nvidia is on disk",)),
        *(() if facts.value("module.nvidia.loaded") is False else ("the module nvidia is loaded",)),
    )


def _manager(scene: Scene) -> PackageInstalls:
    assert isinstance(scene.manager, PackageInstalls), f"{scene.manager.name} was planned with and cannot install"
    return scene.manager


INSTALL: Mapping[Phase, Callable[[Scene], Awaitable[Result]]] = {
    **PHASES,
    Phase.PREFLIGHT_REQUIRED: preflight,
    Phase.FETCH_REQUIRED: fetch,
    Phase.BASELINE_REQUIRED: baseline,
    Phase.RESTORE_POINT_REQUIRED: restore_point,
    Phase.APPLY_REQUIRED: apply,
    Phase.ROLLBACK_REQUIRED: rollback,
    Phase.ROLLBACK_RELOAD_REQUIRED: nothing_to_do,
    Phase.ROLLBACK_VERIFY_REQUIRED: rolled_back,
    Phase.ROLLBACK_VALIDATE_REQUIRED: nothing_to_do,
}
"""Every phase of a first installation that is not an end, with what is done in it."""

OF_KIND: Mapping[StepKind, Mapping[Phase, Callable[[Scene], Awaitable[Result]]]] = {
    StepKind.CHANGE: PHASES,
    StepKind.REPAIR: REPAIR,
    StepKind.INSTALL: INSTALL,
    StepKind.HOLD: HOLD,
}
"""What is done in each phase, by the kind of step."""
