"""Tables as lines of text: wrapped to the terminal, unwrapped when piped. Prints nothing itself."""

import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table


def lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The table's lines, with the names of the columns first."""
    width = None if sys.stdout.isatty() else 400
    console = Console(width=width, highlight=False, soft_wrap=False)
    shown = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(_escaped(cell) for cell in row))
    with console.capture() as printed:
        console.print(shown)
    for line in printed.get().splitlines():
        yield line.rstrip() if width else line


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
