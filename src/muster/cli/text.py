"""Forms of text that several commands print, beside those of `output`."""

import csv
import io
from collections.abc import Sequence

from muster.cli.output import note, say

SHOWN_NAMES = 4
MOST_WARNINGS = 20


def few_names(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = f" +{len(names) - SHOWN_NAMES}" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def say_csv(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Comma-separated values (RFC 4180, but with plain newlines) on standard output, the names of the columns first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    say(text.getvalue().rstrip("\n"))


def say_warnings(warnings: Sequence[str]) -> None:
    """What could not be used, on standard error; of very many the first ones."""
    for warning in warnings[:MOST_WARNINGS]:
        note(f"warning: {warning}")
    if len(warnings) > MOST_WARNINGS:
        note(f"warning: and {len(warnings) - MOST_WARNINGS} more; --json shows all")
