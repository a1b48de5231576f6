"""Folds many node names into a few words: `gpu[001-064,070],login1`. Pure."""

import re
from collections.abc import Iterable, Sequence

_NUMBERED = re.compile(r"(.*?)([0-9]+)(\D*)", re.ASCII | re.DOTALL)
_MOST_DIGITS = 15


def folded(names: Iterable[str], most: int = 0) -> str:
    """The names with runs of numbers folded; of more than `most` runs (0: no bound) the first ones, and how many names are not shown.

    Each name can be read back out of the text when none is left out. Numbers of one width alone are folded together: `n9` and `n10` are of two
    widths, `n09` and `n10` of one.
    """
    room, hidden = most, 0
    pieces: list[str] = []
    for key, runs in _runs(names):
        shown = runs[:room] if most else runs
        room -= len(shown)
        hidden += sum(last - first + 1 for first, last in runs[len(shown) :])
        if shown:
            pieces.append(key if isinstance(key, str) else _piece(key, shown))
    return ", ".join(pieces) + (f" +{hidden}" if hidden else "")


_Key = tuple[str, int, str] | str
_Run = tuple[int, int]


def _runs(names: Iterable[str]) -> list[tuple[_Key, list[_Run]]]:
    """What names have in common beside their number, in the order in which it first comes, with the runs; without a number, one run."""
    found: dict[_Key, set[int]] = {}
    for name in names:
        matched = _NUMBERED.fullmatch(name)
        if matched is None or len(matched[2]) > _MOST_DIGITS or "[" in name or "," in name:
            found.setdefault(name, {0})
        else:
            found.setdefault((matched[1], len(matched[2]), matched[3]), set()).add(int(matched[2]))
    return [(key, _joined(sorted(numbers))) for key, numbers in found.items()]


def _joined(numbers: Sequence[int]) -> list[_Run]:
    runs: list[_Run] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _piece(key: tuple[str, int, str], runs: Sequence[_Run]) -> str:
    before, width, after = key
    texts = [f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}" for first, last in runs]
    if len(runs) == 1 and runs[0][0] == runs[0][1]:
        return f"{before}{texts[0]}{after}"
    return f"{before}[{','.join(texts)}]{after}"
