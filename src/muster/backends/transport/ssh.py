"""Commands on nodes over SSH: one connection per node, kept open and shared by whatever runs there at the same time.

Everything about reaching a machine stays where the user has it: ssh_config (names, users, ports, jump hosts), agent, keys, known_hosts.
Host keys are checked, always. This module decides nothing and reads no answers.
"""

import asyncio
import contextlib
import shlex
import signal
import socket
from collections.abc import Mapping

import asyncssh

from muster.backends import _sudo
from muster.backends._capped import TooMuch, read_capped
from muster.backends._ssh_ways import BehindJump, Ways
from muster.model.command import Answered, Command, Outcome, Unreachable
from muster.model.node import Node

CONNECT_CONCURRENCY = 200
"""Handshakes at one time: more brings sshd's MaxStartups on a shared jump host into play, and no speed."""

SESSIONS_PER_NODE = 8
"""Commands at one time on one connection: sshd's MaxSessions is 10 by default."""

REFUSED_TRIES, REFUSED_PAUSE_S = 40, 0.25
"""sshd counts a session until it has buried its command, some time after it told us the end, and refuses one too many. A session that was
refused began nothing: it is asked for again, for ten seconds."""

KEEPALIVE_S = 15
"""A dead peer is noticed after three of these without an answer, so that a pulled cable costs 45 s and not for ever."""

OUTPUT_CAP_BYTES = 4 * 1024 * 1024
"""More than all facts of a node together; who prints more is broken."""


class _Link:
    """What is kept per node: the connecting or connected task, and the bound on its sessions."""

    def __init__(self, task: "asyncio.Task[asyncssh.SSHClientConnection]") -> None:
        self.task = task
        self.sessions = asyncio.Semaphore(SESSIONS_PER_NODE)

    @property
    def usable(self) -> bool:
        """Still connecting, or connected and not closed."""
        if not self.task.done():
            return True
        return not self.task.cancelled() and self.task.exception() is None and not self.task.result().is_closed()


class SshTransport:
    """`ports.Transport` over SSH.

    `config`: ssh_config files (None: the user's own). `user`, `port`: for nodes that name none. `sudo`: commands run as root through sudo,
    which is answered with `sudo_password` where it asks, and told not to ask (`-n`) without one. `known_hosts`: a file instead of the
    configured ones. `client_keys`: private key files instead of agent and default keys.
    """

    def __init__(
        self,
        *,
        config: tuple[str, ...] | None = None,
        user: str | None = None,
        port: int | None = None,
        sudo: bool = False,
        sudo_password: str | None = None,
        known_hosts: str | None = None,
        client_keys: tuple[str, ...] = (),
        connect_concurrency: int = CONNECT_CONCURRENCY,
        connect_timeout_s: float = 15.0,
        output_cap_bytes: int = OUTPUT_CAP_BYTES,
    ) -> None:
        self._user = user
        self._port = port
        self._sudo = sudo
        self._sudo_password = sudo_password
        self._output_cap_bytes = output_cap_bytes
        self._handshakes = asyncio.Semaphore(connect_concurrency)
        self._links: dict[tuple[str, int | None, str | None], _Link] = {}
        options: dict[str, object] = {"keepalive_interval": KEEPALIVE_S, "keepalive_count_max": 3}
        if config is not None:
            options["config"] = list(config)
        if known_hosts is not None:
            options["known_hosts"] = known_hosts
        if client_keys:
            options |= {"client_keys": list(client_keys), "agent_path": None}
        self._ways = Ways(options, connect_timeout_s)

    async def run(self, node: Node, command: Command) -> Outcome:
        """The command's answer, or why there is none. The deadline covers connecting and running.

        A connection that was lost is made anew by the next call, never in this one: whether the command began is not known.
        """
        try:
            async with asyncio.timeout(command.deadline_s):
                return await self._run(node, command)
        except TimeoutError:
            why = f"no answer from {node.name} ({node.address}) within {command.deadline_s:g} s"
            return Unreachable("timeout", why, "look at what the node is busy with; the command may still be running")
        except TooMuch:
            why = f"{node.name} printed more than {self._output_cap_bytes} bytes"
            return Unreachable("lost", why, "look at what the command prints there")

    async def close(self) -> None:
        """Close every connection, and give up those that are being made."""
        links, self._links = self._links, {}
        for link in links.values():
            link.task.cancel()
        connections = await asyncio.gather(*(link.task for link in links.values()), return_exceptions=True)
        for connection in connections:
            if isinstance(connection, asyncssh.SSHClientConnection):
                connection.close()
                await connection.wait_closed()
        await self._ways.close()

    async def _run(self, node: Node, command: Command) -> Outcome:
        link = self._link(node)
        try:
            # Shielded: one caller's deadline must not end the connecting of the others.
            connection = await asyncio.shield(link.task)
        except (asyncssh.Error, OSError, ValueError, BehindJump) as fault:
            return _unreachable(node, fault)
        async with link.sessions:
            try:
                return await self._exchange(connection, command)
            except _sudo.Refused:
                return Unreachable(
                    "auth", f"{node.name}: sudo refused the password", "is it the one of this user, there?"
                )
            except (asyncssh.ChannelOpenError, asyncssh.ConnectionLost, asyncssh.DisconnectError, OSError) as fault:
                return Unreachable(
                    "lost", f"the connection to {node.name} was lost: {_words(fault)}", "it will be made anew next time"
                )

    def _link(self, node: Node) -> _Link:
        address, port, user = key = (node.address, node.port or self._port, node.user or self._user)
        link = self._links.get(key)
        if link is None or not link.usable:
            connecting = self._ways.connect(address, port, user, self._handshakes)
            link = self._links[key] = _Link(asyncio.create_task(connecting))
        return link

    async def _exchange(self, connection: asyncssh.SSHClientConnection, command: Command) -> Outcome:
        argv, password = command.argv, self._sudo_password if self._sudo else None
        if password is not None:
            argv = _sudo.asking(argv, marked=bool(command.stdin))
        elif self._sudo:
            argv = ("sudo", "-n", "--", *argv)
        process = await _session(connection, shlex.join(argv))
        try:
            _, stdout, stderr = await (
                self._plainly(process, command) if password is None else self._asked(process, command, password)
            )
            await process.wait_closed()
        finally:
            process.close()
        status = _exit_status(process)
        if status is None:
            raise asyncssh.ConnectionLost("it ended in the middle of the command")
        return Answered(status, stdout, stderr)

    async def _plainly(
        self, process: "asyncssh.SSHClientProcess[bytes]", command: Command
    ) -> tuple[None, bytes, bytes]:
        return await asyncio.gather(
            _feed(process, command.stdin),
            read_capped(process.stdout, self._output_cap_bytes),
            read_capped(process.stderr, self._output_cap_bytes),
        )

    async def _asked(
        self, process: "asyncssh.SSHClientProcess[bytes]", command: Command, password: str
    ) -> tuple[None, bytes, bytes]:
        begun = asyncio.Event()

        async def answer(words: bytes) -> None:
            with contextlib.suppress(*_DEAF):
                process.stdin.write(words)
                await process.stdin.drain()

        async def errors() -> bytes:
            talked = await _sudo.talk(process.stderr, answer, password, marked=bool(command.stdin))
            begun.set()
            return talked + await read_capped(process.stderr, self._output_cap_bytes)

        async def feed() -> None:
            await begun.wait()
            await _feed(process, command.stdin)

        return await asyncio.gather(feed(), read_capped(process.stdout, self._output_cap_bytes), errors())


async def _session(connection: asyncssh.SSHClientConnection, line: str) -> "asyncssh.SSHClientProcess[bytes]":
    """A command begun on the connection, once the other side has room for it."""
    for left in range(REFUSED_TRIES, -1, -1):
        try:
            return await connection.create_process(line, encoding=None)
        except asyncssh.ChannelOpenError as refused:
            if left == 0 or refused.code != asyncssh.OPEN_CONNECT_FAILED or connection.is_closed():
                raise
        await asyncio.sleep(REFUSED_PAUSE_S)
    raise AssertionError("the last try returns or raises")


_DEAF = (BrokenPipeError, ConnectionResetError, asyncssh.ChannelOpenError)
"""What writing raises to a command that has ended."""


async def _feed(process: "asyncssh.SSHClientProcess[bytes]", stdin: bytes) -> None:
    """Write it all; a command that ends without reading everything is its own affair."""
    with contextlib.suppress(*_DEAF):
        process.stdin.write(stdin)
        await process.stdin.drain()
        process.stdin.write_eof()


def _exit_status(process: "asyncssh.SSHClientProcess[bytes]") -> int | None:
    """The exit status as a shell gives it (128 + signal); None when the other side never told."""
    if process.exit_signal is not None:
        number = getattr(signal, f"SIG{process.exit_signal[0]}", 0)
        return 128 + int(number)
    return process.exit_status


_HINTS: Mapping[str, str] = {
    "timeout": "is it up? try `{ssh}`",
    "refused": "is sshd running there, and the port right? try `{ssh}`",
    "host-key": "if it is new, log in once with `{ssh}` and compare its key's fingerprint with the one on its console; if it was "
    "set up anew, `ssh-keygen -R {known}` first; if neither, somebody may be in between",
    "auth": "try `{ssh}`: the key must be in the agent or ~/.ssh and allowed there, for the right user",
    "lost": "it will be made anew next time; if it goes on, look at sshd's log there",
    "name": "is the name right? it is looked up in ssh_config, hosts and DNS",
}


def _unreachable(node: Node, fault: Exception) -> Unreachable:
    if isinstance(fault, BehindJump):
        kind = _kind(fault.fault)
        why = f"{node.name} ({node.address}): {fault}: {_words(fault.fault)}"
        return Unreachable(kind, why, f"the fault is the jump host's; try `ssh {fault.jump}`")
    kind = _kind(fault)
    ssh = f"ssh {node.address}" if node.port is None else f"ssh -p {node.port} {node.address}"
    known = node.address if node.port in (None, 22) else f"'[{node.address}]:{node.port}'"
    return Unreachable(
        kind, f"{node.name} ({node.address}): {_words(fault)}", _HINTS[kind].format(ssh=ssh, known=known)
    )


def _kind(fault: Exception) -> str:
    match fault:
        case asyncssh.HostKeyNotVerifiable():
            return "host-key"
        case asyncssh.PermissionDenied():
            return "auth"
        case TimeoutError():
            return "timeout"
        case socket.gaierror() | FileNotFoundError() | asyncssh.ConfigParseError():
            return "name"
        case asyncssh.KeyImportError() | asyncssh.KeyEncryptionError() | PermissionError():
            return "auth"
        case OSError() | asyncssh.ChannelOpenError():
            return "refused"
        case _:
            return "lost"


def _words(fault: Exception) -> str:
    if isinstance(fault, asyncssh.DisconnectError):
        return fault.reason
    return str(fault) or type(fault).__name__


BACKEND = SshTransport
