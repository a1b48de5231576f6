"""A table as `nvidia-smi --query-... --format=csv` prints it: one header line, cells parted by comma and blank, units in the header. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

MOST_ROWS = 20_000
MOST_COLUMNS = 2_000

_COLUMN = re.compile(r"([A-Za-z][A-Za-z0-9_.]*)(?: \[([^\]]{1,16})\])?")


def columns(line: str) -> tuple[tuple[str, str], ...] | None:
    """(name, unit) of each cell of a header line; None when it is no header."""
    cells = line.split(",")[:MOST_COLUMNS]
    matches = [_COLUMN.fullmatch(cell.strip()) for cell in cells]
    if not line.strip() or not all(matches):
        return None
    return tuple((match[1], match[2] or "") for match in matches if match)


def rows(
    lines: Sequence[str], header: Sequence[tuple[str, str]], *, free: str | None = None
) -> Iterator[Mapping[str, str]]:
    """Each line with as many cells as the header, by column name, with its unit. Of the column `free` commas belong to the value."""
    names = [name for name, _ in header]
    place = names.index(free) if free in names else -1
    for line in lines[:MOST_ROWS]:
        cells = [cell.strip() for cell in line.split(", ", MOST_COLUMNS * 2)]
        spare = len(cells) - len(header)
        if spare > 0 and place >= 0:
            cells[place : place + spare + 1] = [", ".join(cells[place : place + spare + 1])]
        elif line.endswith(",") and spare == -1:
            cells[-1] = cells[-1].rstrip(",")
            cells.append("")
        if len(cells) == len(header):
            yield {name: _with_unit(cell, unit) for cell, (name, unit) in zip(cells, header, strict=True)}


def _with_unit(cell: str, unit: str) -> str:
    """With `nounits` the unit stands in the header alone."""
    return f"{cell} {unit}" if unit and re.fullmatch(r"-?\d{1,18}(\.\d{1,9})?", cell) else cell


def split(text: str) -> tuple[tuple[tuple[str, str], ...], list[str]] | None:
    """The header of a text and the lines below it, empty ones left out; None where no header is found among its first lines."""
    lines = [line for line in text.split("\n") if line.strip()]
    for place, line in enumerate(lines[:5]):
        header = columns(line)
        if header is not None and (len(header) > 1 or place == 0):
            return header, lines[place + 1 :]
    return None
