"""R8: no hidden time, chance, process, print, blind `except`, mock or naive date; no relative or late imports.

One file with every violation is planted in a copy of the tree, and ruff, with the project's own settings, must report
each of them there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

STATEMENTS = "\n".join(f"    total += {n}" for n in range(41))
BRANCHES = "\n".join(f"    if value == {n}:\n        return {n}" for n in range(11))

PLANTED = f"""\
import asyncio
import random
import secrets
import subprocess
import time
import uuid
from datetime import date, datetime
from unittest import mock

from .. import model


def hidden(verbose: bool) -> None:
    import json
    print(datetime.now(), datetime.utcnow(), date.today(), time.time(), random.random(), secrets.token_hex())
    try:
        subprocess.run("true", shell=True, check=False)
    except Exception:
        print(uuid.uuid4(), uuid.uuid1(), json, mock, model, open("x"))


async def waits() -> None:
    await asyncio.sleep(1)
    time.sleep(1)


def long(total: int) -> int:
{STATEMENTS}
    return total


def tangled(value: int) -> int:
{BRANCHES}
    return -1
"""

# (ruff's code, a word of its message)
BANS = (
    ("TID251", "`time` is banned"),
    ("TID251", "`random` is banned"),
    ("TID251", "`secrets` is banned"),
    ("TID251", "`subprocess` is banned"),
    ("TID251", "`unittest.mock` is banned"),
    ("TID251", "`datetime.datetime.now` is banned"),
    ("TID251", "`datetime.datetime.utcnow` is banned"),
    ("TID251", "`datetime.date.today` is banned"),
    ("TID251", "`uuid.uuid4` is banned"),
    ("TID251", "`uuid.uuid1` is banned"),
    ("TID251", "`asyncio.sleep` is banned"),
    ("TID252", "relative import"),
    ("DTZ005", ""),
    ("BLE001", "Exception"),
    ("T201", "print"),
    ("S602", "shell"),
    ("PLC0415", "top-level"),
    ("FBT001", "Boolean"),
    ("ASYNC251", ""),
    ("PTH123", "open"),
    ("C901", "`tangled`"),
    ("PLR0915", "statements"),
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    tree = tmp_path_factory.mktemp("banned")
    shutil.copy(ROOT / "pyproject.toml", tree)
    planted = tree / "src/muster/planner/planted.py"
    planted.parent.mkdir(parents=True)
    planted.write_text(PLANTED, encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).parent / "ruff", "check", "--no-cache", "--output-format=json", "src"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return [(str(report["code"]), str(report["message"])) for report in json.loads(done.stdout)]


@pytest.mark.parametrize(("code", "word"), BANS)
def test_a_planted_ban_is_reported(reports: list[tuple[str, str]], code: str, word: str) -> None:
    assert [message for found, message in reports if found == code and word.lower() in message.lower()], reports
