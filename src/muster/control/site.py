"""What every use case works with: the policy, where it lies, and the ports. Made by the bootstrap, handed in, never global."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from muster.model.errors import UnknownName
from muster.model.frozen import dataclass
from muster.model.nearest import nearest
from muster.planner.pools import Placing, placed

if TYPE_CHECKING:
    from muster.executor.look import Program
    from muster.knowledge.schema import KnowledgeBase
    from muster.model.fact import FactSpec, NodeFacts
    from muster.model.inventory import Carried, Inventory
    from muster.model.job import SchedulerView
    from muster.model.node import Node
    from muster.model.plan import Plan
    from muster.model.policy import Policy
    from muster.model.validation import Floors
    from muster.ports import Clock, Engine, Ids, PackageManager, Rng, Scheduler, Store, Transport, Validator


@dataclass(frozen=True, slots=True)
class Makers:
    """The parts of a site that only some commands need: each is loaded and made when it is first asked for, and is the same from then on."""

    specs: Callable[[], tuple[FactSpec, ...]]
    managers: Callable[[], Mapping[str, PackageManager]]
    scheduler: Callable[[], Callable[[Transport], Scheduler]]
    validator: Callable[[Floors], Validator]
    engine: Callable[[], Engine]
    program: Callable[[], Program | None]


SITE_FOLDER = "knowledge"
"""The folder beside the store in which a site's own records of knowledge lie where `fleet.yaml` names none."""


@dataclass(frozen=True, slots=True)
class Site:
    """One fleet, as one process sees it. `inventory` is as it reads now; `knowledge` is read when first asked for.

    `carried` reads a folder of outputs that were carried here. It raises BadInput.

    `scheduler_view` asks the scheduler that the inventory names, if any, what it knows of its nodes and jobs now; it does not raise.

    `spawn_carrier` starts the process that carries rollouts, detached, and returns what says whether it runs; `person` is who is at work, for
    approvals; `holder` is the person on this machine, for leases and the audit log.
    """

    policy: Policy
    policy_path: Path
    store_path: Path
    store: Store
    clock: Clock
    ids: Ids
    rng: Rng
    transport: Transport
    makers: Makers
    person: str
    holder: str
    inventory: Inventory
    carried: Callable[[Path], Carried]
    knowledge: Callable[[], KnowledgeBase]
    spawn_carrier: Callable[[], Callable[[], bool]]
    scheduler_view: Callable[[], Awaitable[SchedulerView]]

    @property
    def specs(self) -> tuple[FactSpec, ...]:
        """All sources of facts."""
        return self.makers.specs()

    @property
    def managers(self) -> Mapping[str, PackageManager]:
        """All package managers, by name."""
        return self.makers.managers()

    @property
    def scheduler(self) -> Callable[[Transport], Scheduler]:
        """Makes the scheduler that is asked over a transport."""
        return self.makers.scheduler()

    @property
    def validator(self) -> Callable[[Floors], Validator]:
        """Makes the validator of the policy, which holds figures against these floors."""
        return self.makers.validator

    @property
    def engine(self) -> Engine:
        """What says which run to advance when."""
        return self.makers.engine()

    @property
    def program(self) -> Program | None:
        """What looks at the nodes where the policy names one that is installed there."""
        return self.makers.program()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the inventory, by name."""
        return self.inventory.nodes

    def node_named(self, wanted: str) -> str:
        """The name of the node that `wanted` names: its own, one by which a source knows it, or a unique beginning. Raises UnknownName."""
        others = {other: node.name for node in self.nodes for other in self.inventory.other_names(node.name)}
        own = [node.name for node in self.nodes]
        if wanted not in own and wanted in others:
            return others[wanted]
        return named("node", wanted, own)

    def caller(self) -> Callable[[str], str | None]:
        """Gives the inventory's name for a node that something else calls so, whole or by its short form; None without just one."""
        whole: dict[str, str] = {}
        short: dict[str, dict[str, str]] = {}
        for node in self.nodes:
            for each in (*self.inventory.other_names(node.name), node.name):
                whole[each] = node.name
                short.setdefault(each.partition(".")[0], {})[each] = node.name

        def called(name: str) -> str | None:
            if name in whole:
                return whole[name]
            alike = short.get(name.partition(".")[0], {})
            found = {node for each, node in alike.items() if "." not in each or "." not in name}
            return min(found) if len(found) == 1 else None

        return called

    async def known_facts(self) -> Mapping[str, NodeFacts]:
        """The last look of every node of the inventory, by name."""
        mine = {node.name for node in self.nodes}
        return {facts.node: facts for facts in await self.store.facts() if facts.node in mine}

    async def placings(self, facts: Mapping[str, NodeFacts]) -> Mapping[str, Placing]:
        """Where each node belongs."""
        return placed(self.nodes, facts, self.policy)


def named(kind: str, wanted: str, known: Sequence[str]) -> str:
    """The one of `known` that `wanted` names, in full or as a unique prefix. Raises UnknownName with the nearest ones."""
    if wanted in known:
        return wanted
    begin = [each for each in known if each.startswith(wanted)] if wanted else []
    if len(begin) == 1:
        return begin[0]
    if begin:
        raise UnknownName(
            f"{kind} {wanted!r} may be any of {len(begin)}: {', '.join(begin[:4])}", hint="write more of its name"
        )
    near = nearest(wanted, known)
    words = (
        f"did you mean {' or '.join(near)}?"
        if near
        else (f"known: {', '.join(known[:6])}" if known else f"there is no {kind} yet")
    )
    raise UnknownName(f"no {kind} is called {wanted!r}", hint=words)


async def plan_named(site: Site, wanted: str) -> Plan:
    """The plan with this id, id prefix, or `last`. Raises UnknownName."""
    known = await site.store.plan_ids()
    return await site.store.plan(known[-1] if wanted == "last" and known else named("plan", wanted, known))


async def rollout_named(site: Site, wanted: str) -> str:
    """The rollout with this id, id prefix, or `last`. Raises UnknownName."""
    rollouts = await site.store.rollouts()
    if wanted == "last" and rollouts:
        return rollouts[-1].rollout_id
    return named("rollout", wanted, [rollout.rollout_id for rollout in rollouts])
