"""Folds what is alike into a few words: many names into `gpu[001-064,070],login1`, sentences that differ in one place into one. Pure."""

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


def joined(sentences: Sequence[str], most: int = 0) -> str:
    """Sentences that differ in one place as one with all that stands there, in their order; of more than `most` (0: no bound) the first ones,
    and how many are not shown. Sentences that have neither their first nor their last word in common follow each other.
    """
    words = [sentence.split(" ") for sentence in dict.fromkeys(sentences)]
    before = _alike(words)
    after = _alike([each[len(before) :][::-1] for each in words])[::-1]
    middles = [" ".join(each[len(before) : len(each) - len(after)]) for each in words]
    if (not before and not after) or not all(middles):
        middles, before, after = list(dict.fromkeys(sentences)), [], []
    shown = middles[:most] if most else middles
    hidden = len(middles) - len(shown)
    between = ", ".join(shown) if before or after else "; ".join(shown)
    return " ".join([*before, between + (f" +{hidden}" if hidden else ""), *after])


def _alike(words: Sequence[Sequence[str]]) -> list[str]:
    """The first words that all have in common."""
    found: list[str] = []
    for column in zip(*words, strict=False):
        if len(set(column)) > 1:
            break
        found.append(column[0])
    return found
