"""The way to a node over SSH: which jump hosts lead there, whose host key is expected, which ciphers cost least.

asyncssh answers all this anew for each connection: it reads known_hosts whole and opens a tunnel of its own through the jump host. Right for
one node, and for ten thousand a handshake too many each, and ten thousand times ten thousand lines of known_hosts. So the tunnel to a jump
host is opened once and shared, and a file is read once as long as it stays as it is. What the user's ssh_config says is never replaced.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import asyncssh

REST_S = 10.0
"""A jump host that could not be reached is not tried again for this long: each node behind it would wait for it in turn."""

GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
"""Where OpenSSH looks for the site's host keys when its configuration does not say."""


MOST_KNOWN_HOSTS = 8
"""Of the sets of files that a configuration names for different hosts, how many are kept."""


class BehindJump(Exception):
    """A jump host on the way could not be reached; the fault itself is the cause."""

    def __init__(self, jump: str, fault: Exception) -> None:
        super().__init__(f"on the way through {jump}")
        self.jump = jump
        self.fault = fault


class _Tunnel:
    """A connection to a jump host that is being made or made, and from when on a failed one may be tried again (by the loop's clock)."""

    def __init__(self, task: "asyncio.Task[asyncssh.SSHClientConnection]") -> None:
        self.task = task
        self.rested_at = 0.0
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[asyncssh.SSHClientConnection]") -> None:
        self.rested_at = asyncio.get_running_loop().time() + REST_S
        if not task.cancelled():
            task.exception()  # Looked at, so that the loop does not complain of one that nobody waited for.

    @property
    def usable(self) -> bool:
        if not self.task.done():
            return True
        if self.task.cancelled():
            return False
        if self.task.exception() is not None:
            return asyncio.get_running_loop().time() < self.rested_at
        return not self.task.result().is_closed()


class Ways:
    """Opens connections with `options` of `asyncssh.connect`. Tunnels stay open until `close`."""

    def __init__(self, options: Mapping[str, object], timeout_s: float) -> None:
        self._options = dict(options)
        self._timeout_s = timeout_s
        self._known_hosts: dict[tuple[object, ...], asyncssh.SSHKnownHosts] = {}
        self._tunnels: dict[str, _Tunnel] = {}

    async def connect(
        self, address: str, port: int | None, user: str | None, handshakes: asyncio.Semaphore
    ) -> asyncssh.SSHClientConnection:
        """A new connection; `handshakes` is held while it is made, but not while a jump host is waited for.

        Raises asyncssh.Error, OSError, ValueError, TimeoutError, and BehindJump for a jump host that gave one of them.
        """
        given = self._options | ({} if port is None else {"port": port}) | ({} if user is None else {"username": user})
        asked, jump = self._read(address, given)
        if jump is not None:
            asked["tunnel"] = await self._through(jump)
        async with handshakes, asyncio.timeout(self._timeout_s):
            return await asyncssh.connect(address, **asked)

    async def close(self) -> None:
        """Close all tunnels, and give up those that are being made."""
        tunnels, self._tunnels = self._tunnels, {}
        for tunnel in tunnels.values():
            tunnel.task.cancel()
        for connection in await asyncio.gather(*(each.task for each in tunnels.values()), return_exceptions=True):
            if isinstance(connection, asyncssh.SSHClientConnection):
                connection.close()
                await connection.wait_closed()

    async def _through(self, jump: str) -> asyncssh.SSHClientConnection:
        """The connection to the last of the hosts `a,b,c` of a ProxyJump. Raises BehindJump."""
        tunnel = self._tunnels.get(jump)
        if tunnel is None or not tunnel.usable:
            tunnel = self._tunnels[jump] = _Tunnel(asyncio.create_task(self._open(jump)))
        try:
            # Shielded: one node's deadline must not end the connecting of the others.
            return await asyncio.shield(tunnel.task)
        except (asyncssh.Error, OSError, ValueError) as fault:
            raise BehindJump(jump, fault) from fault

    async def _open(self, jump: str) -> asyncssh.SSHClientConnection:
        before, _, last = jump.rpartition(",")
        host, given = _jump_host(last)
        asked, own = self._read(host, self._options | given)
        if before:
            own = before
        # `Host *` with a ProxyJump is meant for all but the jump host itself.
        asked["tunnel"] = await self._through(own) if own is not None and own != jump else None
        async with asyncio.timeout(self._timeout_s):
            return await asyncssh.connect(host, **asked)

    def _read(self, address: str, given: Mapping[str, object]) -> tuple[dict[str, object], str | None]:
        """What to ask `asyncssh.connect` for, so that `address` is reached as `given` says, and the jump hosts that the configuration names."""
        wanted = asyncssh.SSHClientConnectionOptions(**{**given, "host": address, "client_keys": None})
        if wanted.canonicalize_hostname or wanted.config.has_match_final():
            return dict(given), None  # The configuration is read again under another name: asyncssh's own affair.
        asked = dict(given)
        if wanted.config.loaded:
            # The files were read just now; without `config` they are not read again.
            asked = {"options": wanted, "port": given.get("port", ()), "client_keys": given.get("client_keys", ())}
        if isinstance(wanted.known_hosts, list) and "known_hosts" not in given:
            asked["known_hosts"] = self._known(
                wanted.known_hosts or [str(Path("~/.ssh/known_hosts").expanduser()), GLOBAL_KNOWN_HOSTS]
            )
        if wanted.config.get("Ciphers") is None:
            # The same ciphers in another order: with these, asyncssh spends a quarter less CPU on a handshake.
            asked["encryption_algs"] = sorted(
                (each.decode() for each in wanted.encryption_algs), key=lambda name: "gcm" not in name
            )
        jump = wanted.tunnel if isinstance(wanted.tunnel, str) and wanted.tunnel else None
        return asked, jump

    def _known(self, files: list[str]) -> asyncssh.SSHKnownHosts:
        """The host keys of these files; one that is not there says nothing, as for OpenSSH. Raises ValueError naming the file."""
        present = [(file, os.stat(file)) for file in files if Path(file).is_file()]
        key = tuple((file, seen.st_mtime_ns, seen.st_size, seen.st_ino) for file, seen in present)
        if key not in self._known_hosts:
            if len(self._known_hosts) >= MOST_KNOWN_HOSTS:
                self._known_hosts.clear()
            known = asyncssh.SSHKnownHosts()
            for file, _ in present:
                try:
                    known.load(Path(file).read_text(encoding="utf-8", errors="replace"))
                except ValueError as fault:
                    raise ValueError(f"{file}: {fault}") from fault
            self._known_hosts[key] = known
        return self._known_hosts[key]


def _jump_host(text: str) -> tuple[str, dict[str, object]]:
    """The host of `[user@]host[:port]`, a v6 address in brackets, and what is asked of it. Raises ValueError for a port that is none."""
    user, at, rest = text.strip().removeprefix("ssh://").rpartition("@")
    given: dict[str, object] = {"username": user} if at else {}
    host, bracket, tail = rest.partition("]")
    port = tail if bracket else ""
    if not bracket and rest.count(":") == 1:
        host, _, port = rest.partition(":")
    port = port.removeprefix(":")
    if port:
        if not (port.isascii() and port.isdigit()):
            raise ValueError(f"ProxyJump {text!r}: {port!r} is no port")
        given["port"] = int(port)
    return host.removeprefix("["), given
