"""The use case `validate`: exercise the GPUs of one node that nobody works with, and keep what came of it. Also the floors of a site.

The node is leased for as long as it takes, so that no rollout begins there and no launcher that honours leases starts a job into a sweep of
the GPU's memory; then the jobs are looked at, and one that runs is never disturbed. What runs on the node is a detached task: a connection
that is lost, or Ctrl-C, does not leave it half done, and the same command goes on with it.
"""

from muster.control.site import Site
from muster.executor.look import look
from muster.executor.words import last_words
from muster.health.floors import learn
from muster.model.command import (
    Answered,
    Command,
    Intent,
    Outcome,
    ReleaseLease,
    ShowLease,
    StartTask,
    TakeLease,
    Unreachable,
    Validate,
)
from muster.model.errors import LeaseHeld, Partial, Refused
from muster.model.frozen import dataclass
from muster.model.lease import Fence
from muster.model.node import Node
from muster.model.validation import Floors, Validated
from muster.model.verdict import Undecided, Verdict
from muster.node.lease import LeaseAnswer, lease_release, lease_show, lease_take, parse_lease_answer
from muster.node.task import TaskAnswer, parse_answer, task_start
from muster.ports import Validator

ASK_S = 60
POLL_FIRST_S, POLL_GROWTH, POLL_MOST_S = 0.3, 1.5, 5.0
SILENCE_S = 300
"""How long a node that is being exercised may not answer: the network's repair, not a restart."""

LEASE_MARGIN_S = 900
"""How much longer than the validation itself its lease lasts, should nobody come back to release it."""

PREFIX = "validation-"


@dataclass(frozen=True, slots=True)
class _Work:
    """One node being validated."""

    site: Site
    node: Node
    validator: Validator


async def floors(site: Site) -> Floors:
    """What the policy sets, and what can be learnt from the validations in the store for the metrics that it wants learnt."""
    asked = site.policy.validate.floors
    fixed = {floor.metric: float(floor.minimum) for floor in asked if floor.minimum is not None}
    learning = tuple(floor.metric for floor in asked if floor.minimum is None)
    return Floors(fixed, learning, learn(await site.store.validations()) if learning else {})


async def validate(site: Site, name: str, *, force: bool = False) -> Validated:
    """Validate one node and keep the result. `force` goes on where jobs hold the GPUs, or where nobody can say.

    Raises LeaseHeld when somebody else has the node, Refused for a node with jobs, Partial when it cannot be asked or does not answer.
    """
    node = next(each for each in site.nodes if each.name == site.node_named(name))
    work = _Work(site, node, site.validator(await floors(site)))
    under, number, goes_on = await _lease(work)
    try:
        if not force and not goes_on:  # what goes on holds the GPUs itself
            await _refuse_jobs(work)
        facts = await look(node, specs=site.specs, transport=site.transport, clock=site.clock, ids=site.ids)
        if isinstance(facts, Unreachable):
            raise Partial(f"{node.name} cannot be looked at: {facts.why}", hint=facts.hint or None)
        ended = await _exercised(work, under, number)
    except (Refused, Partial):
        await _release(work, under)
        raise
    verdict: Verdict = Undecided(f"the validation did not end by itself ({ended.state})")
    if ended.state == "done" and ended.exit_status is not None:
        verdict = work.validator.judge(ended.exit_status, ended.out, facts)
    kind, driver = (facts.text(path) or "" for path in ("gpu.product", "module.nvidia.loaded_version"))
    figures = work.validator.figures(ended.out)
    found = Validated(node.name, site.clock.now(), work.validator.name, kind, driver, verdict, figures, under)
    await site.store.save_validation(found)
    await _release(work, under)
    return found


async def _lease(work: _Work) -> tuple[str, int, bool]:
    """The validation's id, the number of its lease, and whether it is one of ours that was left behind."""
    site, node = work.site, work.node
    held = parse_lease_answer((await _ask(work, lease_show(), ShowLease())).stdout)
    ours = held.state in ("held", "expired") and held.holder == site.holder and held.rollout_id.startswith(PREFIX)
    if held.state in ("held", "expired") and not ours:
        raise LeaseHeld(_held_words(node, held), hint=_HELD_HINT)
    under = held.rollout_id if ours else site.ids.new("validation")
    text = lease_take(
        holder=site.holder, rollout_id=under, plan_id="", reason="muster validate",
        ttl_s=work.validator.limit_s + LEASE_MARGIN_S, over=held.number if ours else 0,
    )  # fmt: skip
    taken = parse_lease_answer((await _ask(work, text, TakeLease(site.holder, under))).stdout)
    if taken.state == "refused":
        raise LeaseHeld(_held_words(node, taken), hint=_HELD_HINT)
    if taken.state != "taken":
        raise Partial(f"{node.name} cannot be leased: {taken.why}", hint="see: muster lease list")
    return under, taken.number, ours


_HELD_HINT = "wait for its end; or, after a look at the node: muster lease release"


def _held_words(node: Node, lease: LeaseAnswer) -> str:
    over = ", and its time is over" if lease.expired else ""
    return f"{node.name} is held by {lease.holder} since {lease.taken_at} for {lease.rollout_id}{over}"


async def _refuse_jobs(work: _Work) -> None:
    """Raises Refused unless the node is known to be idle."""
    scheduler = work.site.scheduler(work.site.transport)
    jobs = await scheduler.jobs(work.node)
    if isinstance(jobs, Unreachable):
        raise Partial(f"{work.node.name} cannot be asked for its jobs: {jobs.why}", hint=jobs.hint or None)
    if isinstance(jobs, Answered):
        said = last_words(jobs.stdout + jobs.stderr)
        raise Refused(f"which jobs run on {work.node.name} is unknown: {said}", hint="--force validates all the same")
    if jobs:
        names = ", ".join(dict.fromkeys(f"{job.name} ({job.job_id})" for job in jobs))
        raise Refused(
            f"{work.node.name} is in use: {names}",
            hint="a validation takes the GPUs' memory and time; wait for the end of the job. --force disturbs it",
        )


async def _exercised(work: _Work, under: str, number: int) -> TaskAnswer:
    """The task, ended in one way or another. Raises Partial when it could not be begun, and when the node is silent for too long."""
    task_id, fence = f"{under}-validate-0", Fence(number, 1)
    text = task_start(task_id, str(fence), work.validator.script(), deadline_s=work.validator.limit_s)
    clock = work.site.clock
    until, heard = clock.monotonic() + work.validator.limit_s + LEASE_MARGIN_S, clock.monotonic()
    intent, pause_s = StartTask(task_id, fence, Validate()), POLL_FIRST_S
    while clock.monotonic() < until:
        command = Command(("sh", "-s"), text.encode(), ASK_S, intent)
        outcome = await work.site.transport.run(work.node, command)
        if isinstance(outcome, Answered):
            answer = parse_answer(outcome.stdout)
            heard = clock.monotonic()
            if answer.state in ("refused", "failed"):
                raise Partial(f"{work.node.name} did not begin the validation: {answer.why}")
            if answer.state in ("done", "lost", "interrupted"):
                return answer
        elif clock.monotonic() - heard > SILENCE_S:
            raise Partial(f"{work.node.name} does not answer: {outcome.why}", hint=outcome.hint or None)
        await clock.sleep(pause_s)
        pause_s = min(pause_s * POLL_GROWTH, POLL_MOST_S)
    return TaskAnswer("running")


async def _release(work: _Work, under: str) -> None:
    """Give the node back; one that cannot be asked keeps a lease that ends by itself."""
    text = lease_release(rollout_id=under)
    command = Command(("sh", "-s"), text.encode(), ASK_S, ReleaseLease(under))
    await work.site.transport.run(work.node, command)


async def _ask(work: _Work, text: str, intent: Intent) -> Answered:
    outcome: Outcome = await work.site.transport.run(work.node, Command(("sh", "-s"), text.encode(), ASK_S, intent))
    if isinstance(outcome, Unreachable):
        raise Partial(f"{work.node.name} cannot be asked: {outcome.kind}: {outcome.why}", hint=outcome.hint or None)
    return outcome
