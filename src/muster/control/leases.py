"""The use cases on leases: who holds which node, and giving back by hand a node that a person has looked after."""

import asyncio
from collections.abc import Mapping, Sequence

from muster.control.site import Site, named
from muster.executor.runner import stamp
from muster.model.audit import Record
from muster.model.command import Answered, Command, ReleaseLease, ShowLease, Unreachable
from muster.model.errors import LeaseHeld, Partial, Refused
from muster.model.frozen import dataclass
from muster.model.node import Node
from muster.model.run import Rollout
from muster.node.lease import LeaseAnswer, lease_release, lease_show, parse_lease_answer

ASK_S = 60


@dataclass(frozen=True, slots=True)
class Held:
    """A node and what it says of its lease; `away` is why it could not be asked."""

    node: str
    lease: LeaseAnswer | None
    away: str


async def held(site: Site, nodes: Sequence[Node]) -> tuple[Held, ...]:
    """What each node says of its lease now; nodes without one are left out. Changes nothing."""
    gate = asyncio.Semaphore(site.policy.ssh.concurrency)

    async def one(node: Node) -> Held | None:
        async with gate:
            outcome = await site.transport.run(node, Command(("sh", "-s"), lease_show().encode(), ASK_S, ShowLease()))
        if isinstance(outcome, Unreachable):
            return Held(node.name, None, f"{outcome.kind}: {outcome.why}")
        answer = parse_lease_answer(outcome.stdout)
        if answer.state == "unknown":
            return Held(node.name, None, answer.why)
        return None if answer.state == "free" else Held(node.name, answer, "")

    return tuple(each for each in await asyncio.gather(*(one(node) for node in nodes)) if each is not None)


async def release(site: Site, name: str, *, reason: str) -> LeaseAnswer:
    """Release the lease on a node by hand, with a reason for the audit log; what the lease was comes back.

    Raises Refused while a rollout of this store still works on the node, and when nobody holds it; Partial when it cannot be asked.
    """
    node = next(each for each in site.nodes if each.name == named("node", name, [n.name for n in site.nodes]))
    (seen,) = await held(site, (node,)) or (Held(node.name, None, ""),)
    if seen.away:
        raise Partial(f"{node.name} cannot be asked: {seen.away}", hint="mend the connection, then try again")
    if seen.lease is None:
        raise Refused(f"nobody holds {node.name}", hint="see all with: muster lease list")
    rollout = next((r for r in await site.store.rollouts() if r.rollout_id == seen.lease.rollout_id), None)
    await _refuse_at_work(site, node, rollout)
    if rollout is not None:
        body: Mapping[str, object] = {"kind": "release-lease", "rollout_id": rollout.rollout_id, "by_hand": reason}
        record = Record(stamp(site.clock.now()), site.holder, node.name, "command", body)
        await site.store.set_rollout(rollout.rollout_id, rollout.state, rollout.why, site.clock.now(), record)
    text = lease_release(rollout_id=seen.lease.rollout_id)
    outcome = await site.transport.run(
        node, Command(("sh", "-s"), text.encode(), ASK_S, ReleaseLease(seen.lease.rollout_id))
    )
    if not isinstance(outcome, Answered) or parse_lease_answer(outcome.stdout).state not in ("released", "free"):
        raise Partial(f"{node.name} did not release its lease", hint="look with: muster lease list")
    return seen.lease


async def _refuse_at_work(site: Site, node: Node, rollout: Rollout | None) -> None:
    if rollout is None:
        return
    for run in await site.store.runs(rollout.rollout_id):
        if run.node == node.name and not run.ended:
            raise LeaseHeld(
                f"{rollout.rollout_id} works on {node.name} ({run.phase.value})",
                hint=f"let it end: muster rollouts watch {rollout.rollout_id}",
            )
