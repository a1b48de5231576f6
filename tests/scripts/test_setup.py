"""What the scripts say to a machine that cannot run Muster: what is wrong, what to do, and not exit 0.

The scripts run here with a PATH that holds only the tools named below, and a stand-in for Python that answers as a real
one of some version would. What set-up does on a machine that is good enough is proved by `scripts/fresh-root`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("cat", "cksum", "dirname", "env", "flock", "id", "ls", "mktemp", "mv", "rm", "sh")
SETUP_REFUSED = 3
USAGE = 2
REFUSED = 4

# Answers the scripts' questions in their order: new enough?, which version?, ensurepip?, package?, base prefix?
PYTHON = """#!/bin/sh
case "$*" in
*'version_info < (3, 11)'*) exit {too_old} ;;
*'%d.%d.%d'*) echo {version} ;;
*ensurepip*) exit 1 ;;
*'-venv'*) echo python3.11-venv ;;
*base_prefix*) echo {base} ;;
esac
"""


class Machine:
    """A PATH with almost nothing on it, and a place for an environment."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.venv = folder / "venv"
        for tool in TOOLS:
            path = shutil.which(tool)
            assert path is not None, tool
            (self.bin / tool).symlink_to(path)

    def has(self, name: str, text: str) -> Path:
        program = self.bin / name
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        return program

    def has_python(self, name: str, version: str, base: str = "/usr") -> Path:
        too_old = int(tuple(int(part) for part in version.split(".")) < (3, 11))
        return self.has(name, PYTHON.format(version=version, too_old=too_old, base=base))

    def run(self, script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / "scripts" / script, *arguments],
            env={"PATH": str(self.bin), "HOME": str(self.bin.parent), "MUSTER_VENV": str(self.venv), **env},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("script", ["demo", "test", "check"])
def test_python_3_10_is_refused_with_what_was_found_and_a_remedy(machine: Machine, script: str) -> None:
    python = machine.has_python("python3", "3.10.12")
    done = machine.run(script)
    assert done.returncode == SETUP_REFUSED
    assert f"needs Python 3.11 or newer; the one found here is 3.10.12 ({python})" in done.stderr
    assert "MUSTER_PYTHON=/path/to/python3.11" in done.stderr
    assert not machine.venv.exists()


def test_no_python_at_all_is_refused(machine: Machine) -> None:
    done = machine.run("demo")
    assert done.returncode == SETUP_REFUSED
    assert "no Python was found" in done.stderr


def test_a_newer_python_is_found_behind_an_old_one(machine: Machine) -> None:
    machine.has_python("python3", "3.10.12")
    machine.has_python("python3.12", "3.12.1", base="/opt/python")
    done = machine.run("demo")
    # It goes on to the next question, ensurepip, which the stand-in lacks.
    assert "python3.12 has no ensurepip" in done.stderr


def test_a_named_python_that_is_too_old_is_refused_by_its_name(machine: Machine) -> None:
    machine.has_python("python3", "3.12.1")
    old = machine.has_python("old", "3.9.2")
    done = machine.run("demo", MUSTER_PYTHON=str(old))
    assert done.returncode == SETUP_REFUSED
    assert f"MUSTER_PYTHON={old} is 3.9.2" in done.stderr


def test_a_named_python_that_is_not_there_is_refused(machine: Machine) -> None:
    done = machine.run("demo", MUSTER_PYTHON="/no/such/python")
    assert done.returncode == SETUP_REFUSED
    assert "MUSTER_PYTHON=/no/such/python is not a Python that runs" in done.stderr


def test_without_ensurepip_the_exact_command_is_named(machine: Machine) -> None:
    machine.has_python("python3", "3.11.2")
    machine.has("apt-get", "#!/bin/sh\nexit 100\n")
    done = machine.run("demo")
    assert done.returncode == SETUP_REFUSED
    sudo = "" if os.getuid() == 0 else "sudo "
    assert f"  {sudo}apt-get update && {sudo}apt-get install -y python3.11-venv\n" in done.stderr
    assert not machine.venv.exists()


def test_an_environment_that_is_a_link_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "precious").touch()
    machine.venv.symlink_to(theirs)
    machine.has_python("python3", "3.11.2")
    done = machine.run("demo")
    assert done.returncode == SETUP_REFUSED
    assert "is a link" in done.stderr
    assert (theirs / "precious").exists()


def test_a_folder_that_is_no_environment_is_left_alone(machine: Machine) -> None:
    machine.venv.mkdir()
    (machine.venv / "precious").touch()
    machine.has(
        "python3", PYTHON.format(version="3.11.2", too_old=0, base="/usr").replace("*ensurepip*) exit 1 ;;", "")
    )
    done = machine.run("demo")
    assert done.returncode == SETUP_REFUSED
    assert "is no virtual environment" in done.stderr
    assert (machine.venv / "precious").exists()


def test_fresh_root_refuses_to_start_without_root(machine: Machine) -> None:
    (machine.bin / "id").unlink()
    machine.has("id", "#!/bin/sh\necho 1000\n")
    done = machine.run("fresh-root")
    assert done.returncode == REFUSED
    assert "needs root" in done.stderr


@pytest.mark.parametrize(("script", "argument"), [("check", "--nonsense"), ("lock", "--nonsense")])
def test_an_argument_that_is_not_known_is_a_usage_error(machine: Machine, script: str, argument: str) -> None:
    machine.has("uv", "#!/bin/sh\nexit 0\n")
    assert machine.run(script, argument).returncode == USAGE
