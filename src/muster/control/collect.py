"""The use case `collect`: look at every node over one connection each, and keep what was seen. Changes nothing on a node."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from muster.executor.look import Program, look
from muster.model.command import Unreachable
from muster.model.fact import FactSpec, NodeFacts, Unknown
from muster.model.inventory import Carried
from muster.model.node import FILES_PREFIX, Node, Via
from muster.ports import Clock, Ids, Store, Transport


async def collect(
    nodes: Sequence[Node],
    *,
    specs: tuple[FactSpec, ...],
    transport: Transport,
    store: Store,
    clock: Clock,
    ids: Ids,
    concurrency: int,
    seen: Callable[[NodeFacts], None],
    carried: Mapping[str, NodeFacts] | None = None,
    program: Program | None = None,
) -> tuple[NodeFacts, ...]:
    """Look at `nodes`, at most `concurrency` at a time; `seen` is told of each as it answers. Everything seen is kept, also when some fail.

    A node in `carried` is not contacted: its facts are those. `program` is what looks at the others, where it is installed there. A node
    that could not be looked at is in the answer with `trouble` set; its earlier facts stay in the store with their age.
    """
    gate = asyncio.Semaphore(concurrency)

    async def one(node: Node) -> NodeFacts:
        if carried is not None and node.name in carried:
            seen(carried[node.name])
            return carried[node.name]
        async with gate:
            result = await look(node, specs=specs, transport=transport, clock=clock, ids=ids, program=program)
        if isinstance(result, Unreachable):
            words = f"{result.kind}: {result.why}" + (f" ({result.hint})" if result.hint else "")
            result = NodeFacts(node.name, clock.now(), {}, Unknown(words))
        seen(result)
        return result

    found = tuple(await asyncio.gather(*(one(node) for node in nodes)))
    await store.save_nodes(nodes)
    await store.save_facts(found)
    return found


def carried_facts(
    nodes: Sequence[Node], named: Callable[[str], str | None], read: Callable[[Path], Carried], folder: Path | None
) -> Carried:
    """What was carried here of `nodes`, under the inventory's names: out of `folder`, or without one out of the inventory's own folders.

    `named` gives the inventory's name for a folder's, or None; such outputs are not kept, and said. Raises BadInput as `read` does.
    """
    own = {node.address.removeprefix(FILES_PREFIX) for node in nodes if node.via is Via.FILES}
    folders = [folder] if folder is not None else [Path(each) for each in sorted(own)]
    # A node that can be reached is not spared the look because somebody carried its outputs once; unless that is what is asked for.
    wanted = {node.name for node in nodes if folder is not None or node.via is Via.FILES}
    found: dict[str, NodeFacts] = {}
    warnings: list[str] = []
    for each in folders:
        told = read(each)
        warnings += told.warnings
        for facts in told.facts:
            name = named(facts.node)
            if name is None:
                warnings.append(f"{each}: {facts.node} is not in the inventory; its outputs are not kept")
            elif name in wanted:
                found[name] = replace(facts, node=name)
    return Carried(tuple(found.values()), tuple(warnings))
