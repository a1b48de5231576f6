"""Strict YAML text to values: nothing is guessed, nothing is lost, and no text costs more than its length."""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from muster.documents import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FAULTS,
    Fault,
    Map,
    Node,
    Reader,
    Scalar,
    Sequence,
    compose,
    parse,
    plain,
    refused,
)
from muster.model.errors import DocumentFaults


def faults_of(text: str) -> list[str]:
    with pytest.raises(DocumentFaults) as raised:
        parse(text, "x.yaml")
    return str(raised.value).splitlines()


@pytest.mark.parametrize(
    "text",
    ["580.10", "13.0", "1:30", "on", "off", "yes", "no", "true", "2026-11-30", "0x1f", "0o17", "1_000", "1e3", ".inf",
     "nUll", "None", "535.104.05", "010"],
)  # fmt: skip
def test_a_plain_scalar_stays_the_text_that_was_written(text: str) -> None:
    assert plain(parse(f"a: {text}", "x.yaml")) == {"a": text}


@pytest.mark.parametrize("text", ["null", "Null", "NULL", "~", ""])
def test_only_a_plain_null_is_none(text: str) -> None:
    assert plain(parse(f"a: {text}", "x.yaml")) == {"a": None}
    assert plain(parse(f"a: '{text}'", "x.yaml")) == {"a": text}


def test_every_node_knows_its_line_and_column() -> None:
    root = parse("a:\n  - 1\n  - {b: 2}\n", "x.yaml")
    assert isinstance(root, Map)
    items = root.get("a")
    assert isinstance(items, Sequence)
    assert (root.entries[0].line, root.entries[0].column) == (1, 1)
    assert [(item.line, item.column) for item in items.items] == [(2, 5), (3, 5)]
    inner = items.items[1]
    assert isinstance(inner, Map)
    assert inner.entries[0].value == Scalar("2", 3, 9)


def test_a_key_that_stands_twice_is_refused_with_both_lines() -> None:
    assert faults_of("a: 1\nb: 2\na: 3\n") == ["x.yaml:3: key 'a' stands twice, first on line 1 (keep one of the two)"]


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("a: &x 1", 1, "anchor"),
        ("a: &x [1]\nb: *x", 1, "anchor"),
        ("a: 1\n<<: {b: 1}", 2, "merge key"),
        ("a: !!int 1", 1, "tag"),
        ("a: !thing {b: 1}", 1, "tag"),
        ("a: 1\n? [b]\n: c", 2, "key must be"),
        ("a: 1\n~: c", 2, "key must be"),
        ("a: 1\n---\nb: 1", 2, "second document"),
        ("a: 'b", 1, "not valid YAML"),
        ("a: 1\n\tb: 2", 2, "not valid YAML"),
        ("a: \x07", 1, "character"),
        ("a: 1\nb: \ud800", 2, "UTF-8"),
        ("", 1, "empty"),
        ("# nothing", 1, "empty"),
    ],
)
def test_what_is_not_plain_is_refused_at_its_line(text: str, line: int, word: str) -> None:
    first = faults_of(text)[0]
    assert first.startswith(f"x.yaml:{line}: ")
    assert word in first


def test_all_faults_of_form_are_told_at_once() -> None:
    assert len(faults_of("a: &x 1\na: 2\nb: *x\nc: !t 3\n")) == 4


def test_a_laughing_document_costs_its_length() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    begin = time.process_time()
    faults_of("\n".join(lines))
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "? " * 100_000])
def test_depth_is_bounded_by_a_number_and_not_by_a_crash(text: str) -> None:
    assert f"nested deeper than {MAX_DEPTH} levels" in faults_of(text)[0]


def test_the_deepest_allowed_document_is_read() -> None:
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH, "x.yaml")


def test_size_is_bounded() -> None:
    assert f"at most {MAX_BYTES} are read" in faults_of("#" * (MAX_BYTES + 1))[0]


def test_faults_beyond_the_bound_are_counted() -> None:
    lines = faults_of("\n".join(["a: 1"] * (MAX_FAULTS + 6)))
    assert len(lines) == MAX_FAULTS + 1
    assert lines[-1] == "x.yaml: 5 more faults not shown"


def test_a_byte_order_mark_and_windows_line_ends_change_nothing() -> None:
    assert parse("\ufeffa: 1\r\nb: 2\r\n", "x.yaml") == parse("a: 1\nb: 2\n", "x.yaml")


def test_faults_are_sorted_by_line_and_carry_file_and_hint() -> None:
    error = refused("f.yaml", [Fault(7, 1, "late", "mend it"), Fault(2, 9, "early"), Fault(2, 9, "early")])
    assert error.faults == ("f.yaml:2: early", "f.yaml:7: late (mend it)")
    assert str(error) == "\n".join(error.faults)
    assert error.exit_code == 3


def test_a_reader_collects_unknown_missing_wrong_and_bad() -> None:
    reader = Reader(compose("name: [a]\ncolour: blu\nsize: big\nwieght: 3\n", "x.yaml"))
    fields = reader.fields(reader.root, "thing", ("name", "colour", "size", "weight", "age"), required=("age",))
    assert fields.text("name", "none") == "none"
    assert fields.choice("colour", {"blue": 1, "red": 2}, 2) == 2
    assert fields.value("size", int, 0) == 0
    with pytest.raises(DocumentFaults) as raised:
        reader.finish()
    assert str(raised.value).splitlines() == [
        "x.yaml:1: thing lacks the key 'age' (required: age)",
        "x.yaml:1: thing: name must be text, not a list",
        "x.yaml:2: thing: colour cannot be 'blu' (did you mean blue?)",
        "x.yaml:3: thing: size: invalid literal for int() with base 10: 'big'",
        "x.yaml:4: thing has no key 'wieght' (did you mean weight?)",
    ]


def test_a_reader_without_faults_finishes() -> None:
    reader = Reader(compose("a: 1", "x.yaml"))
    assert reader.fields(reader.root, "thing", ("a",)).value("a", int, 0) == 1
    reader.finish()


@given(st.text())
def test_any_text_is_a_tree_or_faults(text: str) -> None:
    try:
        plain(parse(text, "x.yaml"))
    except DocumentFaults as faults:
        assert faults.faults


TREES = st.recursive(
    st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


def strings(tree: Any) -> Any:
    if isinstance(tree, list):
        return tuple(map(strings, tree))
    return {key: strings(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


@given(st.dictionaries(st.text(), TREES, min_size=1))
def test_what_yaml_writes_is_read_back_whole(tree: dict[str, Any]) -> None:
    text = yaml.safe_dump(tree, default_style='"', default_flow_style=False)
    text = text.replace('!!null "null"', "null")
    assert plain(parse(text, "x.yaml")) == strings(tree)


def test_the_tree_agrees_with_pyyaml_on_the_worked_example() -> None:
    text = (Path(__file__).parent.parent / "scenarios" / "policy" / "worked_example.yaml").read_text()

    def tuples(node: Any) -> Any:
        if isinstance(node, list):
            return tuple(map(tuples, node))
        if isinstance(node, dict):
            return {key: tuples(value) for key, value in node.items()}
        return None if node == "null" else node

    root: Node = parse(text, "x.yaml")
    assert plain(root) == tuples(yaml.load(text, Loader=yaml.BaseLoader))
