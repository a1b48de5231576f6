"""The ways into real nodes: jump hosts, sudo with and without a password, programs named in sudoers, login shells and profiles of all sorts."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from muster.backends.transport.ssh import SshTransport
from muster.control.bootstrap import script_to_install
from muster.model.command import Answered, Collect, Command, Outcome, Unreachable
from muster.model.node import Node
from tests.support.desk import Desk
from tests.support.lab import PASSWORD, PROGRAMS, Lab, Plan, lab, obstacle

pytestmark = [pytest.mark.lab(*PROGRAMS, "sudo", "tcsh", "bash")]

DEEP = tuple(f"deep{number:02d}" for number in range(20))
NEAR = ("n1", "n2", "n3", "n4", "n5", "n6")
PROGRAM = "/usr/local/sbin/muster-look"
OTHER = "other"  # carries the program of another release

# Whoever asks from the control machine gets no answer: the way back leads only to the neighbours.
_CUT_OFF = (
    "ip route add blackhole \"$(ip -4 -o address show eth0 | sed 's,.*inet \\([0-9]*.[0-9]*.[0-9]*\\)[.].*,\\1.1,')\""
)
_SUDOERS = "fixed ALL=(root) NOPASSWD: sha256:{digest} {program} *\n"


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if why := obstacle():
        pytest.skip(why)
    text = script_to_install()
    rule = _SUDOERS.format(digest=hashlib.sha256(text.encode()).hexdigest(), program=PROGRAM)
    plans = [
        Plan("bastion"),
        *(
            Plan(name, sshd="Banner /etc/warning\n", files={"/etc/warning": "Authorised use only.\n", PROGRAM: text})
            for name in NEAR
        ),
        Plan(OTHER, files={PROGRAM: text + "# mended by hand\n"}),
        Plan("strict", files={PROGRAM: text, "/etc/sudoers.d/lab": rule}),
        Plan("forged", files={PROGRAM: text + "# mended by hand\n", "/etc/sudoers.d/lab": rule}),
        *(Plan(name, boot=_CUT_OFF) for name in DEEP),
    ]
    with lab(tmp_path_factory.mktemp("ways"), plans) as running:
        yield running


def node(ways: Lab, name: str, user: str = "root") -> Node:
    return Node(name, ways[name].address, None, user, {}, "lab")


def ask(
    ways: Lab, nodes: Sequence[Node], *argv: str, stdin: bytes = b"", deadline_s: float = 300, **options: object
) -> list[Outcome]:
    """What each node answers to one command, asked at the same time over one transport."""
    given: dict[str, object] = {"config": (str(ways.ssh_config),), "connect_timeout_s": 240.0, **options}

    async def all_at_once() -> list[Outcome]:
        transport = SshTransport(**given)  # type: ignore[arg-type]
        try:
            command = Command(argv, stdin, deadline_s, Collect(()))
            return await asyncio.gather(*(transport.run(each, command) for each in nodes))
        finally:
            await transport.close()

    return asyncio.run(all_at_once())


def looked(desk: Desk, **environment: str) -> Mapping[str, str]:
    """Look at all nodes of the desk; those that could not be looked at, with the reason."""
    said = desk.muster("collect", "--json", **environment)
    away = said.body["unreachable"]
    assert isinstance(away, dict)
    return away


# Jump hosts.


def through(ways: Lab, jump: str, folder: Path) -> str:
    """An ssh_config that reaches the cut-off nodes through `jump`."""
    hosts = " ".join(ways[name].address for name in DEEP)
    config = folder / "through"
    config.write_text(f"Host {hosts}\n  ProxyJump {jump}\n{ways.ssh_config.read_text()}")
    return str(config)


def test_all_nodes_behind_a_jump_host_are_reached_over_one_connection_to_it(ways: Lab, tmp_path: Path) -> None:
    before = ways["bastion"].connections()
    config = through(ways, f"root@{ways['bastion'].address}", tmp_path)
    nodes = [node(ways, name) for name in DEEP]
    assert ask(ways, nodes, "hostname", config=(config,)) == [Answered(0, f"{name}\n".encode(), b"") for name in DEEP]
    assert ways["bastion"].connections() == before + 1


def test_a_fleet_behind_a_jump_host_is_collected_over_one_connection_to_it(ways: Lab, tmp_path: Path) -> None:
    hosts = " ".join(ways[name].address for name in DEEP)
    jump = f"Host {hosts}\n  ProxyJump gate\nHost gate\n  HostName {ways['bastion'].address}\n  User ops\n"
    site = ways.site(tmp_path / "site", dict.fromkeys(DEEP, "root"), config=jump)
    known = tmp_path / "known"
    known.write_text(ways.known_hosts.read_text() + f"gate {ways['bastion'].public_key}")
    config = (site / "ssh_config").read_text().replace(str(ways.known_hosts), str(known))
    (site / "ssh_config").write_text(config)
    before = ways["bastion"].connections()
    assert looked(Desk(site, tmp_path / "m.db")) == {}
    assert ways["bastion"].connections() == before + 1


def test_a_chain_of_jump_hosts_is_one_connection_to_each(ways: Lab, tmp_path: Path) -> None:
    first, second = ways["bastion"], ways["n1"]
    before = first.connections(), second.connections()
    config = through(ways, f"root@{first.address},root@{second.address}:22", tmp_path)
    nodes = [node(ways, name) for name in DEEP[:5]]
    assert ask(ways, nodes, "hostname", config=(config,)) == [
        Answered(0, f"{each.name}\n".encode(), b"") for each in nodes
    ]
    assert (first.connections(), second.connections()) == (before[0] + 1, before[1] + 1)


def test_a_jump_host_named_for_all_hosts_is_itself_reached_directly(ways: Lab, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host *\n  ProxyJump root@{ways['bastion'].address}\n{ways.ssh_config.read_text()}")
    (said,) = ask(ways, [node(ways, DEEP[0])], "hostname", config=(str(config),))
    assert said == Answered(0, f"{DEEP[0]}\n".encode(), b"")


def test_a_jump_host_that_refuses_is_named_and_asked_once(ways: Lab, tmp_path: Path) -> None:
    before = ways["bastion"].connections()
    jump = f"nobody-there@{ways['bastion'].address}"
    outcomes = ask(ways, [node(ways, name) for name in DEEP], "true", config=(through(ways, jump, tmp_path),))
    for name, outcome in zip(DEEP, outcomes, strict=True):
        assert isinstance(outcome, Unreachable)
        assert (outcome.kind, outcome.hint) == ("auth", f"the fault is the jump host's; try `ssh {jump}`")
        assert outcome.why.startswith(f"{name} ")
    assert ways["bastion"].connections() == before + 1


def test_a_node_that_the_jump_host_cannot_reach_is_told_apart(ways: Lab, tmp_path: Path) -> None:
    config = through(ways, f"root@{ways['bastion'].address}", tmp_path)
    closed = Node("closed", ways[DEEP[0]].address, 2222, "root", {}, "lab")
    closed_one, open_one = ask(ways, [closed, node(ways, DEEP[1])], "hostname", config=(config,))
    assert isinstance(closed_one, Unreachable)
    assert closed_one.kind == "refused"
    assert open_one == Answered(0, f"{DEEP[1]}\n".encode(), b"")


# sudo.


def test_sudo_is_answered_where_it_asks_and_only_there(ways: Lab) -> None:
    users = ("asked", "ops", "csh", "noisy")
    nodes = [node(ways, name, user) for name, user in zip(NEAR, users, strict=False)]
    outcomes = ask(ways, nodes, "sh", "-c", "id -u; cat", stdin=b"<what it reads>\n", sudo=True, sudo_password=PASSWORD)
    for outcome in outcomes:
        assert isinstance(outcome, Answered)
        assert outcome.stdout.endswith(b"0\n<what it reads>\n")
        assert PASSWORD.encode() not in outcome.stdout + outcome.stderr


def test_a_command_that_reads_nothing_is_answered_for_too(ways: Lab) -> None:
    nodes = [node(ways, "n1", "asked"), node(ways, "n2", "ops")]
    for outcome in ask(ways, nodes, "id", "-u", sudo=True, sudo_password=PASSWORD):
        assert isinstance(outcome, Answered)
        assert (outcome.exit_status, outcome.stdout) == (0, b"0\n")


def test_a_wrong_password_and_one_who_may_not_are_named(ways: Lab) -> None:
    nodes = [node(ways, "n1", "asked"), node(ways, "n2", "plain")]
    for wrong in ask(ways, nodes, "sh", "-s", stdin=b"id -u", sudo=True, sudo_password="guess"):
        assert isinstance(wrong, Unreachable)
        assert (wrong.kind, "refused the password" in wrong.why) == ("auth", True)


def test_without_a_password_sudo_is_told_not_to_ask(ways: Lab) -> None:
    (outcome,) = ask(ways, [node(ways, "n1", "asked")], "id", "-u", sudo=True)
    assert isinstance(outcome, Answered)
    assert (outcome.exit_status, outcome.stdout) == (1, b"")
    assert b"password is required" in outcome.stderr


LOGINS = {"n1": "asked", "n2": "ops", "n3": "csh", "n4": "noisy", "n5": "root", "n6": "plain"}


def test_whoever_logs_in_a_node_is_seen_as_root_and_the_password_stands_nowhere(ways: Lab, tmp_path: Path) -> None:
    site = ways.site(tmp_path / "site", LOGINS, ssh="sudo: true, sudo_password: {env: LAB_SUDO}")
    desk = Desk(site, tmp_path / "muster.db")
    away = looked(desk, LAB_SUDO=PASSWORD)
    assert set(away) == {"n6"}
    assert "sudo" in away["n6"]
    said = desk.here("status", "--by", "gpu.count", "--json").out + desk.here("nodes", "show", "n1", "--json").out
    for text in (
        said,
        str(away),
        *(each.read_bytes().decode("latin-1") for each in tmp_path.rglob("*") if each.is_file()),
    ):
        assert PASSWORD not in text
    for name in LOGINS:
        assert PASSWORD not in ways[name].log.read_text(errors="replace")


def test_without_sudo_what_needs_root_is_unknown_and_the_rest_is_seen(ways: Lab, tmp_path: Path) -> None:
    ways["n6"].inside(
        "mkdir -p /boot/grub; touch /boot/vmlinuz-6.1 /boot/vmlinuz-6.2; echo 'set default=0' >/boot/grub/grub.cfg;"
        "chmod 600 /boot/grub/grub.cfg"
    )
    desk = Desk(ways.site(tmp_path / "site", {"n6": "plain"}), tmp_path / "muster.db")
    assert looked(desk) == {}
    facts = desk.here("nodes", "show", "n6", "--json").body["facts"]
    assert isinstance(facts, list)
    values = {fact["path"]: fact["value"] for fact in facts}
    assert values["kernel.next_boot"] == {"unknown": "the boot menu may not be read (needs root)"}
    assert values["gpu.count"] == 4


def test_a_password_comes_from_a_file_that_only_its_owner_reads(ways: Lab, tmp_path: Path) -> None:
    site = ways.site(tmp_path / "site", {"n1": "asked"}, ssh="sudo: true, sudo_password: {file: secret}")
    (site / "secret").write_text(f"{PASSWORD}\n")
    (site / "secret").chmod(0o640)
    desk = Desk(site, tmp_path / "muster.db")
    said = desk.muster("collect")
    assert (said.exit_code, "can be read by others (mode 0640)" in said.err) == (3, True)
    (site / "secret").chmod(0o600)
    assert looked(desk) == {}


def test_a_password_that_is_not_to_be_had_is_asked_for_before_any_node(ways: Lab, tmp_path: Path) -> None:
    for where, word in (
        ("prompt", "no terminal"),
        ("{env: LAB_UNSET}", "LAB_UNSET is not set"),
        ("{file: none}", "none cannot be read"),
    ):
        site = ways.site(tmp_path / "site", {"n1": "asked", "n2": "asked"}, ssh=f"sudo: true, sudo_password: {where}")
        before = ways["n1"].connections()
        said = Desk(site, tmp_path / "muster.db").muster("collect")
        assert (said.exit_code, word in said.err, ways["n1"].connections()) == (3, True, before), said.err


# A program that sudoers names.


def test_a_site_that_lets_one_program_run_as_root_is_collected_by_it(ways: Lab, tmp_path: Path) -> None:
    users = {"n1": "fixed", "n2": "fixed", "strict": "fixed", OTHER: "fixed", "forged": "fixed", "bastion": "fixed"}
    desk = Desk(ways.site(tmp_path / "site", users, ssh=f"sudo: true, script: {PROGRAM}"), tmp_path / "muster.db")
    away = looked(desk)
    assert set(away) == {OTHER, "forged", "bastion"}
    assert "is another text than this release's" in away[OTHER]
    assert "muster facts script --install" in away[OTHER]
    assert "sudo" in away["forged"]  # its sudoers names the digest
    assert "sudo" in away["bastion"]  # nothing is installed there
    facts = desk.here("nodes", "show", "strict", "--json").body["facts"]
    assert isinstance(facts, list)
    assert {fact["path"]: fact["value"] for fact in facts}["gpu.count"] == 4
    assert desk.here("facts", "script", "--install").out == script_to_install()
