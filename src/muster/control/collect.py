"""The use case `collect`: look at every node over one connection each, and keep what was seen. Changes nothing on a node."""

import asyncio
from collections.abc import Callable, Sequence

from muster.executor.look import look
from muster.model.command import Unreachable
from muster.model.fact import FactSpec, NodeFacts, Unknown
from muster.model.node import Node
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
) -> tuple[NodeFacts, ...]:
    """Look at `nodes`, at most `concurrency` at a time; `seen` is told of each as it answers. Everything seen is kept, also when some fail.

    A node that could not be looked at is in the answer with `trouble` set; its earlier facts stay in the store with their age.
    """
    gate = asyncio.Semaphore(concurrency)

    async def one(node: Node) -> NodeFacts:
        async with gate:
            result = await look(node, specs=specs, transport=transport, clock=clock, ids=ids)
        if isinstance(result, Unreachable):
            words = f"{result.kind}: {result.why}" + (f" ({result.hint})" if result.hint else "")
            result = NodeFacts(node.name, clock.now(), {}, Unknown(words))
        seen(result)
        return result

    found = tuple(await asyncio.gather(*(one(node) for node in nodes)))
    await store.save_nodes(nodes)
    await store.save_facts(found)
    return found
