"""The compiled form says what the files say, and is used only where nobody else can have written it."""

import json
import os
from dataclasses import fields
from pathlib import Path

import pytest

from muster.knowledge import loader
from muster.knowledge.base import read_base
from muster.knowledge.compiled import restored
from muster.knowledge.compiling import compiled
from muster.knowledge.lazy import LazyMap, LazySequence
from muster.knowledge.listing import changes, views
from muster.knowledge.records import Limit
from muster.knowledge.schema import KnowledgeBase

TEXTS = {name: content.decode() for name, content in loader.packaged().items()}
READ = read_base(TEXTS)
FORM = compiled(READ, "key")
FEW = {name: loader.packaged()[name] for name in ("driver_releases.yaml", "limits.yaml")}
"""Enough of the base for the laws of keeping it: the whole takes its time."""


def test_what_was_compiled_is_what_was_read() -> None:
    again = restored(FORM, "key")
    assert again is not None
    assert changes(READ, again) == ()
    for field in fields(KnowledgeBase):
        if field.name not in ("more", "package_sets"):
            assert getattr(again, field.name) == getattr(READ, field.name), field.name
    assert tuple(again.package_sets) == tuple(READ.package_sets)
    assert [list(view.records) for view in views(again)] == [list(view.records) for view in views(READ)]


def test_the_compiled_form_is_plain_json_line_by_line() -> None:
    lines = FORM.split("\n")
    head = json.loads(lines[0])
    assert head["revision"] == READ.revision
    assert len(lines) == len(head["parts"]) + 1
    for line in lines[1:]:
        table, keys, records = json.loads(line)
        assert len(keys) == len(records)
        assert all(isinstance(sources, list) for sources, *_ in table)


def damaged() -> dict[str, str]:
    half = len(FORM) // 2
    return {
        "cut": FORM[:half],
        "a byte changed": FORM.replace("580.126.20", "580.126.21", 1),
        "nothing": "",
        "no JSON": "\x80\x04K\x01.",
        "another form": FORM.replace("muster-knowledge/1", "muster-knowledge/0", 1),
        "a list": "[]\n",
        "lines lost": FORM.rpartition("\n")[0],
    }


@pytest.mark.parametrize("what", damaged())
def test_a_damaged_form_is_not_used(what: str) -> None:
    assert restored(damaged()[what], "key") is None


def test_a_form_of_other_content_is_not_used() -> None:
    assert restored(FORM, "other") is None


def test_a_base_is_compiled_once_and_then_read_from_the_cache(tmp_path: Path) -> None:
    files = FEW
    first = loader.read_cached(files, tmp_path / "cache")
    (form,) = (tmp_path / "cache").iterdir()
    assert form.stat().st_mode & 0o777 == 0o600
    assert form.parent.stat().st_mode & 0o777 == 0o700
    second = loader.read_cached(files, tmp_path / "cache")
    assert isinstance(second.releases, LazyMap)
    assert not isinstance(first.releases, LazyMap)
    assert changes(first, second) == ()
    assert list((tmp_path / "cache").iterdir()) == [form]


@pytest.mark.parametrize("spoil", ["cut", "others may write", "a link", "a folder"])
def test_a_form_that_is_damaged_or_not_ours_alone_is_made_anew(tmp_path: Path, spoil: str) -> None:
    files, cache = FEW, tmp_path / "cache"
    before = loader.read_cached(files, cache)
    (form,) = cache.iterdir()
    whole = form.read_text()
    if spoil == "cut":
        form.write_text(whole[:1000])
    elif spoil == "others may write":
        form.chmod(0o666)
    elif spoil == "a link":
        form.rename(tmp_path / "elsewhere")
        form.symlink_to(tmp_path / "elsewhere")
    else:
        form.unlink()
        form.mkdir()
    base = loader.read_cached(files, cache)
    assert not isinstance(base.releases, LazyMap)
    assert base.revision == before.revision
    if spoil != "a folder":
        assert form.read_text() == whole
        assert not form.is_symlink()


def test_without_a_place_to_keep_it_the_files_are_read_each_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    base = loader.read_cached(FEW, tmp_path / "file" / "cache")
    assert "rubin" in base.of(Limit)


def test_old_forms_are_dropped(tmp_path: Path) -> None:
    for number in range(6):
        old = tmp_path / f"knowledge-{number}.jsonl"
        old.write_text("")
        os.utime(old, (number, number))
    (tmp_path / "other.txt").write_text("")
    loader.read_cached(FEW, tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == loader.MOST_FORMS + 1
    assert "other.txt" in left and "knowledge-5.jsonl" in left and "knowledge-0.jsonl" not in left


def test_the_key_follows_every_byte_of_every_file() -> None:
    files = dict(loader.packaged())
    key = loader.content_key(files)
    assert loader.content_key(dict(reversed(files.items()))) == key
    for name, content in files.items():
        assert loader.content_key({**files, name: content + b"#"}) != key
    assert loader.content_key({**files, "/site/xid.yaml": b""}) != key


def test_a_lazy_mapping_is_made_once_and_answers_like_a_dict() -> None:
    made: list[int] = []

    def make() -> dict[str, int]:
        made.append(1)
        return {"b": 2, "a": 1}

    lazy = LazyMap(make)
    assert not made
    assert lazy["a"] == 1 and lazy.get("c") is None and "b" in lazy
    assert list(lazy) == ["b", "a"] == list(lazy.keys())
    assert list(lazy.values()) == [2, 1] and dict(lazy.items()) == lazy == {"a": 1, "b": 2}
    assert len(lazy) == 2 and made == [1]


def test_a_lazy_sequence_is_made_once_and_answers_like_a_tuple() -> None:
    made: list[int] = []

    def make() -> tuple[int, ...]:
        made.append(1)
        return (3, 4, 5)

    lazy = LazySequence(make)
    assert not made
    assert lazy[0] == 3 and lazy[1:] == (4, 5) and list(lazy) == [3, 4, 5] and len(lazy) == 3 and 4 in lazy
    assert made == [1]
