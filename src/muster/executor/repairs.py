"""What a repair does otherwise than a change, phase by phase; the phases and their order are the same.

A node that is broken cannot be validated beforehand and has nothing worth going back to: there is no baseline, and a repair that fails ends
in quarantine with its evidence, never in a second guess. It ends no job and waits for none.
"""

from collections.abc import Awaitable, Callable, Mapping

from muster.executor import phases
from muster.executor.draining import job_words
from muster.executor.phases import FETCH_S, INSTALL_S, PHASES, PREFLIGHT_S, SAVE_S
from muster.executor.scene import Result, Scene, away
from muster.executor.session import LeaseAnswer
from muster.executor.words import last_words
from muster.model.command import Answered, FetchPackages, InstallPackages, SaveRestorePoint, Unreachable
from muster.model.phase import Event, Phase
from muster.node import readiness, settings
from muster.ports import PackageRepairs


async def preflight(scene: Scene) -> Result:
    facts = await scene.session.look()
    if isinstance(facts, Unreachable):
        return away(facts)
    moved = phases.unmet(scene.step.expects, facts)
    if moved:
        return Result(Event.REFUSED, "the node moved since the plan was made: " + "; ".join(moved))
    busy = await _busy(scene)
    if busy is not None:
        return busy
    names = tuple(pin.name for pin in scene.step.packages)
    text = phases.wanted(needs_beside(scene)) + readiness.before(names, restarts=scene.step.restart == "reboot")
    text += _manager(scene).repair_preflight(scene.step.packages, scene.step.back)
    outcome = await scene.session.ask(text, deadline_s=PREFLIGHT_S)
    if isinstance(outcome, Unreachable):
        return away(outcome)
    if outcome.exit_status != 0:
        return Result(Event.REFUSED, last_words(outcome.stdout) or last_words(outcome.stderr) or "preflight failed")
    return Result(Event.PASSED, last_words(outcome.stdout))


async def lease(scene: Scene) -> Result:
    """The node's lease. Of a run that ended in quarantine, and that the plan names, it is given back first."""
    taken = await scene.session.take_lease(scene.reason)
    if isinstance(taken, LeaseAnswer) and taken.number is None and scene.taken_from:
        given = await scene.session.release_lease(of=scene.taken_from)
        if isinstance(given, Unreachable):
            return away(given)
        taken = await scene.session.take_lease(scene.reason)
    return phases.leased(taken)


async def fetch(scene: Scene) -> Result:
    text = _manager(scene).gather(scene.step.packages, scene.keep)
    work = FetchPackages(scene.step.packages, ())
    return phases.retried(scene, await scene.session.task("fetch", text, work, FETCH_S), "fetch")


async def drain(scene: Scene) -> Result:
    return await _busy(scene) or Result(Event.PASSED, "no job runs here")


async def baseline(scene: Scene) -> Result:
    """Nothing is validated on a broken stack. How many GPUs must answer afterwards is what the plan knows of the node."""
    gpus = scene.plan.node(scene.run.node).gpus
    words = f"not validated: its stack is broken; {gpus} GPUs must answer afterwards"
    return Result(Event.PASSED, words, notes=expected_gpus(scene))


def needs_beside(scene: Scene) -> tuple[str, ...]:
    """What the validation needs beside what the driver itself brings: that may be gone, or not there yet."""
    return tuple(name for name in scene.validator.needs if name != "nvidia-smi")


def expected_gpus(scene: Scene) -> Mapping[str, str]:
    """What a baseline would have seen, as far as the plan knows it: the GPUs that must answer afterwards, and their model."""
    part = scene.plan.node(scene.run.node)
    product = part.stratum.partition(" / ")[0]  # the stratum begins with the model
    return {"gpu_count": str(part.gpus) if part.gpus else "", "gpu_product": product}


async def restore_point(scene: Scene) -> Result:
    text = settings.save(scene.keep) + scene.manager.save(scene.step.packages, scene.keep)
    ended = await scene.session.task("save", text, SaveRestorePoint(scene.run.run_id), SAVE_S)
    return phases.retried(scene, ended, "writing down what lies there")


async def apply(scene: Scene) -> Result:
    text = _manager(scene).repair(scene.step.packages, scene.step.back, scene.keep)
    work = InstallPackages(scene.step.packages, scene.step.leaving)
    result = phases.retried(scene, await scene.session.task("repair", text, work, INSTALL_S), "the repair")
    if result.event is Event.PASSED and scene.step.restart == "reboot":
        return Result(Event.RESTART_BY_REBOOT, result.why)
    return result


async def no_way_back(scene: Scene) -> Result:
    return Result(Event.FAILED, "a repair has no way back: a person decides")


def _manager(scene: Scene) -> PackageRepairs:
    assert isinstance(scene.manager, PackageRepairs), f"{scene.manager.name} was planned with and cannot repair"
    return scene.manager


async def _busy(scene: Scene) -> Result | None:
    """Jobs on the node, or that nobody can say; None when there are none."""
    jobs = await scene.scheduler.jobs(scene.session.node)
    if isinstance(jobs, Unreachable):
        return away(jobs)
    if not isinstance(jobs, Answered) and not jobs:
        return None
    return Result(Event.REFUSED, f"a repair takes no node from a job: {job_words(jobs)}")


REPAIR: Mapping[Phase, Callable[[Scene], Awaitable[Result]]] = {
    **PHASES,
    Phase.PREFLIGHT_REQUIRED: preflight,
    Phase.LEASE_REQUIRED: lease,
    Phase.FETCH_REQUIRED: fetch,
    Phase.DRAIN_REQUIRED: drain,
    Phase.BASELINE_REQUIRED: baseline,
    Phase.RESTORE_POINT_REQUIRED: restore_point,
    Phase.APPLY_REQUIRED: apply,
    Phase.ROLLBACK_REQUIRED: no_way_back,
}
"""Every phase of a repair that is not an end, with what is done in it."""
