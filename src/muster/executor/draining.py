"""Emptying a node and keeping it empty: the cordon, the jobs, and what the pool lets be done to them. No job is touched outside that.

Where a job runs on several nodes, one of them speaks for it: the first that this rollout has cordoned. What was already asked of a job stands
in the notes of that node's run, so that nothing is asked twice; a job that a dead process had asked just before is asked once more, which for a
signal is a second checkpoint, and for a requeue nothing, since the job is not there any more.
"""

from muster.executor.scene import Result, Scene, away, waiting
from muster.executor.words import counted, last_words
from muster.model.audit import Record
from muster.model.command import (
    Answered,
    CordonNodes,
    EndJob,
    JobWork,
    Outcome,
    RequeueJob,
    SignalJob,
    UncordonNodes,
    Unreachable,
    describe,
)
from muster.model.job import Job
from muster.model.phase import Event
from muster.model.policy import DrainPolicy

GATHER_S = 60
"""How long the node that speaks for a job waits for the job's other nodes to be cordoned too: a job that is put back into its queue must not
begin again on nodes that are drained a moment later. Nodes outside the stage never are."""


async def cordon(scene: Scene) -> Result:
    """Let no new job begin. A node that somebody else has taken out of service is left out."""
    outcome = await _cordoned_now(scene)
    if isinstance(outcome, Unreachable):
        return away(outcome)
    if outcome.exit_status != 0:
        return Result(Event.REFUSED, last_words(outcome.stdout + outcome.stderr))
    return Result(Event.PASSED, last_words(outcome.stdout) or "no new job starts here")


async def uncordon(scene: Scene) -> Outcome:
    """Lift our cordon, if it is still there and still ours."""
    if scene.session.node.in_slurm:
        await _noted(scene, "uncordon", UncordonNodes((scene.run.node,)))
    return await scene.scheduler.uncordon(scene.session.node, scene.run.rollout_id)


async def taken_over(scene: Scene) -> Result | None:
    """The end of a run, before anything was changed, on a node whose cordon is not ours any more; None while it is."""
    outcome = await scene.scheduler.cordoned(scene.session.node, scene.run.rollout_id)
    if isinstance(outcome, Unreachable):
        return away(outcome)
    if outcome.exit_status != 0:
        return Result(Event.REFUSED, f"nothing was changed: {last_words(outcome.stdout + outcome.stderr)}")
    return None


async def drain(scene: Scene) -> Result:
    """Wait until no job is left, and do to the jobs what the pool's policy says."""
    taken = await taken_over(scene)
    if taken is not None:
        return taken
    jobs = await scene.scheduler.jobs(scene.session.node)
    if isinstance(jobs, Unreachable):
        return away(jobs)
    if not isinstance(jobs, Answered) and not jobs:
        return Result(Event.PASSED, "no job runs here")
    words = job_words(jobs)
    limit_s = scene.limits.drain_limit_s
    if scene.waited_s > limit_s:
        ended = [key for key, value in scene.run.notes.items() if key.startswith("sent-") and value == "yes"]
        untouched = "" if ended else ", and no job was ended"
        return Result(Event.REFUSED, f"not drained after {limit_s} s, the pool's limit{untouched}: {words}")
    if isinstance(jobs, Answered) or scene.part.drain == DrainPolicy.WAIT.value:
        return waiting(words)
    for job in jobs:
        if not job.is_process:  # nobody put a process there that could put it elsewhere
            result = await _sent_away(scene, job)
            if result is not None:
                return result
    return waiting(words)


async def late_jobs(scene: Scene) -> Result | None:
    """What to do about jobs on a drained node; None when there are none. On a machine without a scheduler nothing keeps a new one away.

    They are waited for as long as the pool lets a drain last. After that the change is given up, which is not the driver's fault; on the way
    back from a driver that failed it still is.
    """
    kept = await _cordoned_now(
        scene
    )  # a scheduler that lost its state, or a person, may have put the node back in the middle of its change
    if isinstance(kept, Unreachable):
        return away(kept)
    jobs = await scene.scheduler.jobs(scene.session.node)
    if isinstance(jobs, Unreachable):
        return away(jobs)
    if not isinstance(jobs, Answered) and not jobs:
        return None
    words = f"{job_words(jobs)} (after the drain)"
    if scene.waited_s <= scene.limits.drain_limit_s:
        return waiting(words)
    why = f"given up after {scene.limits.drain_limit_s} s, the pool's limit, and no job was ended: {words}"
    if scene.run.notes.get("direction") == "back":
        return Result(Event.FAILED, why)  # what the way back is for stays its cause, and stays the driver's
    return Result(Event.FAILED, why, notes={"cause": why, "not_the_driver": why, "direction": "back"})


def job_words(jobs: tuple[Job, ...] | Answered) -> str:
    """Who is waited for."""
    if isinstance(jobs, Answered):
        return f"which jobs run here is unknown: {last_words(jobs.stdout + jobs.stderr)}"
    names = ", ".join(list(dict.fromkeys(job.name for job in jobs))[:3])
    if all(job.is_process for job in jobs):
        return f"waits for {counted(len(jobs), 'process', 'processes')} on the GPUs: {names}"
    ends = [job.ends_at for job in jobs]
    known = [end for end in ends if end is not None]
    until = f", which ends by {max(known):%Y-%m-%d %H:%M} UTC" if known and len(known) == len(ends) else ""
    return f"waits for {counted(len(jobs), 'job')}: {names}{until}"


async def _cordoned_now(scene: Scene) -> Outcome:
    """The cordon, put there if it is not; a node that is somebody else's stays so, and takes no new job either."""
    if scene.session.node.in_slurm:
        await _noted(scene, "cordon", CordonNodes((scene.run.node,), scene.reason))
    return await scene.scheduler.cordon(scene.session.node, scene.run.rollout_id, scene.reason, over=scene.taken_from)


async def _sent_away(scene: Scene, job: Job) -> Result | None:
    """What is done now about a job that the pool lets be interrupted; None for one that has been told all, or will not be."""
    sent = f"sent-{job.job_id}"
    if sent in scene.run.notes:
        return None
    gang = await scene.scheduler.gang(scene.session.node, job, scene.run.rollout_id)
    if isinstance(gang, Unreachable):
        return away(gang)
    if not gang.first:
        return None
    if gang.cordoned < gang.size and scene.waited_s <= GATHER_S:
        return waiting(f"{job.name} runs on {gang.size} nodes: waits for the others of its stage to be cordoned")
    signalled, limits = f"signalled-{job.job_id}", scene.limits
    if limits.drain_signal and signalled not in scene.run.notes:
        outcome = await _told(scene, SignalJob(job.job_id, limits.drain_signal))
        if isinstance(outcome, Unreachable):
            return away(outcome)
        said = "" if outcome.exit_status == 0 else f", which failed: {last_words(outcome.stderr + outcome.stdout)}"
        why = f"{job.name} was sent {limits.drain_signal}{said}; it has {limits.checkpoint_wait_s} s for its checkpoint"
        return Result(Event.WAITING, why, notes={signalled: str(int(scene.waited_s))})
    since_s = scene.waited_s - int(scene.run.notes.get(signalled, "0"))
    if since_s < limits.checkpoint_wait_s:
        return waiting(f"{job.name} has {limits.checkpoint_wait_s} s for its checkpoint")
    ends = scene.part.drain == DrainPolicy.EVICT.value
    outcome = await _told(scene, EndJob(job.job_id) if ends else RequeueJob(job.job_id))
    if isinstance(outcome, Unreachable):
        return away(outcome)
    if outcome.exit_status != 0:
        said = last_words(outcome.stderr + outcome.stdout)
        why = f"{job.name} cannot be {'ended' if ends else 'requeued'}, and is waited for: {said}"
        return Result(Event.WAITING, why, notes={sent: f"no: {said}"})
    return Result(Event.WAITING, f"{job.name} was {'ended' if ends else 'requeued'}", notes={sent: "yes"})


async def _told(scene: Scene, work: JobWork) -> Outcome:
    await _noted(scene, f"{type(work).__name__}-{work.job_id}", work)
    return await scene.scheduler.tell(work)


async def _noted(scene: Scene, key: str, intent: CordonNodes | UncordonNodes | JobWork) -> None:
    """What is about to be asked of a scheduler, written down before."""
    session = scene.session
    record = Record(session.at, session.holder, scene.run.node, "command", describe(intent))
    await session.note(f"{scene.run.run_id}-{scene.run.phase.value}-{key}", record)
