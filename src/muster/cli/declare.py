"""How a command says what it takes: names, words and types, and nothing that must be loaded for it.

`quick` reads a plain command line by these; for all else `typed` makes Typer's own command of them, and loads Typer only then. It prints nothing
and knows no command.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from muster.cli._lazy import typed
from muster.model.frozen import dataclass

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Said:
    """An option by its names (`--json`), or without any an argument; its line of help, and what stands for its value there.

    `envvar` is the variable that gives the value where the line does not.
    """

    names: tuple[str, ...]
    says: str
    metavar: str | None
    envvar: str | None


def option(*names: str, says: str = "", metavar: str | None = None, envvar: str | None = None) -> Said:
    """An option: for `Annotated`, beside the type of its value."""
    return Said(names, says, metavar, envvar)


def argument(says: str = "", metavar: str | None = None) -> Said:
    """An argument in its place."""
    return Said((), says, metavar, None)


class Exit(Exception):
    """Ends a command with this code; everything is said."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.exit_code = code


class BadParameter(Exception):
    """What was asked for in the command line cannot be meant; nothing was done yet. `where` is the parameter, as the help names it."""

    def __init__(self, message: str, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where


@dataclass(frozen=True, slots=True)
class Command:
    """A command of an app: its word (None where the app is the command), and what carries it out."""

    name: str | None
    callback: Callable[..., Any]


class App:
    """One command, or the commands under one noun."""

    def __init__(self, says: str) -> None:
        self.says = says
        self.commands: list[Command] = []

    def command(self, name: str | None = None) -> Callable[[F], F]:
        """Adds a function as a command; its docstring is the help."""

        def add(callback: F) -> F:
            self.commands.append(Command(name, callback))
            return callback

        return add

    def __call__(self, *, args: Sequence[str], prog_name: str) -> None:
        """Run it as Typer reads `args`. Raises SystemExit at its end."""
        typed(self)(args=list(args), prog_name=prog_name)
