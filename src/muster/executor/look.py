"""Looks at one node: one script, one exchange, all facts. Changes nothing on the node."""

from collections.abc import Mapping

from muster.model.command import Answered, Collect, Command, Outcome, Unreachable
from muster.model.fact import BySource, FactSpec, FactValue, NodeFacts, RawOutput, Told, Unknown
from muster.model.frozen import dataclass
from muster.model.node import Node
from muster.node.collect import installed_sha256, parse_frames, render, render_packed, wants_plain
from muster.ports import Clock, Ids, Transport

MARGIN_S = 20
"""What the shell, the framing and a slow login may cost on top of the slowest fact."""


@dataclass(frozen=True, slots=True)
class Program:
    """The text that looks, installed on the nodes of a site that lets nothing else run as root: where, and which one (its SHA-256)."""

    path: str
    sha256: str


async def look(
    node: Node,
    *,
    specs: tuple[FactSpec, ...],
    transport: Transport,
    clock: Clock,
    ids: Ids,
    program: Program | None = None,
) -> NodeFacts | Unreachable:
    """All facts of `node`. A fact whose source did not answer is Unknown with the reason; a node that did not answer is Unreachable.

    By `program`, where one is given, in place of a text that is sent; it must hold all of `specs`. Another text than the one expected is
    not listened to: its answers may mean something else.
    """
    nonce = ids.new("frame").rpartition("-")[2]
    outcome = await _ask(node, specs, nonce, program, transport)
    if isinstance(outcome, Unreachable):
        return outcome
    if program is not None and (other := _other_text(node, program, installed_sha256(outcome.stdout, nonce), outcome)):
        return other
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


async def _ask(
    node: Node, specs: tuple[FactSpec, ...], nonce: str, program: Program | None, transport: Transport
) -> Outcome:
    deadline = max((s.deadline_s for s in specs), default=0) + MARGIN_S
    intent = Collect(tuple(s.name for s in specs))
    if program is not None:
        return await transport.run(node, Command((program.path, nonce), b"", deadline, intent))
    rows = [(s.name, s.command, s.deadline_s, s.cap_bytes) for s in specs]
    argv, packed = render_packed(rows, nonce)
    outcome = await transport.run(node, Command(argv, packed, deadline, intent))
    if isinstance(outcome, Answered) and wants_plain(outcome.stdout, nonce):
        return await transport.run(node, Command(("sh", "-s"), render(rows, nonce).encode(), deadline, intent))
    return outcome


def _other_text(node: Node, program: Program, seen: str | None, outcome: Answered) -> Unreachable | None:
    if seen == program.sha256:
        return None
    if seen is None:
        return _nothing_came(outcome)
    why = f"{node.name}: {program.path} is another text than this release's (sha256 {seen[:16]}, not {program.sha256[:16]})"
    return Unreachable("refused", why, "install there what this prints: muster facts script --install")


def _values(spec: FactSpec, frames: Mapping[str, RawOutput]) -> Mapping[str, FactValue]:
    if spec.name not in frames:
        return dict.fromkeys(spec.provides, Unknown(f"{spec.name}: the node sent no answer"))
    return spec.read(frames[spec.name])


def _nothing_came(outcome: Answered) -> Unreachable:
    said = (outcome.stderr or outcome.stdout).decode(errors="replace").strip().splitlines()
    words = said[-1][:200] if said else "nothing"
    return Unreachable(
        "lost", f"the fact script gave no answer (exit {outcome.exit_status}): {words}", "try: ssh NODE sh -c true"
    )
