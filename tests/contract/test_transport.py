"""The contract of `ports.Transport`: this machine, SSH to a server inside the test, and SSH to the machine's own sshd (lab)."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from muster.backends.transport.local import LocalTransport
from muster.backends.transport.ssh import SshTransport
from muster.discovery import discover
from muster.model.command import Answered, Collect, Command, Outcome, Unreachable
from muster.model.node import Node
from muster.ports import Transport
from tests.support.ssh import real_sshd, sh_server

Opened = contextlib.AbstractAsyncContextManager[tuple[Transport, Node]]

CAP = 100_000


def node(port: int | None = None, address: str = "127.0.0.1") -> Node:
    return Node("n1", address, port, None, {}, "test")


@contextlib.asynccontextmanager
async def _local(_: Path) -> AsyncIterator[tuple[Transport, Node]]:
    yield LocalTransport(output_cap_bytes=CAP), node()


@contextlib.asynccontextmanager
async def _ssh(folder: Path) -> AsyncIterator[tuple[Transport, Node]]:
    async with sh_server(folder) as server:
        transport = SshTransport(
            config=(), known_hosts=str(server.known_hosts), client_keys=(str(server.client_key),), output_cap_bytes=CAP
        )
        yield transport, node(server.port)
        await transport.close()


@contextlib.asynccontextmanager
async def _sshd(folder: Path) -> AsyncIterator[tuple[Transport, Node]]:
    async with real_sshd(folder) as (port, known_hosts, key):
        transport = SshTransport(
            config=(), user="root", known_hosts=str(known_hosts), client_keys=(str(key),), output_cap_bytes=CAP
        )
        yield transport, node(port)
        await transport.close()


_LAB = [pytest.mark.lab("sshd")]


@pytest.fixture(
    params=[pytest.param(_local, id="local"), pytest.param(_ssh, id="ssh"), pytest.param(_sshd, id="sshd", marks=_LAB)]
)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    make: Callable[[Path], Opened] = request.param
    return make(tmp_path)


def command(*argv: str, stdin: bytes = b"", deadline_s: float = 300) -> Command:
    return Command(argv, stdin, deadline_s, Collect(()))


def ask(opened: Opened, *commands: Command) -> list[Outcome]:
    async def all_at_once() -> list[Outcome]:
        async with opened as (transport, there):
            return await asyncio.gather(*(transport.run(there, each) for each in commands))

    return asyncio.run(all_at_once())


def test_every_transport_is_found_and_is_covered_here() -> None:
    assert set(discover("muster.backends.transport", "BACKEND")) == {"local", "ssh"}


def test_arguments_arrive_as_they_were_given(opened: Opened) -> None:
    given = ("a b", "", "it's", '"$HOME"', "*", "\\", "line\nline", "é", "-n", "`id`")
    (outcome,) = ask(opened, command("printf", "%s|", *given))
    assert outcome == Answered(0, "".join(f"{each}|" for each in given).encode(), b"")


def test_every_byte_goes_there_and_back(opened: Opened) -> None:
    every = bytes(range(256)) * 300
    (outcome,) = ask(opened, command("cat", stdin=every))
    assert outcome == Answered(0, every, b"")


def test_exit_status_and_both_outputs_come_back_apart(opened: Opened) -> None:
    (outcome,) = ask(opened, command("sh", "-s", stdin=b"echo out; echo err >&2; exit 75"))
    assert outcome == Answered(75, b"out\n", b"err\n")


def test_a_program_that_is_not_there_is_an_answer(opened: Opened) -> None:
    (outcome,) = ask(opened, command("muster-no-such-program"))
    assert isinstance(outcome, Answered)
    assert outcome.exit_status == 127


def test_a_command_ended_by_a_signal_has_the_status_a_shell_gives(opened: Opened) -> None:
    (outcome,) = ask(opened, command("sh", "-c", "kill -9 $$"))
    assert isinstance(outcome, Answered)
    assert outcome.exit_status == 137


def test_a_command_need_not_read_its_input(opened: Opened) -> None:
    (outcome,) = ask(opened, command("true", stdin=b"x" * 3_000_000))
    assert outcome == Answered(0, b"", b"")


def test_beyond_the_deadline_nothing_is_waited_for(opened: Opened) -> None:
    before = time.monotonic()
    slow, quick = ask(opened, command("sleep", "200", deadline_s=1.0), command("echo", "here"))
    assert isinstance(slow, Unreachable)
    assert slow.kind == "timeout"
    assert slow.hint
    assert quick == Answered(0, b"here\n", b"")
    assert time.monotonic() - before < 150


def test_who_prints_without_end_is_cut_off(opened: Opened) -> None:
    (outcome,) = ask(opened, command("yes"))
    assert isinstance(outcome, Unreachable)
    assert outcome.kind == "lost"
    assert str(CAP) in outcome.why


def test_many_commands_run_on_one_node_at_the_same_time(opened: Opened) -> None:
    outcomes = ask(opened, *(command("echo", str(number)) for number in range(20)))
    assert outcomes == [Answered(0, f"{number}\n".encode(), b"") for number in range(20)]


# What only SSH can do.


def run_ssh(folder: Path, work: Callable[["SshBench"], Awaitable[None]], **options: object) -> None:
    async def inside() -> None:
        async with sh_server(folder) as server:
            bench = SshBench(folder, server, options)
            try:
                await work(bench)
            finally:
                await bench.transport.close()

    asyncio.run(inside())


class SshBench:
    """A server in the test and a transport that knows it."""

    def __init__(self, folder: Path, server, options) -> None:  # type: ignore[no-untyped-def]
        self.folder = folder
        self.server = server
        self.node = node(server.port)
        given = {
            "config": (),
            "known_hosts": str(server.known_hosts),
            "client_keys": (str(server.client_key),),
            **options,
        }
        self.transport = SshTransport(**given)

    async def echo(self, there: Node | None = None) -> Outcome:
        return await self.transport.run(there or self.node, command("echo", "here"))


def test_one_connection_serves_all_commands_of_a_node(tmp_path: Path) -> None:
    async def work(bench: SshBench) -> None:
        await asyncio.gather(*(bench.echo() for _ in range(20)))
        await bench.echo()
        assert bench.server.connections == 1

    run_ssh(tmp_path, work)


def test_a_session_that_the_node_has_no_room_for_is_asked_for_again_and_begins_once(tmp_path: Path) -> None:
    async def work(bench: SshBench) -> None:
        bench.server.refuses = 3
        outcome = await bench.transport.run(bench.node, command("sh", "-c", f"echo x >>{tmp_path}/ran; echo here"))
        assert outcome == Answered(0, b"here\n", b"")
        assert (tmp_path / "ran").read_text() == "x\n"
        assert (bench.server.refuses, bench.server.connections) == (0, 1)

    run_ssh(tmp_path, work)


def test_a_connection_cut_in_the_middle_is_lost_and_made_anew_by_the_next_command(tmp_path: Path) -> None:
    async def work(bench: SshBench) -> None:
        started = tmp_path / "started"
        os.mkfifo(started)
        asked = asyncio.create_task(
            bench.transport.run(bench.node, command("sh", "-c", f": >{started}; exec sleep 600"))
        )
        await asyncio.to_thread(started.read_bytes)
        bench.server.cut()
        outcome = await asked
        assert isinstance(outcome, Unreachable)
        assert outcome.kind == "lost"
        assert await bench.echo() == Answered(0, b"here\n", b"")
        assert bench.server.connections == 2

    run_ssh(tmp_path, work)


def test_a_host_key_that_is_not_known_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async def work(bench: SshBench) -> None:
        bench.server.known_hosts.write_text("")
        outcome = await bench.echo()
        assert isinstance(outcome, Unreachable)
        assert outcome.kind == "host-key"
        assert "ssh-keygen -R" in outcome.hint

    run_ssh(tmp_path, work)


def test_another_machine_under_the_same_name_is_refused(tmp_path: Path) -> None:
    async def work(bench: SshBench) -> None:
        other = sh_server(tmp_path)
        async with other as impostor:
            bench.server.port = impostor.port
            bench.server.trust(bench.server.host_key)
            outcome = await bench.echo(node(impostor.port))
        assert isinstance(outcome, Unreachable)
        assert outcome.kind == "host-key"

    run_ssh(tmp_path, work)


def test_a_closed_port_an_unknown_name_and_a_wrong_key_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()

    async def work(bench: SshBench) -> None:
        closed = node(bench.server.port)
        async with sh_server(tmp_path / "other") as other:
            stranger = SshTransport(
                config=(), known_hosts=str(bench.server.known_hosts), client_keys=(str(other.client_key),)
            )
            refused = await stranger.run(bench.node, command("true"))
            await stranger.close()
        await bench.server.stop()
        outcomes = [await bench.echo(closed), await bench.echo(node(22, "no-such-node.invalid")), refused]
        assert [outcome.kind for outcome in outcomes if isinstance(outcome, Unreachable)] == ["refused", "name", "auth"]
        assert all(outcome.hint for outcome in outcomes if isinstance(outcome, Unreachable))

    run_ssh(tmp_path, work)


def test_ssh_config_names_the_node_its_port_and_its_key(tmp_path: Path) -> None:
    async def work(bench: SshBench) -> None:
        config = tmp_path / "config"
        config.write_text(
            f"Host gpu-01\n  HostName 127.0.0.1\n  Port {bench.server.port}\n  IdentityFile {bench.server.client_key}\n"
            f"  UserKnownHostsFile {bench.server.known_hosts}\n"
        )
        transport = SshTransport(config=(str(config),))
        assert await transport.run(node(None, "gpu-01"), command("echo", "here")) == Answered(0, b"here\n", b"")
        await transport.close()

    run_ssh(tmp_path, work)


def test_with_sudo_the_command_is_asked_for_as_root_without_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims = tmp_path / "bin"
    shims.mkdir()
    (shims / "sudo").write_text('#!/bin/sh\necho "sudo $*"\n')
    (shims / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{os.environ['PATH']}")

    async def work(bench: SshBench) -> None:
        assert await bench.transport.run(bench.node, command("sh", "-s")) == Answered(0, b"sudo -n -- sh -s\n", b"")

    run_ssh(tmp_path, work, sudo=True)
