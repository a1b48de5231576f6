"""Fifty real nodes, each with an sshd of its own, looked at in one go: what hangs, lies or is silent costs itself and no other node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.support.desk import Desk
from tests.support.lab import PROGRAMS, Lab, Plan, lab, obstacle

pytestmark = [pytest.mark.lab(*PROGRAMS, "perl")]

HUNG, TWINS, BARE = "gpu07", ("gpu11", "gpu12"), "gpu13"
WEB, MUTE, FLOOD = "gpu20", "gpu21", "gpu22"
STRANGER = "gpu30"

_LISTEN = """perl -MIO::Socket::INET -e '
my $s = IO::Socket::INET->new(LocalPort => 22, Listen => 99, ReuseAddr => 1) or die;
print STDERR "Server listening on 0.0.0.0\\n";
while (my $c = $s->accept) { push @c, $c; ANSWER }'"""


def plans() -> list[Plan]:
    special = {
        WEB: Plan(
            WEB, serve=_LISTEN.replace("ANSWER", 'print $c "HTTP/1.1 400 Bad Request\\r\\n\\r\\n" x 9999; close $c')
        ),
        MUTE: Plan(MUTE, serve=_LISTEN.replace("ANSWER", "")),
        FLOOD: Plan(FLOOD, sshd="ForceCommand cat /dev/urandom\n"),
        BARE: Plan(BARE, boot="rm -f /usr/bin/python* /usr/local/bin/python* /bin/python* /usr/bin/gzip /bin/gzip"),
        **{twin: Plan(twin, files={"/etc/machine-id": "0123456789abcdef0123456789abcdef\n"}) for twin in TWINS},
    }
    names = [f"gpu{number:02d}" for number in range(50)]
    return [special.get(name, Plan(name)) for name in names]


BROKEN = {WEB, MUTE, FLOOD, STRANGER}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if why := obstacle():
        pytest.skip(why)
    with lab(tmp_path_factory.mktemp("lab"), plans()) as running:
        running[HUNG].inside("touch /lab/hangs")
        yield running


@dataclass(frozen=True)
class Story:
    """One look at all fifty, and the desk where it was made."""

    desk: Desk
    away: Mapping[str, str]

    def fact(self, node: str, path: str) -> object:
        facts = self.desk.here("nodes", "show", node, "--json").body["facts"]
        assert isinstance(facts, list)
        return next((fact["value"] for fact in facts if fact["path"] == path), None)


@pytest.fixture(scope="module")
def story(fleet: Lab, tmp_path_factory: pytest.TempPathFactory) -> Story:
    place = tmp_path_factory.mktemp("fifty")
    site = fleet.site(
        place / "site", dict.fromkeys(fleet.machines, "root"), ssh="concurrency: 50", connect_timeout="20s"
    )
    known = fleet.known_hosts.read_text().splitlines(keepends=True)
    other = fleet[HUNG].public_key
    changed = [
        f"{fleet[STRANGER].address} {other}" if each.split()[0] == fleet[STRANGER].address else each for each in known
    ]
    (site / "known_hosts").write_text("".join(changed))
    config = (site / "ssh_config").read_text()
    (site / "ssh_config").write_text(config.replace(str(fleet.known_hosts), str(site / "known_hosts")))
    desk = Desk(site, place / "muster.db")
    return Story(desk, collected(desk))


def collected(desk: Desk, *words: str, nodes: int = 50) -> Mapping[str, str]:
    """Look at the nodes; those that could not be looked at, with the reason."""
    said = desk.muster("collect", "--json", *words)
    away = said.body["unreachable"]
    assert isinstance(away, dict)
    assert said.exit_code == (5 if away else 0), said.err
    assert said.body["nodes"] == nodes
    return away


def test_all_others_are_seen_in_one_go_while_some_hang_lie_or_are_silent(story: Story) -> None:
    assert set(story.away) == BROKEN
    said = story.desk.here("status", "--by", "gpu.count", "--json").body["groups"]
    assert isinstance(said, list)
    by_count = {str(group["gpu.count"]): set(group["names"]) for group in said}
    assert by_count["4"] == {f"gpu{number:02d}" for number in range(50)} - BROKEN - {HUNG}


def test_a_key_that_is_not_the_known_one_is_refused_and_named(story: Story) -> None:
    assert story.away[STRANGER].startswith("host-key: ")
    assert "ssh-keygen -R" in story.away[STRANGER]


def test_what_speaks_no_ssh_is_named(story: Story) -> None:
    assert WEB in story.away[WEB]


def test_who_says_nothing_is_given_up(story: Story) -> None:
    assert story.away[MUTE].startswith("timeout: ")


def test_who_prints_without_end_is_cut_off(story: Story) -> None:
    assert "printed more than" in story.away[FLOOD]


def test_a_hung_nvidia_smi_costs_neither_the_other_facts_nor_a_second_child(fleet: Lab, story: Story) -> None:
    assert fleet[HUNG].inside("for pid in $(cat /lab/hanging); do cut -d' ' -f3 /proc/$pid/stat; done") == "D\n"
    first = story.fact(HUNG, "gpu.count")
    assert isinstance(first, dict)
    assert first["unknown"].startswith("nvidia-smi ")
    assert isinstance(story.fact(HUNG, "kernel.running"), str)
    assert story.fact(HUNG, "package[nvidia-smi].version") == "570.86.15-1"
    for _ in range(2):
        assert not collected(story.desk, "--limit", HUNG, nodes=1)
        again = story.fact(HUNG, "gpu.count")
        assert isinstance(again, dict)
        assert "an earlier one has not ended" in again["unknown"]
    hanging = fleet[HUNG].inside("cat /lab/hanging").split()
    assert len(hanging) == 1
    fleet[HUNG].inside(
        f"rm /lab/hangs; kill -9 {hanging[0]}; for i in $(seq 300); do pgrep -f '[h]ang.pl' >/dev/null || break; sleep 0.1; done"
    )
    assert not collected(story.desk, "--limit", HUNG, nodes=1)
    assert story.fact(HUNG, "gpu.count") == 4


def test_a_node_without_python_and_gzip_is_seen_like_any_other(fleet: Lab, story: Story) -> None:
    assert fleet[BARE].inside("PATH=/usr/local/bin:/usr/bin:/bin; command -v python3 || echo none") == "none\n"
    assert fleet[BARE].inside("PATH=/usr/local/bin:/usr/bin:/bin; command -v gzip || echo none") == "none\n"
    assert story.fact(BARE, "gpu.count") == 4


def test_two_nodes_with_one_machine_id_are_named_and_seen(story: Story) -> None:
    found = story.desk.here("check", "--json").body["findings"]
    assert isinstance(found, list)
    alike = [each for each in found if set(TWINS) <= set(each["nodes"])]
    assert any(each["code"] == "machine-id-not-unique" for each in alike), alike


def test_a_look_at_some_keeps_what_is_known_of_the_others(story: Story) -> None:
    before = story.fact("gpu02", "boot_id")
    assert not collected(story.desk, "--limit", "gpu01", "--limit", "gpu03", nodes=2)
    assert story.fact("gpu02", "boot_id") == before
