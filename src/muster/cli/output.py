"""How every command takes its common options, runs, prints, and ends. No command prints or exits by other means."""

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any

from muster import __version__
from muster.cli import declare
from muster.cli._lazy import run_in_loop, table_lines
from muster.control.bootstrap import NeedsLoop, now_utc
from muster.model.errors import MusterError, NoRoom

Fleet = Annotated[
    str | None,
    declare.option("--fleet", says="The policy file; default $MUSTER_FLEET, ./fleet.yaml, /etc/muster/fleet.yaml."),
]
StorePath = Annotated[
    str | None, declare.option("--store", says="The store; default $MUSTER_STORE, then under $XDG_STATE_HOME.")
]
AsJson = Annotated[bool, declare.option("--json", says="Print one JSON object.")]

INTERRUPTED = 130
MOST_UNSEEN = 1_000_000
"""Values after which rings are looked for all the same, about 200 MB: with a hundred thousand nodes memory counts too."""
DEBUG_VARIABLE = "MUSTER_DEBUG"


def app(help_text: str) -> declare.App:
    """An app in the house's manner."""
    return declare.App(help_text)


def say(line: str = "") -> None:
    """One line on standard output; a reader that went away (`| head`) ends the command quietly. Raises NoRoom where it cannot be written."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _shut()
        raise declare.Exit(0) from None
    except OSError as error:
        _shut()
        raise NoRoom(
            f"standard output: {error.strerror or error}",
            hint="free some space there, or let it write to another place",
        ) from None


def _shut() -> None:
    # What is still in the buffer must find an open door when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(line: str) -> None:
    """One line on standard error, for progress and remarks."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def envelope(noun: str, data: object, warnings: Sequence[str] = ()) -> str:
    """The JSON object that every `--json` prints."""
    at = now_utc().astimezone(UTC)
    body = {
        "schema": f"muster.{noun}/1",
        "generated_at": at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z",
        "data": data,
        "warnings": list(warnings),
    }
    return json.dumps(body, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output: wrapped to the terminal, unwrapped when piped."""
    for line in table_lines(columns, rows):
        say(line)


def run(work: Callable[[], Coroutine[Any, Any, int]], *, as_json: bool, waits: bool = True) -> None:
    """Run a command's coroutine and end with its exit code. An error of our tree becomes its message, hint and exit code.

    With `waits` False it looks at no node: it is run through without an event loop, unless the site says, before anything is done, that it
    needs one.
    """
    if waits:
        guarded(lambda: run_in_loop(work()), as_json=as_json)
    with _few_collections():
        guarded(lambda: _straight(work), as_json=as_json)


@contextmanager
def _few_collections() -> Iterator[None]:
    """What does not wait ends soon, and leaves hardly a ring behind: to look for rings in ten thousand nodes' values was a fifteenth of it."""
    before = gc.get_threshold()
    gc.set_threshold(MOST_UNSEEN, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _straight(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    coroutine = work()
    try:
        coroutine.send(None)
    except StopIteration as end:
        return int(end.value)
    except NeedsLoop:
        return run_in_loop(work())
    coroutine.close()
    raise AssertionError("a command that is to wait for nothing waited")


def guarded(work: Callable[[], int], *, as_json: bool) -> None:
    """Like `run`, for a command that is no coroutine."""
    try:
        code = work()
    except MusterError as error:
        code = tell(error, as_json=as_json)
    except KeyboardInterrupt:
        note("interrupted")
        code = INTERRUPTED
    except declare.Exit:
        raise
    except Exception as error:  # noqa: BLE001 - the one place: no traceback reaches a user, and none is lost
        code = tell(_bug(error), as_json=as_json)
    raise declare.Exit(code)


def _bug(error: Exception) -> MusterError:
    """An error that nobody expected, as one of our tree. Its traceback goes to standard error with MUSTER_DEBUG=1, and to a file."""
    trace = "".join(traceback.format_exception(error))
    if os.environ.get(DEBUG_VARIABLE) == "1":
        note(trace)
    words = f"{type(error).__name__}: {error}"
    where = _kept(trace)
    if where is None:
        return MusterError(words, hint=f"run it again with {DEBUG_VARIABLE}=1 and report what it prints")
    return MusterError(words, hint=f"report it with the last entry of {where}")


def _kept(trace: str) -> Path | None:
    """The file to which the traceback was appended (mode 0600); None where that could not be done."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    file = Path(state) / "muster" / "faults.log"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        at = now_utc().isoformat(timespec="seconds")
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as log:
            log.write(f"--- {at} muster {__version__}: {' '.join(sys.argv[1:])}\n{trace}")
    except OSError:
        return None
    return file


def tell(error: MusterError, *, as_json: bool) -> int:
    """Print an error for people (standard error) and, with --json, for scripts (standard output); its exit code."""
    if as_json:
        body = {"code": error.code, "summary": error.summary, "message": error.message, "hint": error.hint}
        say(envelope("error", body))
    note(f"{error.code} {error.summary}:")
    for line in error.message.splitlines():
        note(f"  {line}")
    if error.hint:
        note(f"  hint: {error.hint}")
    return error.exit_code
