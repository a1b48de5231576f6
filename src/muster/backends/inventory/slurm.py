"""Nodes from Slurm, as it lists them where Muster runs. Partitions, features and GPU types become labels `slurm.partition`, ...

A node of several partitions has them all in one label, with commas; `match` takes such a label apart. Slurm's state of a node is no label:
it changes by the minute.
"""

from collections.abc import Sequence

from muster.backends import _slurm_ask
from muster.model.inventory import Listing
from muster.model.job import Answer, NodeState, SchedulerNode
from muster.model.nearest import nearest
from muster.model.node import Node
from muster.model.policy import SlurmSource
from muster.ports import Transport

SOURCE = "slurm"


async def read(transport: Transport, source: SlurmSource) -> Listing:
    """The nodes of the source's partitions (none: of all). Raises MissingTool, Partial (Slurm does not answer) and BadInput."""
    return listing(await _slurm_ask.nodes(transport), source)


def listing(answer: Answer, source: SlurmSource) -> Listing:
    """The nodes of the source's partitions in an answer of Slurm."""
    wanted = source.partitions
    # A FUTURE node is a line of slurm.conf and no machine.
    real = [node for node in answer.nodes if node.state is not NodeState.FUTURE]
    known = sorted({partition for node in real for partition in node.partitions})
    warnings = list(answer.warnings)
    for name in wanted:
        if name not in known:
            near = nearest(name, known)
            words = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known[:8]) or 'none'}"
            warnings.append(f"{SOURCE}: no node is in a partition {name}; {words}")
    chosen = [node for node in real if not wanted or set(wanted) & set(node.partitions)]
    if not chosen:
        warnings.append(f"{SOURCE}: lists no node")
    return Listing(SOURCE, tuple(_node(each) for each in sorted(chosen, key=lambda each: each.name)), tuple(warnings))


def remembered(nodes: Sequence[Node], source: SlurmSource, why: str) -> Listing:
    """What was known of Slurm's nodes when they were last looked at, for when it does not answer; `why` says so."""
    wanted = set(source.partitions)
    listed = []
    for node in nodes:
        labels = {key: value for key, value in node.labels.items() if key.startswith("slurm.")}
        if labels and (not wanted or wanted & set(labels.get("slurm.partition", "").split(","))):
            listed.append(Node(node.name, node.address, None, None, labels, SOURCE))
    words = f"{why}; its {len(listed)} nodes are as they were when they were last collected"
    return Listing(SOURCE, tuple(listed), (words,))


def _node(node: SchedulerNode) -> Node:
    kinds = dict.fromkeys(each.type for each in node.gres if each.kind == "gpu" and each.type)
    labels = {
        "slurm.partition": ",".join(node.partitions),
        "slurm.feature": ",".join(node.features),
        "slurm.gpu": ",".join(kinds),
    }
    return Node(
        name=node.name,
        address=node.address or node.name,
        port=None,
        user=None,
        labels={key: value for key, value in labels.items() if value},
        source=SOURCE,
    )


BACKEND = read
