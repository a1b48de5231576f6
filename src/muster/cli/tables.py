"""Tables as lines of text: wrapped to the terminal, unwrapped when piped. Prints nothing itself."""

import io
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table


def lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The table's lines, with the names of the columns first."""
    is_terminal = sys.stdout.isatty()
    printed = io.StringIO()
    console = Console(
        file=printed, force_terminal=is_terminal, width=None if is_terminal else 400, highlight=False, soft_wrap=False
    )
    shown = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(_escaped(cell) for cell in row))
    console.print(shown)
    for line in printed.getvalue().splitlines():
        yield line if is_terminal else line.rstrip()


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
