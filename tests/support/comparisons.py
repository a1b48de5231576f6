"""How an expectation of the index of samples is compared with parsed facts, and which facts it rests on.

`tests/fixtures/captures/mapping.yaml` names the comparisons and says what each means. All values are texts; a comparison notes every
path it looked at, so that a test can take each away and see it fail.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.model.fact import FactValue, Unknown


class Looked:
    """The facts of one sample, and the paths that a comparison has looked at."""

    def __init__(self, facts: Mapping[str, FactValue], sample: Mapping[str, Any], text: str = "") -> None:
        self._facts = facts
        self.sample = sample
        self.text = text
        self.paths: list[str] = []

    def get(self, path: str) -> FactValue | None:
        if path in self._facts:
            self.paths.append(path)
        return self._facts.get(path)

    def word(self, path: str) -> str:
        """The value as the index writes it; `None` where there is none."""
        value = self.get(path)
        return value.why if isinstance(value, Unknown) else shown(value)

    def members(self, kind: str) -> list[str]:
        """The keys of `kind[<key>]`, in the order of the output."""
        return list(
            dict.fromkeys(path[len(kind) + 1 : path.index("]")] for path in self._facts if path.startswith(f"{kind}["))
        )

    def values(self, kind: str, field: str) -> list[str] | None:
        """Each member's value; None when there is no member, or one lacks it."""
        paths = [f"{kind}[{key}].{field}" for key in self.members(kind)]
        words = [self.word(path) for path in paths]
        return words if paths and all(path in self._facts for path in paths) else None


def shown(value: FactValue | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def plain(expected: object) -> str:
    """`[N/A]` and `N/A` are one answer."""
    text = str(expected)
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def holds(comparisons: Mapping[str, Any], expected: Any, looked: Looked) -> bool:
    """Whether all comparisons of one key hold for what is expected of it."""
    return bool(comparisons) and all(COMPARISONS[name](about, expected, looked) for name, about in comparisons.items())


def _is(path: str, expected: Any, looked: Looked) -> bool:
    value = looked.get(path)
    return value is not None and not isinstance(value, Unknown) and shown(value) == plain(expected)


def _is_list(path: str, expected: Sequence[str], looked: Looked) -> bool:
    value = looked.get(path)
    return isinstance(value, tuple) and sorted(value) == sorted(expected)


def _only(path: str, expected: str, looked: Looked) -> bool:
    return looked.get(path) == (expected,)


def _number(path: str, expected: str, looked: Looked) -> bool:
    value = looked.get(path)
    return isinstance(value, str) and float(value) == float(expected)


def _each(about: Mapping[str, str], expected: Any, looked: Looked) -> bool:
    values = looked.values(about["of"], about["field"])
    wanted = ", ".join(expected) if isinstance(expected, list) else about.get("as", "{}").format(plain(expected))
    return values is not None and set(values) == {wanted}


def _counted(about: Mapping[str, Any], expected: Any, looked: Looked) -> bool:
    keys = looked.members(about["of"])
    paths = [[f"{about['of']}[{key}].{field}" for field in about["fields"]] for key in keys]
    # The index writes a pair that is not there as None/None; `None` alone is a value.
    missing = "None" if len(about["fields"]) > 1 else "(absent)"
    seen = Counter(
        "/".join(missing if looked.get(path) is None else looked.word(path) for path in each) for each in paths
    )
    if isinstance(expected, str):
        return set(seen) == {expected}
    wanted: Counter[str] = Counter()
    for words, count in expected.items():
        wanted[_ib(words) if about.get("as") == "ib" else words] += int(count)
    return seen == wanted


def _ib(words: str) -> str:
    """`4: ACTIVE` as ibstat writes it."""
    word = words.partition(": ")[2]
    return word.capitalize() if word.isupper() else word


def _distinct(about: Mapping[str, str], expected: Sequence[str], looked: Looked) -> bool:
    values = looked.values(about["of"], about["field"])
    return values is not None and set(values) == set(expected)


def _first(about: Mapping[str, str], expected: str, looked: Looked) -> bool:
    keys = looked.members(about["of"])
    return bool(keys) and looked.word(f"{about['of']}[{keys[0]}].{about['field']}") == expected


def _sum(about: Mapping[str, str], expected: str, looked: Looked) -> bool:
    values = looked.values(about["of"], about["field"])
    return values is not None and sum(int(value) for value in values) == int(expected)


def _whether(about: Mapping[str, str], expected: str, looked: Looked) -> bool:
    values = looked.values(about["of"], about["field"])
    return values is not None and str(about["value"] in values).lower() == expected


def _grouped(about: Mapping[str, str], expected: Any, looked: Looked) -> bool:
    keys = looked.members(about["of"])
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(looked.word(f"{about['of']}[{key}].{about['field']}"), []).append(key)
    return groups == expected if isinstance(expected, dict) else set(groups) == {expected}


def _which(about: Mapping[str, Any], expected: Sequence[str], looked: Looked) -> bool:
    kind, found = about["of"], []
    for key in looked.members(kind):
        words = [looked.word(f"{kind}[{key}].{field}") for field in about["fields"]]
        name = looked.word(f"{kind}[{key}].{about['show']}")
        if "None" in words or name == "None":
            return False
        if about.get("value") in words or ("over" in about and sum(int(word) for word in words) > int(about["over"])):
            found.append(name)
    return found == list(expected)


def _says(about: Mapping[str, Mapping[str, Any]], expected: str, looked: Looked) -> bool:
    rests_on = about.get(expected)
    return bool(rests_on) and all(_stands(path, wanted, looked) for path, wanted in (rests_on or {}).items())


def _stands(path: str, wanted: Any, looked: Looked) -> bool:
    if "[*]" in path:
        kind, _, field = path.partition("[*].")
        keys = looked.members(kind)
        return bool(keys) and all(_stands(f"{kind}[{key}].{field}", wanted, looked) for key in keys)
    value = looked.get(path)
    if not isinstance(wanted, Mapping):
        return value is not None and not isinstance(value, Unknown) and shown(value) == wanted
    ((how, words),) = wanted.items()
    return {
        "absent": value is None,
        "unknown": isinstance(value, Unknown) and words in value.why,
        "starts": isinstance(value, str) and value.startswith(words),
        "has": value is not None and not isinstance(value, Unknown) and words in shown(value),
    }[how]


def _is_or_says(about: Mapping[str, Any], expected: Any, looked: Looked) -> bool:
    if expected in about["says"]:
        return _says(about["says"], expected, looked)
    return _is(about["path"], expected, looked)


def _header_words(path: str, expected: str, looked: Looked) -> bool:
    value = looked.get(path)
    return isinstance(value, tuple) and " / ".join(value) == expected


def _none_is_unknown(path: str, expected: str, looked: Looked) -> bool:
    value = looked.get(path)
    return isinstance(value, Unknown) if expected == "0" else shown(value) == expected


def _deprecated_or(path: str, expected: str, looked: Looked) -> bool:
    """From 610 on the line only says where the version went: it is named as such, and the version is the other line's."""
    if not expected.startswith("Deprecated"):
        return _is(path, expected, looked)
    label = {"gpu.driver_version": "DRIVER", "gpu.cuda_version": "CUDA"}[path]
    named, value = looked.get("report.deprecated"), looked.get(path)
    return isinstance(named, tuple) and label in named and isinstance(value, str) and value[0].isdigit()


def _sample(about: Mapping[str, str], expected: str, looked: Looked) -> bool:
    return str(looked.word(about["path"]) == looked.sample[about["field"]]).lower() == expected


def _all_pairs(path: str, expected: str, looked: Looked) -> bool:
    """Every two GPUs are joined by the one kind of link that there is."""
    kinds = looked.get(path)
    kind = kinds[0] if isinstance(kinds, tuple) and len(kinds) == 1 else ""
    keys = looked.members("gpu")
    pairs = [f"link[GPU{a}-GPU{b}].kind" for place, a in enumerate(keys) for b in keys[place + 1 :]]
    return bool(pairs and kind) and expected.startswith(kind) and all(looked.word(pair) == kind for pair in pairs)


def _dkms_states(kind: str, expected: Sequence[str], looked: Looked) -> bool:
    states, warnings = looked.values(kind, "state"), looked.values(kind, "warning")
    if states is None or warnings is None:
        return False
    return {
        state + " with WARNING" * (warning == "true") for state, warning in zip(states, warnings, strict=True)
    } == set(expected)


def _xids(kind: str, expected: Mapping[str, str], looked: Looked) -> bool:
    keys = looked.members(kind)
    return {key.replace("/", " "): looked.word(f"{kind}[{key}].count") for key in keys} == expected


def _xids_by_number(kind: str, expected: Mapping[str, str], looked: Looked) -> bool:
    seen: Counter[str] = Counter()
    for key in looked.members(kind):
        count = looked.get(f"{kind}[{key}].count")
        seen[key.rpartition("/")[2]] += count if isinstance(count, int) else 0
    return {number: str(count) for number, count in seen.items()} == expected


def _in_line(field: str, expected: str, looked: Looked) -> bool:
    """What stands in the line was read from it; what was only known of the machine was not made up."""
    keys = looked.members("event")
    words = [looked.word(f"event[{key}].{field}") for key in keys]
    return (
        words == [expected]
        if re.search(rf"\b{re.escape(expected)}\b", looked.text)
        else bool(keys) and expected not in words
    )


def _determined_by(fields: Sequence[str], expected: str, looked: Looked) -> bool:
    """Knowledge has it, not the line: lines of equal facts must have equal expectations. The caller holds them against each other."""
    (key,) = looked.members("event")
    return looked.word(f"event[{key}].{fields[0]}").isdigit() and bool(expected)


COMPARISONS: Mapping[str, Callable[[Any, Any, Looked], bool]] = {
    "is": _is, "is_list": _is_list, "only": _only, "number": _number, "each": _each, "counted": _counted, "distinct": _distinct,
    "first": _first, "sum": _sum, "whether": _whether, "grouped": _grouped, "which": _which, "says": _says, "is_or_says": _is_or_says,
    "header_words": _header_words, "none_is_unknown": _none_is_unknown, "deprecated_or": _deprecated_or, "sample": _sample,
    "all_pairs": _all_pairs, "dkms_states": _dkms_states, "xids": _xids, "xids_by_number": _xids_by_number, "in_line": _in_line,
    "determined_by": _determined_by,
}  # fmt: skip
