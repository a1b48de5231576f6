"""Laws of `watch`: what is new and what is gone is said once, to people and to whom they named, across restarts too."""

import json
import os
import signal
from pathlib import Path

import pytest

from muster.control.watch import Changes, changes, keys
from muster.model.finding import Finding, Severity
from tests.support.desk import LIMIT_S, Desk, until

POLICY = "schema: 1\nfleet: lab\ninventory:\n  - directory: out\npools:\n  all: {match: {label.x: '*'}}\n"
UNKNOWN_PACKAGES = "packages-unknown"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "fleet.yaml").write_text(POLICY, encoding="utf-8")
    for node in ("n1", "n2"):
        (tmp_path / "out" / node).mkdir(parents=True)
        (tmp_path / "out" / node / "uptime.txt").write_text("100.0 90.0\n", encoding="utf-8")
    return Desk(tmp_path, tmp_path / "muster.db")


def mend(desk: Desk, node: str) -> None:
    """Bring the package list of a node."""
    (desk.folder / "out" / node / "dpkg.txt").write_text("dpkg\t1.21.22\tinstall\tinstalled\tamd64\n", encoding="utf-8")


def hook(desk: Desk, text: str = "cat >>told; echo >>told") -> tuple[str, str]:
    (desk.folder / "hook.sh").write_text(text, encoding="utf-8")
    return ("--alert-command", "sh hook.sh")


def told(desk: Desk) -> list[dict[str, list[dict[str, object]]]]:
    file = desk.folder / "told"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []  # the last one may be written just now
    return [json.loads(line)["data"] for line in lines]


def codes(items: list[dict[str, object]]) -> dict[object, object]:
    return {each["code"]: each["nodes"] for each in items}


def test_what_is_found_first_is_new_and_the_second_round_is_silent(desk: Desk) -> None:
    first = desk.here("watch", "--once", *hook(desk))
    assert first.exit_code == 5
    assert f"new   UNKNOWN  {UNKNOWN_PACKAGES}" in first.out
    assert codes(told(desk)[0]["new"])[UNKNOWN_PACKAGES] == ["n1", "n2"]
    second = desk.here("watch", "--once", *hook(desk))
    assert second.out == ""
    assert len(told(desk)) == 1


def test_what_is_gone_is_told_for_the_nodes_that_it_left(desk: Desk) -> None:
    desk.here("watch", "--once")
    mend(desk, "n1")
    said = desk.here("watch", "--once", "--json")
    assert codes(said.body["gone"]) == {UNKNOWN_PACKAGES: ["n1"]}  # type: ignore[arg-type]
    assert said.body["new"] == []


def test_an_alert_that_was_not_delivered_is_told_at_the_next_round_and_printed_only_once(desk: Desk) -> None:
    first = desk.here("watch", "--once", *hook(desk, "echo down >&2; exit 1"))
    assert "was not reached: exit 1: down; it is tried again" in first.err
    second = desk.here("watch", "--once", *hook(desk))
    assert second.out == ""
    assert UNKNOWN_PACKAGES in codes(told(desk)[0]["new"])


@pytest.mark.parametrize(
    ("words", "code", "names"),
    [
        (("--every", "5"), 3, "duration"),
        (("--every", "1s"), 3, "too often"),
        (("--alert-command", "no-such-program"), 3, "no-such-program"),
        (("--alert-command", "sh 'x"), 3, "quot"),
        (("--alert-webhook", "file:///etc/passwd"), 3, "http"),
    ],
)
def test_what_could_never_alert_is_refused_at_once(desk: Desk, words: tuple[str, ...], code: int, names: str) -> None:
    said = desk.here("watch", "--once", *words, "--json")
    assert said.exit_code == code
    assert names in str(said.body["message"])
    assert not desk.store.exists()


def test_a_state_that_cannot_be_read_is_refused_and_never_taken_for_empty(desk: Desk) -> None:
    desk.here("watch", "--once")
    Path(f"{desk.store}.watch").write_text('{"form": 1, "shown": [["a"]], "told": []}')
    said = desk.here("watch", "--once", "--json")
    assert said.exit_code == 70
    assert "remove the file" in str(said.body["hint"])


def test_ctrl_c_ends_a_watch_with_130_and_a_second_watch_is_refused_meanwhile(desk: Desk) -> None:
    process = desk.start("watch", "--every", "1h", *hook(desk))
    try:
        # It is told first and printed last, when the state is written down.
        until(lambda: len(told(desk)) == 1)
        assert process.stdout is not None
        while UNKNOWN_PACKAGES not in (line := process.stdout.readline()):
            assert line, "the watch ended"
        refused = desk.here("watch", "--once", "--json")
        assert refused.exit_code == 4
        assert str(process.pid) in str(refused.body["message"])
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert desk.here("watch", "--once").out == ""


def finding(evidence: str, *nodes: str) -> Finding:
    return Finding("mixed", Severity.WARNING, "pool a", nodes, evidence, "do")


def test_words_that_only_count_are_no_change() -> None:
    before = keys([finding("1 on 3, 2 on 4", "n1")])
    assert not changes(before, [finding("1 on 2, 2 on 5", "n1")])


def test_a_finding_that_names_no_node_comes_and_goes_too() -> None:
    empty = finding("no node matches")
    came = changes(frozenset(), [empty])
    assert [item.nodes for item in came.new] == [()]
    assert len(changes(keys([empty]), []).gone) == 1
    assert changes(keys([empty]), [empty]) == Changes((), ())
