"""The commands by name, what each is for in a line, and the module that holds it: the one place of late imports.

`muster --help` reads this table and imports nothing else; a command loads its own module alone.
"""

import importlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its line of help, its module and the app in it, and under which heading it stands."""

    heading: str
    help: str
    module: str
    app: str


LOOK, SAY, CHANGE, MORE = "Look", "Say", "Change", "More"

COMMANDS: Mapping[str, Entry] = {
    "collect": Entry(
        LOOK, "Look at every node over SSH and keep what was seen. Changes nothing.", "collect", "collect"
    ),
    "status": Entry(LOOK, "Show the fleet: pools, drivers, what is unknown.", "look", "status"),
    "check": Entry(LOOK, "Find what disagrees: inside a node, in a pool, with what is wanted.", "look", "check"),
    "watch": Entry(
        LOOK, "Look again and again, print what is new and what is gone, and alert on it.", "watch", "watch"
    ),
    "validate": Entry(
        LOOK, "Exercise the GPUs of an idle node and check what they compute and how fast.", "validate", "validate"
    ),
    "nodes": Entry(LOOK, "List nodes, show one with all its facts, or change one alone.", "nodes", "nodes"),
    "facts": Entry(LOOK, "List what Muster can see on a node and how it looks.", "look", "facts"),
    "why": Entry(
        SAY,
        "Say why a node or pool can or cannot carry a driver; why a plan or rollout stands as it does.",
        "why",
        "why",
    ),
    "plan": Entry(SAY, "Propose a change, as a plan. Changes nothing.", "plans", "plan"),
    "plans": Entry(SAY, "List, show, compare, lint and approve plans.", "plans", "plans"),
    "knowledge": Entry(
        SAY, "Show, check and extend what Muster knows of drivers, CUDA and GPUs.", "knowledge", "knowledge"
    ),
    "apply": Entry(CHANGE, "Carry out an approved plan, or go on with it after a kill.", "change", "apply"),
    "rollouts": Entry(CHANGE, "List, show and watch rollouts.", "change", "rollouts"),
    "lease": Entry(CHANGE, "Show who holds which node; give one back by hand.", "lease", "lease"),
    "serve": Entry(CHANGE, "Carry all rollouts in this process.", "change", "serve"),
    "audit": Entry(CHANGE, "Show and verify what was done, by whom, when.", "change", "audit"),
    "demo": Entry(
        MORE, "A fleet of twelve pretended nodes on this machine: one bad driver, one good one.", "demo", "demo"
    ),
    "version": Entry(MORE, "Print the version.", "say", "version"),
}


def load(name: str) -> Callable[..., Any]:
    """The app of a command."""
    entry = COMMANDS[name]
    app: Callable[..., Any] = getattr(importlib.import_module(f"muster.cli.{entry.module}"), f"{entry.app}_app")
    return app


def typed(app: object) -> Callable[..., Any]:
    """An app as Typer reads and explains it."""
    made: Callable[..., Any] = importlib.import_module("muster.cli.typed").app(app)
    return made


def quickly(app: Callable[..., Any], words: Sequence[str]) -> bool:
    """Run a command whose words are plain without Typer's reader; False, with nothing done, when they are not. Raises SystemExit at its end."""
    done: bool = importlib.import_module("muster.cli.quick").run(app, words)
    return done


def run_in_loop(work: Coroutine[Any, Any, int]) -> int:
    """The result of a coroutine, run in an event loop of its own."""
    done: int = importlib.import_module("asyncio").run(work)
    return done


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, by the library for it, which most commands with --json never need."""
    lines: Iterator[str] = importlib.import_module("muster.cli.tables").lines(columns, rows)
    return lines
