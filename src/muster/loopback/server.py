"""One detached process that answers SSH for every node of a loopback fleet: `python -m muster.loopback.server FOLDER`.

It outlives whoever started it, so that killing a control plane leaves the nodes and their tasks alone, as it does in a real fleet. It runs
what it is sent, in the node's folder with the node's environment, and carries out restarts. It knows nothing of drivers or rollouts.
"""

import asyncio
import fcntl
import json
import logging
import os
import signal
import socket
import sys
import zlib
from contextlib import suppress
from functools import partial
from pathlib import Path

import asyncssh

from muster.loopback.layout import (
    Layout,
    Member,
    inventory_text,
    known_hosts_text,
    read_members,
    ssh_config_text,
)
from muster.loopback.nodes import argv_of, boot, environment, kill_under, manner_of, refresh_uptime

# Below the range from which Linux gives out ports to clients, so that none sits on a node's port while the node restarts.
_FIRST_PORT, _LAST_PORT = 22000, 32000

# Knobs and restart requests are files; looking for them this often costs about 1 % of a core for twelve nodes.
_LOOK_S = 0.1

# A machine that was asked to restart goes on answering for a moment; one whose power is cut does not.
_GOING_DOWN_S = 0.3

# How long a restarting node cannot be reached. Long enough for a client to notice, short enough for a demo.
_BOOT_S = 1.0

# After a command ended, output already in its pipes still arrives; a detached grandchild that keeps them open is not waited for.
_DRAIN_S = 0.2

_log = logging.getLogger("muster.loopback")


class _Child(asyncio.SubprocessProtocol):
    """Passes what a command prints on to its channel, and knows when it ended and when its pipes closed."""

    def __init__(self, channel: asyncssh.SSHServerProcess[bytes]) -> None:
        loop = asyncio.get_running_loop()
        self._channel = channel
        self._open = {1, 2}
        self.exited: asyncio.Future[None] = loop.create_future()
        self.drained: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        with suppress(OSError):
            (self._channel.stdout if fd == 1 else self._channel.stderr).write(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open and not self.drained.done():
            self.drained.set_result(None)

    def process_exited(self) -> None:
        self.exited.set_result(None)


class _Door(asyncssh.SSHServer):
    """Keeps count of a node's connections so that a restart can cut them, also those that were on their way in."""

    def __init__(self, node: "_Node") -> None:
        self._node = node
        self._own: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._own = conn
        self._node.connections.add(conn)
        if self._node.is_down:
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._own is not None:
            self._node.connections.discard(self._own)


class _Node:
    """One node: its port, and how it meets who connects: open, wrong-host-key, silent (takes connections, says nothing), unreachable."""

    def __init__(self, layout: Layout, name: str) -> None:
        self.name = name
        self.root = layout.node(name)
        self._place: socket.socket | None = None
        self._layout = layout
        self._acceptor: asyncssh.SSHAcceptor | asyncio.Server | None = None
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self._unanswered: list[asyncio.StreamWriter] = []
        self._manner = "unreachable"

    def bind(self, port: int) -> None:
        """Take the port, for as long as the server lives: nobody else may sit on it while the node is away. Raises OSError where it is taken."""
        place = socket.socket()
        try:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(("127.0.0.1", port))
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError:
            place.close()
            raise
        self._place = place

    @property
    def port(self) -> int:
        """The node's port; 0 before it has one."""
        return 0 if self._place is None else int(self._place.getsockname()[1])

    @property
    def is_down(self) -> bool:
        """Whether nobody may be connected now."""
        return self._manner == "unreachable"

    async def listen(self, manner: str) -> None:
        """Take connections, if the manner is to take any. Raises OSError, and stays unreachable, where the port is taken."""
        self._manner = manner
        try:
            self._acceptor = await self._take_connections(manner)
        except OSError:
            self._manner = "unreachable"
            raise
        self._say_manner()

    def _say_manner(self) -> None:
        """Write down how the node meets who connects from now on, for who set the knob and waits for it."""
        fresh = self.root / "loopback/manner.new"
        fresh.write_text(f"{self._manner}\n", encoding="ascii")
        fresh.replace(self.root / "loopback/manner")

    async def _take_connections(self, manner: str) -> asyncssh.SSHAcceptor | asyncio.Server | None:
        if manner == "unreachable" or self._place is None:
            return None
        # Old connections linger on the port for a minute; only while it listens may it be shared with them.
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place = self._place.dup()
        if manner == "silent":
            return await asyncio.start_server(self._keep_waiting, sock=place)
        key = self._layout.wrong_host_key if manner == "wrong-host-key" else self._layout.host_key(self.name)
        return await asyncssh.listen(
            sock=place,
            server_factory=partial(_Door, self),
            server_host_keys=[str(key)],
            authorized_client_keys=str(self._layout.client_key.with_suffix(".pub")),
            process_factory=self._serve,
            encoding=None,
            allow_scp=False,
            line_editor=False,
            agent_forwarding=False,
        )

    async def silence(self) -> None:
        """Stop listening and cut every connection."""
        self._manner = "unreachable"
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None and self._place is not None:
            acceptor.close()
            with suppress(OSError):
                self._place.shutdown(socket.SHUT_RDWR)
            self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        for connection in tuple(self.connections):
            connection.abort()
        for writer in self._unanswered:
            writer.transport.abort()
        self._unanswered.clear()
        if acceptor is not None:
            await acceptor.wait_closed()

    async def look(self) -> None:
        """Carry out what the node's files ask for."""
        request = self.root / "loopback/reboot"
        if request.exists():
            await self._restart(at_once=request.read_text(encoding="ascii").strip() == "power-cut")
        wanted = manner_of(self.root)
        if wanted != self._manner:
            await self.silence()
            await self.listen(wanted)

    def _keep_waiting(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._manner == "silent":
            self._unanswered.append(writer)
        else:
            writer.transport.abort()

    async def _restart(self, *, at_once: bool) -> None:
        _log.info("%s %s", self.name, "loses power" if at_once else "restarts")
        await asyncio.sleep(0 if at_once else _GOING_DOWN_S)
        await self.silence()
        await asyncio.to_thread(kill_under, self.root)
        await asyncio.sleep(_BOOT_S)
        await asyncio.to_thread(boot, self.root, self._layout.shims)

    async def _serve(self, channel: asyncssh.SSHServerProcess[bytes]) -> None:
        refresh_uptime(self.root)
        transport, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Child(channel),
            *argv_of(self.root, channel.command),
            cwd=self.root,
            env=dict(environment(self.root, self._layout.shims)),
            start_new_session=True,
        )
        feeder = asyncio.ensure_future(_feed(channel, transport))
        await child.exited
        with suppress(TimeoutError):
            await asyncio.wait_for(child.drained, _DRAIN_S)
        feeder.cancel()
        status = transport.get_returncode() or 0
        transport.close()
        with suppress(OSError):
            if status < 0:
                channel.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
            else:
                channel.exit(status)


async def _feed(channel: asyncssh.SSHServerProcess[bytes], transport: asyncio.SubprocessTransport) -> None:
    """Pass the channel's input on until it ends; a signal that the client sends goes to the command's session."""
    pipe = transport.get_pipe_transport(0)
    assert isinstance(pipe, asyncio.WriteTransport)
    while not pipe.is_closing():
        try:
            data = await channel.stdin.read(1 << 16)
        except asyncssh.SignalReceived as received:
            with suppress(ProcessLookupError, ValueError, KeyError):
                os.killpg(transport.get_pid(), signal.Signals[f"SIG{received.signal}"])
            continue
        except (asyncssh.Error, OSError, asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
            data = b""
        if not data:
            pipe.close()
            return
        pipe.write(data)


async def _listen_somewhere(node: _Node, wanted: int, taken: set[int]) -> None:
    """Give the node the port it had before, or the next free one.

    Each fleet begins the search elsewhere: a restarting node gives up its port for a moment, which another fleet must not take meanwhile.
    """
    begin = _FIRST_PORT + zlib.crc32(bytes(node.root.parent)) % (_LAST_PORT - _FIRST_PORT)
    for port in (wanted, *range(begin, _LAST_PORT), *range(_FIRST_PORT, begin)):
        if port in taken or not port:
            continue
        try:
            node.bind(port)
            await node.listen(manner_of(node.root))
        except OSError:
            continue
        taken.add(port)
        return
    raise RuntimeError(f"no free port between {_FIRST_PORT} and {_LAST_PORT} for {node.name}")


def _describe(layout: Layout, members: tuple[Member, ...], ports: dict[str, int]) -> None:
    for place, text in (
        (layout.inventory, inventory_text(members, ports)),
        (layout.ssh_config, ssh_config_text(layout, members, ports)),
        (layout.known_hosts, known_hosts_text(layout, members, ports)),
        (layout.ready, json.dumps(ports) + "\n"),
    ):
        fresh = place.with_name(place.name + ".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(place)


async def serve(folder: Path) -> None:
    """Answer for all nodes of the fleet in `folder` until SIGTERM or SIGINT; then end everything that runs on them."""
    layout = Layout(folder)
    members = read_members(layout)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    before = json.loads(layout.ready.read_text(encoding="utf-8")) if layout.ready.exists() else {}
    layout.ready.unlink(missing_ok=True)
    nodes = [_Node(layout, member.name) for member in members]
    taken: set[int] = set()
    for node in nodes:
        await _listen_somewhere(node, before.get(node.name, 0), taken)
    _describe(layout, members, {node.name: node.port for node in nodes})
    watchers = [asyncio.ensure_future(_watch(node)) for node in nodes]
    await stopping.wait()
    for watcher in watchers:
        watcher.cancel()
    for node in nodes:
        await node.silence()
    kill_under(layout.nodes)


async def _watch(node: _Node) -> None:
    while True:
        try:
            await node.look()
        except (OSError, RuntimeError) as fault:
            # The port may be busy for a moment, or the folder may be going away; the next look tries again.
            _log.warning("%s: %s", node.name, fault)
        await asyncio.sleep(_LOOK_S)


def main() -> int:
    """The process: refuses (status 1) where another already serves the folder."""
    folder = Path(sys.argv[1]).resolve()
    layout = Layout(folder)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    with layout.lock.open("a") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _log.error("another process serves %s", folder)
            return 1
        layout.pid.write_text(f"{os.getpid()}\n", encoding="ascii")
        try:
            asyncio.run(serve(folder))
        finally:
            layout.pid.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
