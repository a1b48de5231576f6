"""Laws of help: quick, complete, and the same options everywhere."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from muster.cli._lazy import COMMANDS, load, typed
from muster.model.errors import MusterError

HEAVY = ("asyncssh", "numpy", "yaml", "rich", "typer", "msgspec", "sqlite3", "asyncio")
NO_JSON = {("demo",), ("facts", "script")}


def leaves() -> list[tuple[str, ...]]:
    """Every command with its words."""
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        try:
            command = get_command(typed(load(name)))  # type: ignore[arg-type]
        except ModuleNotFoundError:
            continue
        inner = getattr(command, "commands", None)
        found += [(name, word) for word in inner] if inner else [(name,)]
    return found


def test_help_imports_no_database_ssh_numpy_yaml_or_rich() -> None:
    text = (
        "import json, sys\nfrom muster.cli.main import main\ncode = main(['--help'])\n"
        "print(json.dumps([code, sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert [name for name in HEAVY if name in modules] == []


@pytest.mark.parametrize("words", leaves(), ids=" ".join)
def test_every_command_has_help_and_json(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module("muster.cli.main").main
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--json" in shown or words in NO_JSON
    assert shown.splitlines()[0].startswith("Usage: muster")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module("muster.cli.main").main
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


def test_the_page_of_exit_codes_names_every_code_of_the_error_tree() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/reference/exit-codes.md").read_text(encoding="utf-8")
    kinds: list[type[MusterError]] = [MusterError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert {f"| {kind.exit_code} |" for kind in kinds} <= {
        line[: line.index("|", 1) + 1] for line in page.splitlines() if "|" in line[1:]
    }
