"""The doors between what we decide and the world: every effect goes through one of these Protocols.

A backend *returns* commands; only a Transport runs them. Each port has a contract test suite that every implementation, real or stand-in,
passes. This module imports no backend and holds no logic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from datetime import datetime

    from muster.model.approval import Approval
    from muster.model.audit import Entry, Record
    from muster.model.command import Command, JobWork, Outcome, Unreachable
    from muster.model.fact import Fact, NodeFacts
    from muster.model.job import Gang, Job
    from muster.model.node import Node
    from muster.model.plan import Plan
    from muster.model.policy import Holds, Packages
    from muster.model.run import Rollout, RolloutState, Run
    from muster.model.stack import PackagePin
    from muster.model.validation import Validated
    from muster.model.verdict import Verdict


class Clock(Protocol):
    """Time. `now` is aware UTC; `monotonic` counts seconds and never goes back; `sleep` is the only way to wait."""

    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """New ids: kind + ULID, in the order they are made."""

    def new(self, kind: str) -> str: ...


class Rng(Protocol):
    """Chance, split by key so that one more draw elsewhere does not change this one."""

    def shuffled(self, key: str, items: Sequence[str]) -> tuple[str, ...]: ...


class Transport(Protocol):
    """Runs a command on a node. Never raises for what the node or the network does: that is an `Unreachable`."""

    async def run(self, node: Node, command: Command) -> Outcome: ...
    async def close(self) -> None: ...


class PackageManager(Protocol):
    """Makes the POSIX-sh texts that look at, fetch, change and mend packages on a node. Runs nothing itself; all methods are pure.

    Each text is idempotent, waits for the package manager's own lock (never kills its holder), asks nothing, and exits 0 only when its
    promise holds. What it prints last is for people.
    """

    name: str

    def serves(self, facts: NodeFacts) -> bool:
        """Whether this manager is the node's own."""
        ...

    def installed(self, facts: NodeFacts) -> Mapping[str, str]:
        """Installed package name -> version, as facts show them. Half-installed packages are not in it."""
        ...

    def broken(self, facts: NodeFacts) -> tuple[str, ...]:
        """Names of packages left half-installed or half-configured."""
        ...

    def version_text(self, driver: str, known: Mapping[str, str]) -> str:
        """The package version that carries driver `driver`, in the form of the versions in `known`."""
        ...

    def spelled(self, driver: str, pins: tuple[PackagePin, ...], known: Mapping[str, str]) -> tuple[PackagePin, ...]:
        """`pins`, which carry `driver`, with their versions as this manager's repositories write them, by what is `known` to be installed."""
        ...

    def preflight(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
        """Prove, read-only, that `pins` can be installed, that nothing else on the node would move, and that `back` can be restored."""
        ...

    def fetch(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...], keep: str) -> str:
        """Download and verify both; the way back is kept under the folder `keep`."""
        ...

    def save(self, back: tuple[PackagePin, ...], keep: str) -> str:
        """Write a restore point (package states, holds, configuration) under `keep`; fail when it could not be used."""
        ...

    def install(self, pins: tuple[PackagePin, ...], back: tuple[PackagePin, ...]) -> str:
        """Bring exactly `pins`, from what was fetched, in one transaction; holds are lifted and set again.

        A package of `back` whose name is not in `pins` goes: the stack changes its names with the branch and the flavour.
        """
        ...

    def restore(self, back: tuple[PackagePin, ...], keep: str, pins: tuple[PackagePin, ...]) -> str:
        """Go back to `back` from `keep` alone, mending half-configured states; what of `pins` was not there before goes."""
        ...


@runtime_checkable
class RuledPackages(Protocol):
    """A `PackageManager` that can heed what a policy says of packages and of what is held."""

    def under(self, rules: Packages, holds: Holds, key: str = "") -> PackageManager:
        """The manager whose texts keep to `rules`, and that sets `holds` (of the kernel, against automatic upgrades) with each change.

        `key` is the signing key of the policy's repository, as text."""
        ...


@runtime_checkable
class PackageHolds(Protocol):
    """What a `PackageManager` can do besides, where it can: keep others from the driver and the kernel, as the policy says."""

    name: str

    def hold(self, pins: tuple[PackagePin, ...]) -> str:
        """Hold `pins`, and what the policy says beside them. Idempotent; no package changes."""
        ...

    def holds_tell(self) -> tuple[str, ...]:
        """What is held besides the driver's packages, for people, a line each."""
        ...


@runtime_checkable
class PackageInstalls(Protocol):
    """What a `PackageManager` can do besides, where it can: bring the first driver onto a node that has none, and take it away again.

    The policy's repository and its key, and what keeps nouveau out of the module loader and the initramfs, are part of it.
    """

    name: str

    def first_preflight(self, pins: tuple[PackagePin, ...]) -> str:
        """Prove, read-only, that `pins` can be installed and that nothing that is there would go or move."""
        ...

    def first_fetch(self, pins: tuple[PackagePin, ...], keep: str) -> str:
        """Download and verify `pins` and what they need."""
        ...

    def first_install(self, pins: tuple[PackagePin, ...]) -> str:
        """Bring exactly `pins` from what was fetched, in one transaction, and hold them."""
        ...

    def take_away(self, pins: tuple[PackagePin, ...], keep: str) -> str:
        """Unload and remove what the installation brought, by the record under `keep` of what was there before."""
        ...

    def tells(self) -> tuple[str, ...]:
        """What else than packages it brings onto a bare node, for people, a line each."""
        ...


@runtime_checkable
class PackageRepairs(Protocol):
    """What a `PackageManager` can do besides, where it can: bring a node from whatever lies there to exactly `pins`. Under the same rules.

    `now` are the packages of the driver that lie there, whole or not; a name that is not in `pins` goes.
    """

    name: str

    def repair_preflight(self, pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...]) -> str:
        """Prove, read-only, that each of `pins` can be had: from the repository, from what was kept on the node, or from the node itself."""
        ...

    def gather(self, pins: tuple[PackagePin, ...], keep: str) -> str:
        """Bring all of `pins` under the folder `keep`, and verify them."""
        ...

    def repair(self, pins: tuple[PackagePin, ...], now: tuple[PackagePin, ...], keep: str) -> str:
        """Finish or undo what was left half done, bring exactly `pins` from `keep` alone, and hold them. Refuses where other packages would
        go or move."""
        ...


class Scheduler(Protocol):
    """Jobs and cordons. Our cordon carries the id of its rollout, which is the holder of our lease; somebody else's is never lifted.

    Every method may be called again at any time. None raises for what a node, the network or the scheduler does: a scheduler that does not
    answer is `Unreachable`.
    """

    name: str

    async def jobs(self, node: Node) -> tuple[Job, ...] | Outcome:
        """The jobs that hold `node` now. An answer that is no list of jobs is handed on: unknown is not idle."""
        ...

    async def cordon(self, node: Node, rollout_id: str, reason: str, *, over: str = "") -> Outcome:
        """Let no new job begin there. Exit status 0: the cordon is there, and ours. Another: it is somebody else's, which stays as it is.

        The cordon of the rollout `over` is taken over.
        """
        ...

    async def cordoned(self, node: Node, rollout_id: str) -> Outcome:
        """Whether our cordon still stands. Exit status 0: it does. Another: somebody lifted it, or took the node over; the words say who."""
        ...

    async def uncordon(self, node: Node, rollout_id: str) -> Outcome:
        """Lift our cordon, and no other. Exit status 0: ours is gone; the words say so when the node stays away for somebody else's sake."""
        ...

    async def gang(self, node: Node, job: Job, rollout_id: str) -> Gang | Unreachable:
        """How far the nodes of a running job are cordoned, and whether `node` is the one of this rollout's that speaks for the job."""
        ...

    async def tell(self, work: JobWork) -> Outcome:
        """Have the scheduler do something to a job. Exit status 0: it took it."""
        ...


class Validator(Protocol):
    """Makes the text that exercises a node's GPUs, and judges what it printed. Pure. The text changes nothing that outlives it."""

    name: str
    limit_s: int
    """How long the text may take on a node before the task is ended."""
    needs: tuple[str, ...]
    """The programs that the text wants on the node; without one of them it can only say Unknown."""

    def script(self) -> str: ...

    def judge(self, exit_status: int, output: bytes, facts: NodeFacts) -> Verdict:
        """Pass only for an output that is whole and good; never raises for any bytes.

        Of `facts` it reads `gpu.count` and `gpu.product` and, after a change, `baseline.<metric>`: what the node measured before.
        """
        ...

    def figures(self, output: bytes) -> Mapping[str, float]:
        """What was measured, by metric: that of the worst GPU. Empty when nothing was; never raises."""
        ...


class Notifier(Protocol):
    """Tells people. `name` is what messages call it; it holds no secret (a webhook's URL may)."""

    name: str

    async def send(self, body: bytes) -> str:
        """Deliver one JSON object. Empty when it was delivered, else why not, in a line. Ends within a bound; never raises for what it meets."""
        ...


class Store(Protocol):
    """What must outlive the process. Every method is one transaction; times are aware UTC."""

    async def save_facts(self, facts: Sequence[NodeFacts]) -> None:
        """Keep the last look of each node, and every change of its lasting (not momentary) values.

        A look that failed altogether (`trouble` set) does not wipe out what was known: the facts of the look before stay, with their own
        times and that look's `observed_at` (old evidence is stale, not gone), and the trouble stands beside them. A `partial` look takes
        nothing away from sources that it did not ask.
        """
        ...

    async def facts(self) -> tuple[NodeFacts, ...]:
        """The last look of every node, by name."""
        ...

    async def facts_of(self, node: str) -> NodeFacts | None:
        """The last look of one node, as `facts` has it; None when it was never looked at. Costs nothing by the other nodes."""
        ...

    async def history(self, node: str) -> tuple[Fact, ...]:
        """Every change of the node's lasting values, oldest first. The first sight of a value is a change, and so is that it went away: a change
        to Unknown, with the reason (`GONE` where its source says nothing of it). One Unknown after another is none.
        """
        ...

    async def most_gpus(self, since: datetime) -> Mapping[str, int]:
        """By node the most GPUs (`gpu.count`) that answered there since then, or were there at that time; without nodes that never told."""
        ...

    async def save_nodes(self, nodes: Sequence[Node]) -> None:
        """Add nodes or renew them, by name. One that left the inventory stays: a run in flight still has to reach it."""
        ...

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes, by name."""
        ...

    async def save_plan(self, plan: Plan) -> None:
        """Keep a plan under its id; keeping it again changes nothing."""
        ...

    async def plans(self) -> tuple[Plan, ...]:
        """All plans, oldest first."""
        ...

    async def plan_ids(self) -> tuple[str, ...]:
        """The ids of all plans, oldest first; no plan is read for it."""
        ...

    async def plan(self, plan_id: str) -> Plan:
        """The plan with that id. Raises UnknownName for one nobody kept."""
        ...

    async def approve(self, approval: Approval) -> None:
        """Keep an approval; the same approver counts once, and the first time stands. Raises UnknownName for a plan nobody kept."""
        ...

    async def approvals(self, plan_id: str) -> tuple[Approval, ...]:
        """The approvals of a plan, oldest first."""
        ...

    async def begin(self, rollout: Rollout, runs: Sequence[Run], record: Record) -> None:
        """Create a rollout with its runs and the first audit entry. Raises UnknownName for a plan nobody kept."""
        ...

    async def rollouts(self) -> tuple[Rollout, ...]:
        """All rollouts, oldest first."""
        ...

    async def set_rollout(
        self, rollout_id: str, state: RolloutState, why: str, at: datetime, record: Record | None
    ) -> None:
        """Change a rollout's state and words; `record` joins its chain in the same transaction."""
        ...

    async def runs(self, rollout_id: str) -> tuple[Run, ...]:
        """The runs of a rollout in stage, group and name order."""
        ...

    async def run(self, run_id: str) -> Run:
        """One run. Raises UnknownName."""
        ...

    async def release(self, run_ids: Sequence[str], at: datetime, record: Record) -> None:
        """Let these runs of one rollout begin at `at`: they wake, and their phase counts, from then. Those released before stay as they are;
        when all were, nothing is written.
        """
        ...

    async def due(self, now: datetime, limit: int) -> tuple[str, ...]:
        """Ids of released, not ended runs whose `wake_at` is not after `now`, the longest due first.

        Of a paused rollout only those whose node is in mid-change: the others (BEFORE_CHANGE) stand.
        """
        ...

    async def next_wake(self, after: datetime) -> datetime | None:
        """The earliest `wake_at` later than `after` of a run that `due` would name then; None without one."""
        ...

    async def claim(self, run_id: str) -> int:
        """Take the run: its claim number goes up by one and is returned."""
        ...

    async def record(self, run: Run, records: Sequence[Record]) -> None:
        """Write the run and its audit entries in one transaction. Raises ClaimLost when `run.claim` is not the row's any more.

        What a run is (its rollout, node, stage and group) never changes, and a release is never taken back.
        """
        ...

    async def audit(self, chain: str, after: int = 0) -> tuple[Entry, ...]:
        """A rollout's chain, in order, from the entry after number `after` on."""
        ...

    async def save_validation(self, validated: Validated) -> None:
        """Keep what a validation came to; of each node the last ten are kept."""
        ...

    async def validations(self) -> tuple[Validated, ...]:
        """What is kept of all nodes, in the order in which it was saved."""
        ...

    async def close(self) -> None: ...


class Engine(Protocol):
    """Says which run to advance when. The store's row is the truth; an engine holds none."""

    async def serve(
        self,
        advance: Callable[[str, int], Awaitable[None]],
        between: Callable[[], Awaitable[bool]],
    ) -> None:
        """Call `advance(run_id, claim)` for every due run, at most once at a time per run, and `between` after each sweep.

        Returns when `between` says that nothing is left to carry (False).
        """
        ...


__all__ = [
    "Clock", "Engine", "Ids", "Notifier", "PackageHolds", "PackageInstalls", "PackageManager", "PackageRepairs", "Rng", "RuledPackages",
    "Scheduler", "Store", "Transport", "Validator",
]  # fmt: skip
