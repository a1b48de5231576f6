"""What is done in each phase: one short coroutine a phase that observes, checks, acts and says what it came to.

No phase decides what comes next (`machine` does) and none writes to the store (`runner` does). Each may be cut off at any point and run again
from its beginning: whatever changes a node is a named task that the node itself runs at most once.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from muster.executor import kernel
from muster.executor.draining import cordon, drain, late_jobs, taken_over, uncordon
from muster.executor.scene import Result, Scene, away, waiting
from muster.executor.session import NOT_BEGUN, LeaseAnswer, TaskEnd, TaskState
from muster.executor.words import last_words, verdict_words
from muster.model.command import (
    FetchPackages,
    GiveBackSettings,
    InstallPackages,
    Reboot,
    Reload,
    SaveRestorePoint,
    SettleKernel,
    Unreachable,
    Validate,
    Work,
)
from muster.model.fact import Fact, FactValue, NodeFacts, Unknown
from muster.model.phase import Event, Phase
from muster.model.plan import Expectation
from muster.model.validation import Validated
from muster.model.verdict import Pass, Undecided, Verdict
from muster.node import readiness, restart, settings

PREFLIGHT_S = 180
FETCH_S = 3600
INSTALL_S = 0
SAVE_S = 300
RELOAD_S = 300
SETTINGS_S = 300
"""How long a task may run before the node itself ends it (0: never; a package transaction must not be cut, and DKMS takes its minutes)."""

REBOOT_LIMIT_S = 1800
"""How long a node may stay away after a restart: servers with much memory and firmware checks need over ten minutes."""

TRIES = 3
"""How often a step that changes nothing (or that mends) is tried again before it counts as failed."""

START_LIMIT_S = 300
"""How long a node may refuse or fail to begin a task. Another carrier's fence passes in seconds; a full disk or a lost lease does not."""

LOOK_HOLDS_S = 60
"""How long a look at a drained, leased node is relied on before it is looked at again. A person or a timer may still change it."""

RELOADING = "the module is being loaded"


def unmet(expectations: tuple[Expectation, ...], facts: NodeFacts) -> tuple[str, ...]:
    """What is not as expected, in words; an Unknown is never as expected."""
    found = []
    for wanted in expectations:
        seen = facts.text(wanted.path)
        if seen != wanted.value:
            words = seen if seen is not None else f"unknown ({getattr(facts.value(wanted.path), 'why', 'not a text')})"
            found.append(f"{wanted.path} is {words}, not {wanted.value}")
    return tuple(found)


async def preflight(scene: Scene) -> Result:
    facts = await scene.session.look()
    if isinstance(facts, Unreachable):
        return away(facts)
    if not unmet(scene.step.done_when, facts):
        return Result(Event.REFUSED, f"already runs {scene.step.to_driver}")
    moved = unmet(scene.step.expects, facts)
    if moved:
        return Result(Event.REFUSED, "the node moved since the plan was made: " + "; ".join(moved))
    broken = scene.manager.broken(facts)
    if broken:
        return Result(Event.REFUSED, f"packages are half-installed: {', '.join(broken)}")
    names = tuple(pin.name for pin in scene.step.packages)
    text = wanted(scene.validator.needs) + readiness.before(names, restarts=scene.step.restart == "reboot")
    text += kernel.asked(scene.step) + scene.manager.preflight(scene.step.incoming, scene.step.back)
    outcome = await scene.session.ask(text, deadline_s=PREFLIGHT_S)
    if isinstance(outcome, Unreachable):
        return away(outcome)
    if outcome.exit_status != 0:
        return Result(Event.REFUSED, last_words(outcome.stdout) or last_words(outcome.stderr) or "preflight failed")
    return Result(Event.PASSED, last_words(outcome.stdout))


def wanted(programs: tuple[str, ...]) -> str:
    """The lines that end a preflight where the validation could only say Unknown: better known before a node is drained."""
    return "".join(
        f"( PATH=$PATH:/usr/sbin:/sbin; command -v {quoted} >/dev/null ) || {{\n"
        f"  printf 'the validation needs %s, which is not on this node\\n' {quoted}\n  exit 1\n}}\n"
        for quoted in map(shlex.quote, programs)
    )


async def lease(scene: Scene) -> Result:
    return leased(await scene.session.take_lease(scene.reason))


def leased(taken: LeaseAnswer | Unreachable) -> Result:
    if isinstance(taken, Unreachable):
        return away(taken)
    if taken.number is None:
        return Result(Event.REFUSED, taken.words)
    return Result(Event.PASSED, f"lease {taken.number}", lease=taken.number)


async def fetch(scene: Scene) -> Result:
    text = scene.manager.fetch(scene.step.incoming, scene.step.back, scene.keep)
    work = FetchPackages(scene.step.incoming, scene.step.back)
    return retried(scene, await scene.session.task("fetch", text, work, FETCH_S), "fetch")


async def baseline(scene: Scene) -> Result:
    ended = await _exercised(scene, "baseline")
    if isinstance(ended, Result):
        return ended
    facts = await scene.session.look()
    if isinstance(facts, Unreachable):
        return away(facts)
    moved = unmet(scene.step.expects, facts)
    if moved:
        return Result(Event.REFUSED, "the node moved while it waited: " + "; ".join(moved))
    verdict = _judged(scene, ended, facts)
    kept = _validated(scene, ended, verdict, facts, scene.step.from_driver)
    if isinstance(verdict, Pass):
        # What answers now must answer after the change, and as fast: a GPU that the new driver loses is its failure.
        seen = {"gpu_count": str(facts.value("gpu.count")), "gpu_product": kept.kind, "figures": _figures_note(kept)}
        return Result(Event.PASSED, f"on {scene.step.from_driver}: {verdict.why}", notes=seen, validated=kept)
    if isinstance(verdict, Undecided) and scene.run.attempt + 1 < TRIES:
        return Result(Event.WAITING, verdict_words(verdict), retry=True, validated=kept)
    if isinstance(verdict, Undecided):
        # Nothing says that it is broken, and nobody could tell afterwards what the new driver did: it stays as it is, in service.
        why = f"cannot be validated on {scene.step.from_driver}: {verdict_words(verdict)}"
        return Result(Event.REFUSED, why, validated=kept)
    why = f"failed on {scene.step.from_driver} before anything was changed: {verdict_words(verdict)}"
    return Result(Event.FAILED, why, notes={"broken_before": verdict_words(verdict)}, validated=kept)


async def restore_point(scene: Scene) -> Result:
    what = "the restore point"
    # The baseline just saw the node as it should be; and a task that is under way was begun on what was seen then.
    if scene.waited_s > LOOK_HOLDS_S and scene.run.waiting != _under_way(what):
        facts = await scene.session.look()
        if isinstance(facts, Unreachable):
            return away(facts)
        moved = unmet(scene.step.expects, facts)
        if moved:
            return Result(Event.REFUSED, "the node moved while it waited: " + "; ".join(moved))
    taken = await taken_over(scene)
    if taken is not None:
        return taken
    text = settings.save(scene.keep) + scene.manager.save(scene.step.back, scene.keep)
    ended = await scene.session.task("save", text, SaveRestorePoint(scene.run.run_id), SAVE_S)
    return retried(scene, ended, what)


async def apply(scene: Scene) -> Result:
    text = kernel.held(scene.step, scene.keep) + scene.manager.install(scene.step.incoming, scene.step.back)
    work = InstallPackages(scene.step.incoming, scene.step.leaving)
    ended = await scene.session.task("apply", text, work, INSTALL_S)
    if not isinstance(ended, TaskEnd):
        return away(ended)
    if ended.state is TaskState.RUNNING:
        return waiting("the packages are being changed")
    if ended.state in NOT_BEGUN:
        return not_begun(scene, ended, "the change")
    if ended.state is TaskState.DONE and ended.exit_status == 0:
        event = Event.RESTART_BY_REBOOT if scene.step.restart == "reboot" else Event.PASSED
        return Result(event, f"packages of {scene.step.to_driver} are installed")
    return driver_failed(scene, f"the packages could not be installed: {ended.words}")


async def reload(scene: Scene) -> Result:
    if scene.run.waiting != RELOADING:
        late = await late_jobs(scene)
        if late is not None:
            return late
    ended = await scene.session.task("reload", restart.RELOAD, Reload(), RELOAD_S)
    if not isinstance(ended, TaskEnd):
        return away(ended)
    if ended.state is TaskState.RUNNING:
        return waiting(RELOADING)
    if ended.state in NOT_BEGUN:
        return not_begun(scene, ended, "the reload")
    if ended.state is TaskState.DONE and ended.exit_status == 0:
        return Result(Event.PASSED, "the module on disk is loaded")
    if ended.exit_status == restart.IN_USE:
        return Result(Event.RESTART_BY_REBOOT, f"the old module is held: {ended.words}")
    return await _not_reloaded(scene, ended)


async def _not_reloaded(scene: Scene, ended: TaskEnd) -> Result:
    if ended.exit_status == restart.DOWN:
        return driver_failed(scene, f"the new module is loaded, and a service failed: {ended.words}")
    # A node that lost power in between has loaded what is on its disk.
    facts = await scene.session.look()
    if isinstance(facts, Unreachable):
        return away(facts)
    if not unmet(scene.step.done_when, facts):
        return Result(Event.PASSED, f"{scene.step.to_driver} is loaded")
    return driver_failed(scene, f"the module did not load: {ended.words}")


async def reboot(scene: Scene) -> Result:
    result = await _restart(scene)
    if result.event is Event.FAILED and "not_the_driver" not in result.notes:
        return driver_failed(scene, result.why)
    return result


async def verify(scene: Scene) -> Result:
    wrong = await _not_as(scene, scene.step.done_when, scene.step.leaving)
    if isinstance(wrong, Result):
        return wrong
    if wrong:
        return driver_failed(scene, "; ".join(wrong))
    given = await _given_back(scene, "settings")
    if given.event is Event.FAILED:
        return driver_failed(scene, given.why)
    if given.event is Event.WAITING:
        return given
    return Result(Event.PASSED, f"every member of the stack says {scene.step.to_driver}, and the node is set as before")


async def _not_as(scene: Scene, expected: tuple[Expectation, ...], gone: tuple[str, ...]) -> tuple[str, ...] | Result:
    """What of the node's stack is not as expected or not whole, now, or is there and should not be; or that the node is away."""
    facts = await scene.session.look()
    if isinstance(facts, Unreachable):
        return away(facts)
    there = scene.manager.installed(facts)
    return (
        *unmet(expected, facts),
        *(f"{name} is half-installed" for name in scene.manager.broken(facts)),
        *(f"{name} is still installed" for name in gone if name in there),
    )


async def _given_back(scene: Scene, name: str) -> Result:
    """What a reload or a restart took away is set again, and what the node was set to is compared with what it was."""
    work = GiveBackSettings(scene.run.run_id)
    text = settings.give_back(scene.keep, loader=scene.step.kernel is None)
    ended = await scene.session.task(name, text, work, SETTINGS_S)
    return retried(scene, ended, "giving back what the node was set to")


async def validate(scene: Scene) -> Result:
    ended = await _exercised(scene, "validate")
    if isinstance(ended, Result):
        return ended
    before = _as_before(scene)
    verdict = _judged(scene, ended, before)
    kept = _validated(scene, ended, verdict, before, scene.step.to_driver)
    if isinstance(verdict, Pass):
        return Result(Event.PASSED, verdict.why, notes={"validated": scene.step.to_driver}, validated=kept)
    if isinstance(verdict, Undecided) and scene.run.attempt + 1 < TRIES:
        return Result(Event.WAITING, verdict_words(verdict), retry=True, validated=kept)
    return replace(driver_failed(scene, f"validation: {verdict_words(verdict)}"), validated=kept)


async def give_back(scene: Scene) -> Result:
    settled = await _settled(scene)
    if settled.event is not Event.PASSED:
        return settled
    outcome = await uncordon(scene)
    if isinstance(outcome, Unreachable):
        return away(outcome)
    if outcome.exit_status != 0:
        return waiting(f"the cordon could not be lifted: {last_words(outcome.stdout + outcome.stderr)}")
    released = await scene.session.release_lease()
    if isinstance(released, Unreachable):
        return away(released)
    if released.number is None:
        return waiting(released.words)
    return Result(Event.PASSED, last_words(outcome.stdout) if scene.session.node.in_slurm else "in service again")


async def _settled(scene: Scene) -> Result:
    """Where the kernel was to move: the boot loader says for good what runs now, and on the way back the packages of the other one are gone.

    Not before the node was validated: until then whatever restarts it brings the old kernel back.
    """
    back = scene.run.notes.get("direction") == "back"
    text = kernel.settled(scene.step, scene.keep, scene.manager, back=back)
    if not text or scene.run.phase is not Phase.RETURN_REQUIRED:
        return Result(Event.PASSED, "")
    work = SettleKernel(kernel.of(scene.step, back=back), kernel.packages(scene.step) if back else ())
    ended = await scene.session.task("settle", text, work, INSTALL_S)
    return retried(scene, ended, "settling what the node boots")


async def probation(scene: Scene) -> Result:
    facts = await scene.session.look(whole=True)
    if isinstance(facts, Unreachable):
        return away(facts)
    back = scene.run.notes.get("direction") == "back"
    wrong = unmet(scene.step.expects if back else scene.step.done_when, facts)
    if wrong:
        return Result(Event.FAILED, "after its return: " + "; ".join(wrong), notes={"cause": "; ".join(wrong)})
    return Result(
        Event.WENT_BACK if back else Event.PASSED, scene.run.notes.get("cause", "") if back else "changed and validated"
    )


async def rollback(scene: Scene) -> Result:
    text = scene.manager.restore(scene.step.back, scene.keep, scene.step.packages)
    work = InstallPackages(scene.step.back, scene.step.coming)
    ended = await scene.session.task("restore", text, work, INSTALL_S)
    result = retried(scene, ended, "the way back")
    never_loaded = (
        scene.run.notes.get("failed_in") in (None, Phase.APPLY_REQUIRED.value) or "not_the_driver" in scene.run.notes
    )
    if result.event is Event.PASSED and not never_loaded:
        return Result(Event.RESTART_BY_REBOOT, "the new module was loaded: the way back goes over a restart")
    return result


async def rollback_reload(scene: Scene) -> Result:
    what = "loading the old module"
    if scene.run.waiting != _under_way(what):  # it may never have left
        facts = await scene.session.look()
        if isinstance(facts, Unreachable):
            return away(facts)
        if not unmet(scene.step.expects, facts):
            return Result(Event.PASSED, f"{scene.step.from_driver} is loaded")
        late = await late_jobs(scene)
        if late is not None:
            return late
    ended = await scene.session.task("reload-back", restart.RELOAD, Reload(), RELOAD_S)
    result = retried(scene, ended, what)
    return Result(Event.RESTART_BY_REBOOT, result.why) if result.event is Event.FAILED else result


async def rollback_reboot(scene: Scene) -> Result:
    return await _restart(scene)


async def rollback_verify(scene: Scene) -> Result:
    wrong = await _not_as(scene, scene.step.expects, scene.step.coming)
    if isinstance(wrong, Result):
        return wrong
    if wrong:
        return Result(Event.FAILED, "after the way back: " + "; ".join(wrong))
    given = await _given_back(scene, "settings-back")
    if given.event is not Event.PASSED:
        return given
    return Result(
        Event.PASSED, f"every member of the stack says {scene.step.from_driver} again, and the node is set as before"
    )


async def rollback_validate(scene: Scene) -> Result:
    ended = await _exercised(scene, "validate-back")
    if isinstance(ended, Result):
        return ended
    before = _as_before(scene)
    verdict = _judged(scene, ended, before)
    kept = _validated(scene, ended, verdict, before, scene.step.from_driver)
    if isinstance(verdict, Pass):
        return Result(Event.PASSED, verdict.why, notes={"validated": scene.step.from_driver}, validated=kept)
    if isinstance(verdict, Undecided) and scene.run.attempt + 1 < TRIES:
        return Result(Event.WAITING, verdict_words(verdict), retry=True, validated=kept)
    return Result(Event.FAILED, f"validation after the way back: {verdict_words(verdict)}", validated=kept)


async def release(scene: Scene) -> Result:
    result = await give_back(scene)
    if result.event is Event.PASSED:
        await scene.session.look(whole=True)  # for the facts alone: they still show our lease
    return result


PHASES: Mapping[Phase, Callable[[Scene], Awaitable[Result]]] = {
    Phase.PREFLIGHT_REQUIRED: preflight,
    Phase.LEASE_REQUIRED: lease,
    Phase.FETCH_REQUIRED: fetch,
    Phase.CORDON_REQUIRED: cordon,
    Phase.DRAIN_REQUIRED: drain,
    Phase.BASELINE_REQUIRED: baseline,
    Phase.RESTORE_POINT_REQUIRED: restore_point,
    Phase.APPLY_REQUIRED: apply,
    Phase.RELOAD_REQUIRED: reload,
    Phase.REBOOT_REQUIRED: reboot,
    Phase.VERIFY_REQUIRED: verify,
    Phase.VALIDATE_REQUIRED: validate,
    Phase.RETURN_REQUIRED: give_back,
    Phase.PROBATION: probation,
    Phase.ROLLBACK_REQUIRED: rollback,
    Phase.ROLLBACK_RELOAD_REQUIRED: rollback_reload,
    Phase.ROLLBACK_REBOOT_REQUIRED: rollback_reboot,
    Phase.ROLLBACK_VERIFY_REQUIRED: rollback_verify,
    Phase.ROLLBACK_VALIDATE_REQUIRED: rollback_validate,
    Phase.RELEASE_REQUIRED: release,
}
"""Every phase that is not an end, with what is done in it."""


def _under_way(what: str) -> str:
    return f"{what} is under way"


def retried(scene: Scene, ended: TaskEnd | Unreachable, what: str) -> Result:
    """For tasks that may be tried again: they change nothing, or they mend."""
    if isinstance(ended, Unreachable):
        return away(ended)
    match ended.state:
        case TaskState.RUNNING:
            return waiting(_under_way(what))
        case TaskState.REFUSED | TaskState.UNKNOWN:
            return not_begun(scene, ended, what)
        case TaskState.DONE if ended.exit_status == 0:
            return Result(Event.PASSED, ended.words)
        case _ if scene.run.attempt + 1 < TRIES:
            return Result(Event.WAITING, f"{what} failed, is tried again: {ended.words}", retry=True)
        case _:
            return Result(Event.FAILED, f"{what} failed {TRIES} times: {ended.words}")


def not_begun(scene: Scene, ended: TaskEnd, what: str) -> Result:
    """The node did not begin the task: asked again under the same id, for a while."""
    if scene.waited_s <= START_LIMIT_S:
        return waiting(f"{what} could not be begun: {ended.words}")
    why = f"{what} could not be begun within {START_LIMIT_S} s: {ended.words}"
    return driver_failed(scene, why) if scene.run.phase in _CHANGING else Result(Event.FAILED, why)


_CHANGING = (Phase.APPLY_REQUIRED, Phase.RELOAD_REQUIRED, Phase.VALIDATE_REQUIRED)


async def _exercised(scene: Scene, name: str) -> TaskEnd | Result:
    """The validation's task, ended in one way or another; or what to do meanwhile."""
    ended = await scene.session.task(name, scene.validator.script(), _VALIDATE, scene.validator.limit_s)
    if isinstance(ended, Unreachable):
        return away(ended)
    if ended.state is TaskState.RUNNING:
        return waiting("the GPUs are being exercised")
    if ended.state in NOT_BEGUN:
        return not_begun(scene, ended, "the validation")
    return ended


def _judged(scene: Scene, ended: TaskEnd, facts: NodeFacts) -> Verdict:
    if ended.state is not TaskState.DONE or ended.exit_status is None:
        return Undecided(f"the validation did not end by itself ({ended.state.value})")
    return scene.validator.judge(ended.exit_status, ended.out, facts)


def _as_before(scene: Scene) -> NodeFacts:
    """The facts that a validation is held against: the GPUs that answered at the baseline, and what was measured there."""
    notes, at = scene.run.notes, scene.run.phase_since
    count = notes.get("gpu_count", "")
    values: dict[str, FactValue] = {
        "gpu.count": int(count) if count.isdecimal() else Unknown("the baseline counted no GPUs"),
        "gpu.product": notes.get("gpu_product") or Unknown("the baseline named no GPUs"),
    }
    figures = (part.partition("=") for part in notes.get("figures", "").split())
    values |= {f"baseline.{metric}": value for metric, _, value in figures}
    return NodeFacts(scene.run.node, at, {path: Fact(path, each, "baseline", at) for path, each in values.items()})


def _validated(scene: Scene, ended: TaskEnd, verdict: Verdict, facts: NodeFacts, driver: str) -> Validated:
    name, figures = scene.validator.name, scene.validator.figures(ended.out)
    kind = facts.text("gpu.product") or ""
    return Validated(scene.run.node, scene.now, name, kind, driver, verdict, figures, scene.run.rollout_id)


def _figures_note(kept: Validated) -> str:
    return " ".join(f"{metric}={value:.6f}" for metric, value in sorted(kept.figures.items()))


async def _restart(scene: Scene) -> Result:
    """Restart the node once and wait for another boot id. The boot id of before is kept in the run's notes first.

    A job that came after the drain is waited for: a restart would end it.
    """
    boot = await scene.session.boot_id()
    phase = scene.run.phase.value
    before, asked = scene.run.notes.get(f"boot_before_{phase}"), scene.run.notes.get(f"asked_{phase}")
    if before is None or asked is None:
        if isinstance(boot, Unreachable):
            return away(boot)
        if before is None:
            return Result(Event.WAITING, "will restart", notes={f"boot_before_{phase}": boot})
    if isinstance(boot, str) and boot != before:
        return Result(Event.PASSED, "restarted")
    if asked is None:
        late = await late_jobs(scene)
        if late is not None:
            return late
        asked = str(int(scene.waited_s))
    if scene.waited_s - int(asked) > REBOOT_LIMIT_S:
        return Result(Event.FAILED, f"did not come back from its restart within {REBOOT_LIMIT_S} s")
    if isinstance(boot, Unreachable):
        return waiting("is away, restarting")
    # Under the phase's own name: the restart of the way back is another one than the restart of the way there.
    back = phase == Phase.ROLLBACK_REBOOT_REQUIRED.value
    driver = scene.step.from_driver if back else scene.step.to_driver.partition("-")[0]
    ready = readiness.before_restart(driver, back=back, kernel=kernel.of(scene.step, back=back))
    text = ready + kernel.chosen(scene.step, back=back) + restart.REBOOT
    ended = await scene.session.task(phase, text, Reboot(), RELOAD_S)
    if isinstance(ended, TaskEnd) and ended.state is TaskState.DONE and ended.exit_status:
        return Result(Event.FAILED, f"the restart was refused: {ended.words}")
    return Result(Event.WAITING, "is going down", notes={f"asked_{phase}": asked})


def driver_failed(scene: Scene, cause: str) -> Result:
    notes = {"cause": cause, "failed_in": scene.run.phase.value, "direction": "back"}
    return Result(Event.FAILED, cause, notes=notes)


_VALIDATE: Work = Validate()
