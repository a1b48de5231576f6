"""Reads a secret where the policy says that it is: a variable, a file, or a person at a terminal. It keeps and prints none."""

import getpass
import os
import stat
import sys
from pathlib import Path

from muster.model.errors import BadInput, MissingTool
from muster.model.policy import SecretFrom


def read_secret(source: SecretFrom, folder: Path, *, what: str) -> str:
    """The secret; paths are relative to `folder`, `what` names it in messages.

    Raises BadInput for one that is not there, is empty or lies open to others; MissingTool without a terminal to ask at.
    """
    match source.kind:
        case "env":
            secret = os.environ.get(source.name, "")
            if not secret:
                raise BadInput(f"{what}: the variable {source.name} is not set", hint="export it in this shell")
        case "file":
            secret = _of_file(folder / Path(source.name).expanduser(), what)
        case _:
            if not sys.stdin.isatty():
                raise MissingTool(
                    f"{what}: there is no terminal to ask at",
                    hint="name a variable ({env: NAME}) or a file ({file: PATH})",
                )
            secret = getpass.getpass(f"{what}: ")
    if not secret or "\n" in secret or "\0" in secret:
        raise BadInput(f"{what}: what was given is empty or more than one line", hint="it is one line")
    return secret


def _of_file(file: Path, what: str) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            if mode & 0o077:
                raise BadInput(f"{what}: {file} can be read by others (mode {mode:04o})", hint=f"chmod 600 {file}")
            return opened.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as fault:
        raise BadInput(
            f"{what}: {file} cannot be read: {fault}", hint="mend the path in the policy's `ssh` section"
        ) from fault
