"""The real clock, ids and chance."""

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.backends.system import SeededRng, SystemClock, UlidIds

CROCKFORD = set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")


class Hand:
    """A clock that stands where it was put."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        raise AssertionError("ids need no monotonic time")

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("ids do not wait")


def test_an_id_is_its_kind_and_a_ulid_of_its_time() -> None:
    ids = UlidIds(Hand(datetime(2016, 7, 30, 23, 54, 10, 259000, UTC)), lambda n: b"\xff" * n)
    assert ids.new("run") == "run-01ARZ3NDEK" + "Z" * 16


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=50))
def test_ids_rise_in_the_order_they_are_made_however_the_clock_moves(steps: list[int]) -> None:
    clock = Hand(datetime(2026, 3, 1, tzinfo=UTC))
    ids = UlidIds(clock)
    made = []
    for step in steps:
        clock.at += timedelta(milliseconds=step)
        made.append(ids.new("run"))
    assert made == sorted(set(made))
    assert all(len(each) == 30 and set(each[4:]) <= CROCKFORD for each in made)


def test_a_forked_child_does_not_count_on_from_its_parents_id() -> None:
    code = """
import os
from muster.backends.system import SystemClock, UlidIds
ids = UlidIds(SystemClock()); ids.new("a")
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.write(write, ids.new("run")[-16:].encode()); os._exit(0)
os.waitpid(child, 0)
assert os.read(read, 99).decode() != ids.new("run")[-16:]
"""
    path = os.pathsep.join(each for each in sys.path if each)
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


@given(st.text(), st.text(), st.lists(st.text(), max_size=8))
def test_chance_is_a_permutation_that_the_seed_key_and_items_alone_decide(
    seed: str, key: str, items: list[str]
) -> None:
    drawn = SeededRng(seed).shuffled(key, items)
    assert sorted(drawn) == sorted(items)
    assert SeededRng(seed).shuffled(key, items[::-1]) == drawn


def test_one_more_draw_elsewhere_changes_nothing_here() -> None:
    nodes = [f"n{number}" for number in range(50)]
    rng = SeededRng("7")
    first = rng.shuffled("canary", nodes)
    rng.shuffled("other", nodes)
    assert rng.shuffled("canary", nodes) == first
    assert rng.shuffled("other", nodes) != first
    assert SeededRng("8").shuffled("canary", nodes) != first
    assert SeededRng("7").shuffled("canary", nodes[:25]) == tuple(each for each in first if each in nodes[:25])


def test_chance_is_the_same_on_every_machine() -> None:
    assert SeededRng("muster").shuffled("canary", ["a", "b", "c", "d", "e"]) == ("d", "a", "e", "b", "c")


def test_every_item_may_come_first() -> None:
    firsts = [SeededRng(str(seed)).shuffled("k", ["a", "b", "c", "d"])[0] for seed in range(400)]
    assert all(firsts.count(each) == pytest.approx(100, abs=40) for each in "abcd")


def test_the_clock_tells_utc_never_goes_back_and_waits_at_least_as_long_as_asked() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    asyncio.run(clock.sleep(0.01))
    asyncio.run(clock.sleep(-1))
    assert clock.monotonic() - before >= 0.009
    assert clock.now().utcoffset() == timedelta(0)
