"""How every command takes its common options, runs, prints, and ends. No command prints or exits by other means."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from muster.control.bootstrap import now_utc
from muster.model.errors import MusterError

Fleet = Annotated[
    str | None,
    typer.Option("--fleet", help="The policy file; default $MUSTER_FLEET, ./fleet.yaml, /etc/muster/fleet.yaml."),
]
StorePath = Annotated[
    str | None, typer.Option("--store", help="The store; default $MUSTER_STORE, then under $XDG_STATE_HOME.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

INTERRUPTED = 130


def app(help_text: str) -> typer.Typer:
    """A Typer app in the house's manner."""
    return typer.Typer(
        help=help_text,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        no_args_is_help=False,
    )


def say(line: str = "") -> None:
    """One line on standard output; a reader that went away (`| head`) ends the command quietly."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(0) from None


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
    width = None if sys.stdout.isatty() else 400
    console = Console(width=width, highlight=False, soft_wrap=False)
    shown = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(_escaped(cell) for cell in row))
    console.print(shown)


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")


def run(work: Callable[[], Coroutine[Any, Any, int]], *, as_json: bool) -> None:
    """Run a command's coroutine and end with its exit code. An error of our tree becomes its message, hint and exit code."""
    try:
        code = asyncio.run(work())
    except MusterError as error:
        code = tell(error, as_json=as_json)
    except KeyboardInterrupt:
        note("interrupted")
        code = INTERRUPTED
    raise typer.Exit(code)


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
