"""Tells people by a program of the operator's: the alert comes on its standard input, as JSON.

The argv is the operator's own, word for word. Nothing that was seen on a node becomes part of it, and no shell is between.
"""

from collections.abc import Sequence

from muster.model.command import Alert, Command, Unreachable
from muster.model.node import LOCAL_ADDRESS, Node
from muster.ports import Notifier, Transport

LIMIT_S = 60.0
"""A program that tells people takes seconds; the next round must not wait for one that hangs."""

SAID_CHARS = 200

_HERE = Node("this machine", LOCAL_ADDRESS, None, None, {}, "local")


class CommandNotifier:
    """Runs `argv` on this machine through `here`, a transport that leads to it."""

    def __init__(self, argv: Sequence[str], here: Transport, *, limit_s: float = LIMIT_S) -> None:
        self.name = f"the alert command {argv[0]}"
        self._argv = tuple(argv)
        self._here = here
        self._limit_s = limit_s

    async def send(self, body: bytes) -> str:
        """See `ports.Notifier`. Delivered means that the program ended with 0."""
        outcome = await self._here.run(_HERE, Command(self._argv, body, self._limit_s, Alert()))
        if isinstance(outcome, Unreachable):
            return outcome.why
        if outcome.exit_status == 0:
            return ""
        said = outcome.stderr.decode(errors="replace").strip().splitlines()
        return f"exit {outcome.exit_status}" + (f": {said[-1][:SAID_CHARS]}" if said else "")


BACKEND: type[Notifier] = CommandNotifier
