"""Sends a command the way its node is reached: over SSH, on this machine, or nowhere."""

from dataclasses import replace

from muster.model.command import Command, Outcome, Unreachable
from muster.model.node import Node, Via
from muster.ports import Transport


class Reach:
    """`ports.Transport` over two others. `sudo`: commands on this machine run as root through `sudo -n`."""

    def __init__(self, ssh: Transport, local: Transport, *, sudo: bool = False) -> None:
        self._ssh = ssh
        self._local = local
        self._sudo = sudo

    async def run(self, node: Node, command: Command) -> Outcome:
        """See `ports.Transport.run`. A node of which only carried outputs are known is never reached."""
        match node.via:
            case Via.SSH:
                return await self._ssh.run(node, command)
            case Via.LOCAL:
                argv = ("sudo", "-n", "--", *command.argv) if self._sudo else command.argv
                return await self._local.run(node, replace(command, argv=argv))
            case Via.FILES:
                why = f"{node.name} is known by carried outputs alone; nothing can be run there"
                return Unreachable("refused", why, "to change it, name it in an inventory that says how it is reached")

    async def close(self) -> None:
        """Close both."""
        await self._ssh.close()
        await self._local.close()
