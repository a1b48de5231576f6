"""Looks at one node: one script, one exchange, all facts. Changes nothing on the node."""

from collections.abc import Mapping

from muster.model.command import Answered, Collect, Command, Unreachable
from muster.model.fact import BySource, FactSpec, FactValue, NodeFacts, RawOutput, Told, Unknown
from muster.model.node import Node
from muster.node.collect import parse_frames, render
from muster.ports import Clock, Ids, Transport

MARGIN_S = 20
"""What the shell, the framing and a slow login may cost on top of the slowest fact."""


async def look(
    node: Node, *, specs: tuple[FactSpec, ...], transport: Transport, clock: Clock, ids: Ids
) -> NodeFacts | Unreachable:
    """All facts of `node`. A fact whose source did not answer is Unknown with the reason; a node that did not answer is Unreachable."""
    nonce = ids.new("frame").rpartition("-")[2]
    script = render([(s.name, s.command, s.deadline_s, s.cap_bytes) for s in specs], nonce)
    deadline = max((s.deadline_s for s in specs), default=0) + MARGIN_S
    intent = Collect(tuple(s.name for s in specs))
    outcome = await transport.run(node, Command(("sh", "-s"), script.encode(), deadline, intent))
    if isinstance(outcome, Unreachable):
        return outcome
    frames = {
        name: RawOutput(frame.exit_status, frame.stdout, frame.truncated, frame.note)
        for name, frame in parse_frames(outcome.stdout, nonce).items()
    }
    if not frames:
        return _nothing_came(outcome)
    now = clock.now()
    return NodeFacts(
        node.name, now, BySource(Told(spec.name, now, _values(spec, frames), spec.momentary) for spec in specs)
    )


def _values(spec: FactSpec, frames: Mapping[str, RawOutput]) -> Mapping[str, FactValue]:
    if spec.name not in frames:
        return dict.fromkeys(spec.provides, Unknown(f"{spec.name}: the node sent no answer"))
    return spec.parse(frames[spec.name])


def _nothing_came(outcome: Answered) -> Unreachable:
    said = (outcome.stderr or outcome.stdout).decode(errors="replace").strip().splitlines()
    words = said[-1][:200] if said else "nothing"
    return Unreachable(
        "lost", f"the fact script gave no answer (exit {outcome.exit_status}): {words}", "try: ssh NODE sh -c true"
    )
