"""Laws of the fleet's SSH side, met with the client library that Muster itself uses."""

import asyncio
import json
import time
from collections.abc import Callable

import asyncssh
import pytest

from muster.loopback.fleet import LoopbackFleet
from muster.loopback.jobs import jobs_of
from muster.loopback.observe import observe

Until = Callable[[Callable[[], bool]], None]
WAIT_S = 300.0
"""For what does not come at all: a busy machine is no fault."""


def ask(
    fleet: LoopbackFleet, node: str, command: str, *, stdin: str = "", limit_s: float = WAIT_S
) -> asyncssh.SSHCompletedProcess:
    async def one() -> asyncssh.SSHCompletedProcess:
        async with asyncssh.connect(node, config=[str(fleet.layout.ssh_config)]) as connection:
            return await connection.run(command, input=stdin)

    return asyncio.run(asyncio.wait_for(one(), limit_s))


def until_answers(fleet: LoopbackFleet, node: str) -> asyncssh.SSHCompletedProcess:
    limit = time.monotonic() + WAIT_S
    while True:
        try:
            return ask(fleet, node, "hostname", limit_s=60)
        except (OSError, asyncssh.Error):
            assert time.monotonic() < limit
            time.sleep(0.05)


def until_refuses(fleet: LoopbackFleet, node: str, kind: type[Exception]) -> None:
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        try:
            ask(fleet, node, "true", limit_s=60)
        except kind:
            return
        except (OSError, asyncssh.Error):
            pass
        time.sleep(0.02)
    pytest.fail(f"{node} never refused with {kind.__name__}")


def test_a_command_runs_in_the_nodes_folder_with_its_input_output_and_status(served_fleet: LoopbackFleet) -> None:
    done = ask(served_fleet, "gpu02", "pwd; cat; echo oh >&2; hostname; exit 7", stdin="hello\n")
    assert done.stdout == f"{served_fleet.node_root('gpu02')}\nhello\ngpu02\n"
    assert (done.stderr, done.exit_status) == ("oh\n", 7)


def test_a_large_script_over_stdin_arrives_whole(served_fleet: LoopbackFleet) -> None:
    script = "".join(f": {number:060d}\n" for number in range(5000)) + "echo end\n"
    assert ask(served_fleet, "gpu01", "sh -s", stdin=script).stdout == "end\n"
    assert ask(served_fleet, "gpu01", "wc -c", stdin=script).stdout == f"{len(script)}\n"


def test_the_channel_closes_while_a_detached_grandchild_lives_on(served_fleet: LoopbackFleet) -> None:
    done = ask(
        served_fleet, "gpu01", "setsid sh -c 'sleep 3600; echo late' & echo $!"
    )  # answered: it was not waited for
    pid = str(done.stdout).strip()
    assert ask(served_fleet, "gpu01", f"kill -0 {pid}").exit_status == 0
    ask(served_fleet, "gpu01", f"kill {pid}")


def test_a_command_ended_by_a_signal_says_which(served_fleet: LoopbackFleet) -> None:
    assert ask(served_fleet, "gpu01", "kill -KILL $$").exit_signal is not None


def test_all_nodes_answer_at_once(served_fleet: LoopbackFleet) -> None:
    async def every() -> list[str]:
        async def one(node: str) -> str:
            async with asyncssh.connect(node, config=[str(served_fleet.layout.ssh_config)]) as connection:
                return str((await connection.run("hostname")).stdout).strip()

        return list(await asyncio.gather(*(one(node) for node in served_fleet.names)))

    assert asyncio.run(every()) == list(served_fleet.names)


def test_another_key_is_not_let_in(served_fleet: LoopbackFleet) -> None:
    stranger = asyncssh.generate_private_key("ssh-ed25519")

    async def try_it() -> None:
        await asyncssh.connect("gpu01", config=[str(served_fleet.layout.ssh_config)], client_keys=[stranger])

    with pytest.raises(asyncssh.PermissionDenied):
        asyncio.run(try_it())


def test_a_node_with_another_host_key_is_not_trusted(served_fleet: LoopbackFleet) -> None:
    served_fleet.set_knob("gpu03", "wrong-host-key")
    until_refuses(served_fleet, "gpu03", asyncssh.HostKeyNotVerifiable)
    served_fleet.set_knob("gpu03", "wrong-host-key", None)
    assert until_answers(served_fleet, "gpu03").stdout == "gpu03\n"


def test_an_unreachable_node_refuses_connections_until_it_is_back(served_fleet: LoopbackFleet) -> None:
    served_fleet.set_knob("gpu03", "unreachable")
    until_refuses(served_fleet, "gpu03", ConnectionRefusedError)
    served_fleet.set_knob("gpu03", "unreachable", None)
    assert until_answers(served_fleet, "gpu03").stdout == "gpu03\n"


def test_a_reboot_kills_what_runs_and_comes_back_with_another_boot_id(
    served_fleet: LoopbackFleet, until: Until
) -> None:
    root = served_fleet.node_root("gpu04")
    before, began = observe(root), time.time()
    served_fleet.start_job("lost", ["gpu04"], 3600)
    ask(served_fleet, "gpu04", "reboot")
    until(lambda: observe(root).boot_id not in ("", before.boot_id))
    assert until_answers(served_fleet, "gpu04").stdout == "gpu04\n"
    until(lambda: jobs_of(root)[0].state == "killed by SIGKILL")
    uptime_s = float(str(ask(served_fleet, "gpu04", "cut -d' ' -f1 proc/uptime").stdout))
    assert uptime_s < time.time() - began + 1  # the node knows when it booted to a second


def test_a_silent_node_takes_the_connection_and_says_nothing(served_fleet: LoopbackFleet) -> None:
    async def knock() -> bytes:
        port = json.loads(served_fleet.layout.ready.read_text(encoding="utf-8"))["gpu03"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await asyncio.wait_for(reader.read(1), 2)
        except TimeoutError:
            return b"silence"
        finally:
            writer.close()

    served_fleet.set_knob("gpu03", "silent")
    assert asyncio.run(knock()) == b"silence"
    served_fleet.set_knob("gpu03", "silent", None)
    assert until_answers(served_fleet, "gpu03").stdout == "gpu03\n"


def test_a_power_cut_in_mid_change_leaves_what_dpkg_can_mend(served_fleet: LoopbackFleet, until: Until) -> None:
    root = served_fleet.node_root("gpu02")
    boot_id = observe(root).boot_id
    served_fleet.set_knob("gpu02", "slow-package", "600")
    ask(served_fleet, "gpu02", ": >tmp/out; setsid apt-get install -y nvidia-driver-cuda=580.126.20-1 >>tmp/out 2>&1 &")
    until(lambda: "DKMS files" in (root / "tmp/out").read_text(encoding="utf-8"))
    served_fleet.power_cut("gpu02")
    until(lambda: observe(root).boot_id not in ("", boot_id))
    until_answers(served_fleet, "gpu02")
    served_fleet.set_knob("gpu02", "slow-package", None)
    assert not observe(root).is_whole
    assert ask(served_fleet, "gpu02", "dpkg --configure -a").exit_status == 0
    ask(served_fleet, "gpu02", "reboot")
    until(lambda: observe(root).is_whole)
    assert observe(root).run_twice == 0


def test_a_command_that_a_reboot_cuts_has_no_status(served_fleet: LoopbackFleet) -> None:
    # asyncssh hands back a completed process without a status where the connection went away.
    assert ask(served_fleet, "gpu04", "reboot; sleep 3600").exit_status is None
    assert until_answers(served_fleet, "gpu04").stdout == "gpu04\n"


def test_starting_twice_keeps_the_server_that_runs(served_fleet: LoopbackFleet) -> None:
    pid = served_fleet.server_pid()
    served_fleet.start()
    assert served_fleet.server_pid() == pid
    assert LoopbackFleet(served_fleet.layout.folder).server_pid() == pid
