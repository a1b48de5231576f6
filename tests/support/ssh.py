"""SSH servers for tests: one inside the test that runs real sh, and the machine's own sshd where it may be started."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh

from tests.support.ports import free_ports

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))


class ShServer:
    """An SSH server on 127.0.0.1 whose commands are real sh processes. Counts connections; `cut` drops them all.

    It refuses the next `refuses` sessions, as sshd does beyond its MaxSessions.
    """

    def __init__(self, folder: Path) -> None:
        self.client_key = folder / "id"
        self.known_hosts = folder / "known_hosts"
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(self.client_key)
        key.write_public_key(folder / "id.pub")
        self._authorized = folder / "id.pub"
        self.connections = 0
        self.refuses = 0
        self.port = 0
        self._open: list[asyncssh.SSHServerConnection] = []
        self._acceptor: asyncssh.SSHAcceptor | None = None

    async def start(self, port: int = 0) -> None:
        server = self

        class Server(asyncssh.SSHServer):
            def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
                server.connections += 1
                server._open.append(conn)

            def session_requested(self) -> "asyncssh.SSHServerProcess[bytes]":
                if server.refuses:
                    server.refuses -= 1
                    raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "open failed")
                return asyncssh.SSHServerProcess(_serve, None, 3, False)

        self._acceptor = await asyncssh.listen(
            "127.0.0.1", port, server_factory=Server, server_host_keys=[self.host_key],
            authorized_client_keys=str(self._authorized), encoding=None, config=[],
        )  # fmt: skip
        self.port = self._acceptor.get_port()
        self.trust(self.host_key)

    def trust(self, key: asyncssh.SSHKey) -> None:
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {key.export_public_key().decode()}")

    def cut(self) -> None:
        for connection in self._open:
            connection.abort()
        self._open.clear()

    async def stop(self) -> None:
        self.cut()
        if self._acceptor:
            self._acceptor.close()
            await self._acceptor.wait_closed()


async def _serve(process: "asyncssh.SSHServerProcess[bytes]") -> None:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", process.command or "", stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    assert child.stdin and child.stdout and child.stderr
    ended = asyncio.create_task(_kill_when_closed(process, child.pid))
    feeding = asyncio.create_task(_pump(process.stdin, child.stdin, close=True))
    try:
        await asyncio.gather(_pump(child.stdout, process.stdout), _pump(child.stderr, process.stderr))
        status = await child.wait()
        if status < 0:
            process.exit_with_signal(_SIGNALS[-status])
        else:
            process.exit(status)
    finally:
        feeding.cancel()
        ended.cancel()
        _kill(child.pid)
        # Before the waiting: asyncio calls a child ended only when its pipes are, and one that nobody reads to its end never is.
        child._transport.close()  # type: ignore[attr-defined]
        await asyncio.gather(feeding, ended, child.wait(), return_exceptions=True)


async def _kill_when_closed(process: "asyncssh.SSHServerProcess[bytes]", pid: int) -> None:
    await process.wait_closed()
    _kill(pid)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


async def _pump(reader: Any, writer: Any, *, close: bool = False) -> None:
    with contextlib.suppress(OSError, asyncssh.Error, asyncssh.BreakReceived, asyncssh.SignalReceived):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    if close:
        writer.close()


_SIGNALS = {9: "KILL", 15: "TERM"}


@contextlib.asynccontextmanager
async def sh_server(folder: Path) -> AsyncIterator[ShServer]:
    server = ShServer(folder)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def real_sshd(folder: Path) -> AsyncIterator[tuple[int, Path, Path]]:
    """The machine's own sshd on 127.0.0.1: (port, known_hosts, client key). Needs root."""
    assert SSHD
    folder.chmod(0o700)
    host_key, client_key = folder / "host", folder / "id"
    for key in (host_key, client_key):
        made = asyncssh.generate_private_key("ssh-ed25519")
        made.write_private_key(key)
        made.write_public_key(f"{key}.pub")
        key.chmod(0o600)
    (port,) = free_ports(1)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nAuthorizedKeysFile {client_key}.pub\nPidFile none\nUsePAM no\n"
        "StrictModes no\nPermitRootLogin yes\n"
        # The profile of who runs the tests (pyenv, say) has words of its own when many shells start at once.
        f"SetEnv HOME={folder}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {Path(f'{host_key}.pub').read_text()}")
    daemon = await asyncio.create_subprocess_exec(
        SSHD, "-D", "-e", "-f", str(folder / "sshd_config"), stderr=subprocess.PIPE
    )
    assert daemon.stderr
    try:
        async with asyncio.timeout(120):
            while b"listening" not in (line := await daemon.stderr.readline()):
                assert line, "sshd ended"
        yield port, known, client_key
    finally:
        daemon.terminate()
        await daemon.communicate()
