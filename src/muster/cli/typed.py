"""Makes Typer's commands of ours, for help, for mistakes and for what `quick` does not read. Loaded by `_lazy` alone: Typer is slow to load."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from muster.cli.declare import App, BadParameter, Exit, Said


def app(declared: App) -> typer.Typer:
    """The Typer app that takes what `declared` says."""
    made = typer.Typer(
        help=declared.says, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=False
    )  # fmt: skip
    for each in declared.commands:
        made.command(each.name)(_typed(each.callback))
    return made


def _typed(callback: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(callback)
    def called(**values: Any) -> Any:
        try:
            return callback(**values)
        except Exit as end:
            raise typer.Exit(end.exit_code) from None
        except BadParameter as error:
            raise typer.BadParameter(error.message, param_hint=error.where) from None

    signature = inspect.signature(callback)
    hints = {name: _hint(hint) for name, hint in get_type_hints(callback, include_extras=True).items()}
    parameters = [each.replace(annotation=hints[name]) for name, each in signature.parameters.items()]
    called.__annotations__ = hints
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return called


def _hint(hint: Any) -> Any:
    """A type as Typer wants it, with what we say of it in Typer's words."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *said = get_args(hint)
    return Annotated[(kind, *(_words(each) if isinstance(each, Said) else each for each in said))]


def _words(said: Said) -> Any:
    if not said.names:
        return typer.Argument(help=said.says or None, metavar=said.metavar)
    return typer.Option(*said.names, help=said.says or None, metavar=said.metavar, envvar=said.envvar)
