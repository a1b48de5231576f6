"""Laws of how a command begins and ends: a plain line is read as Typer reads it, and what cannot be written or is no store is said as such."""

import subprocess
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.cli import declare
from muster.cli._lazy import COMMANDS, load
from muster.cli.quick import run
from tests.support.desk import Desk
from tests.support.shelf import shelf


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return shelf(tmp_path_factory.mktemp("shelf"))


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


CALLS: list[dict[str, Any]] = []
APP = declare.App("Paint.")


@APP.command()
def paint(
    target: Annotated[str, declare.argument(says="What.")],
    where: Annotated[list[str] | None, declare.option("--where", metavar="A=B")] = None,
    colour: Annotated[Colour | None, declare.option("--colour")] = None,
    folder: Annotated[Path | None, declare.option("--folder", "--dir")] = None,
    words: Annotated[str, declare.option("--words")] = "",
    as_json: Annotated[bool, declare.option("--json")] = False,
) -> None:
    CALLS.append(dict(locals()))
    raise declare.Exit(3)


LINES = st.lists(
    st.sampled_from(
        [
            "wall", "", "--where", "--where=a=b", "a=b", "--colour", "red", "--colour=blue", "green", "--folder", "--dir=x", "--words",
            "--words=", "--json", "--json=1", "--no-json", "-h", "--help", "--", "-", "--wher", "--where=", "é",
        ]
    ),
    max_size=6,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(LINES)
def test_a_plain_line_means_what_typer_says_it_means(words: list[str]) -> None:
    CALLS.clear()
    code = 0
    try:
        if not run(APP, words):
            return
    except SystemExit as end:
        code = int(str(end.code))
    quick = list(CALLS)
    CALLS.clear()
    with suppress(SystemExit):
        APP(args=words, prog_name="paint")
    assert code == 3
    assert quick == CALLS


def test_what_is_not_plain_is_left_to_typer() -> None:
    for words in (
        [],
        ["--help"],
        ["wall", "--colour", "green"],
        ["wall", "--words"],
        ["wall", "other"],
        ["wall", "-x"],
    ):
        CALLS.clear()
        assert run(APP, words) is False
        assert CALLS == []


def test_the_commands_that_only_read_are_plain(desk: Desk) -> None:
    for name in ("status", "check", "why", "version"):
        assert name in COMMANDS
        app: Any = load(name)
        with pytest.raises(SystemExit):
            run(app, ["n1", "--json", "--fleet", "/nowhere"] if name == "why" else ["--json"])


@pytest.mark.parametrize(
    "words",
    [("--help",), ("version",), ("version", "--json"), ("status",), ("status", "--json"), ("nodes", "list", "--csv")],
)
def test_an_output_that_has_no_room_is_said_and_is_no_fault_of_ours(desk: Desk, words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "muster", *words], cwd=desk.folder, env=desk.environment, stdout=full, stderr=subprocess.PIPE,
            text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert done.returncode == 3
    assert "standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_store_that_is_none_is_bad_input_with_the_way_out(desk: Desk) -> None:
    policy = desk.folder / "fleet.yaml"
    for wrong, says in (
        (desk.folder, "is a folder"),
        (policy, "not a database"),
        (policy / "muster.db", "Not a directory"),
    ):
        said = desk.here("status", "--store", str(wrong))
        assert said.exit_code == 3
        assert f"{wrong}: {says}" in said.err
        assert "--store" in said.err.partition("hint:")[2]


@pytest.mark.parametrize(
    ("words", "closed", "code"), [("nope", "2>&-", 2), ("why zzz", "2>&-", 3), ("version", ">&-", 0)]
)
def test_a_closed_channel_changes_no_exit_code(desk: Desk, words: str, closed: str, code: int) -> None:
    said = subprocess.run(
        ["sh", "-c", f'exec "$0" -m muster {words} {closed}', sys.executable],
        cwd=desk.folder, env=desk.environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (said.returncode, "Traceback" in said.stdout + said.stderr) == (code, False)
