"""Commands on this machine itself, for a node that is the one Muster runs on. It opens no connection and becomes nobody else."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping

from muster.backends._capped import TooMuch, read_capped
from muster.model.command import Answered, Command, Outcome, Unreachable
from muster.model.node import Node

OUTPUT_CAP_BYTES = 4 * 1024 * 1024
"""More than all facts of a node together; who prints more is broken."""


class LocalTransport:
    """Runs each command in a session of its own, under `environment` (this process's own when None)."""

    def __init__(
        self, *, environment: Mapping[str, str] | None = None, output_cap_bytes: int = OUTPUT_CAP_BYTES
    ) -> None:
        self._environment = dict(environment) if environment is not None else None
        self._output_cap_bytes = output_cap_bytes

    async def run(self, node: Node, command: Command) -> Outcome:
        """The command's answer, or `timeout` when its deadline passed: then its session is killed, and not waited for."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError) as fault:
            return Answered(127, b"", f"{command.argv[0]}: {fault.strerror}\n".encode())
        try:
            async with asyncio.timeout(command.deadline_s):
                return await self._answer(process, command.stdin)
        except TimeoutError:
            why = f"no answer from {node.name} within {command.deadline_s:g} s"
            return Unreachable("timeout", why, "look at what the node is busy with; the command may still be running")
        except TooMuch:
            why = f"{node.name} printed more than {self._output_cap_bytes} bytes"
            return Unreachable("lost", why, "look at what the command prints there")
        finally:
            await _end(process)

    async def _answer(self, process: asyncio.subprocess.Process, stdin: bytes) -> Answered:
        assert process.stdout is not None
        assert process.stderr is not None
        _, stdout, stderr = await asyncio.gather(
            _feed(process, stdin),
            read_capped(process.stdout, self._output_cap_bytes),
            read_capped(process.stderr, self._output_cap_bytes),
        )
        status = await process.wait()
        return Answered(status if status >= 0 else 128 - status, stdout, stderr)

    async def close(self) -> None:
        """Nothing is kept open."""


async def _feed(process: asyncio.subprocess.Process, stdin: bytes) -> None:
    """Write it all; a command that ends without reading everything is its own affair."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Nothing of it is left, but for a child in uninterruptible sleep, which is given a second and then left alone."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await process.wait()
    # The pipes go at once: such a child would keep them, and their readers, for ever.
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


BACKEND = LocalTransport
