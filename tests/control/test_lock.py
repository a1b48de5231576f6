"""The carrier lock, between real processes."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from muster.control.lock import Carrier, CarrierLock
from muster.model.errors import StoreBroken
from tests.support.processes import python
from tests.support.time import StillClock

WORKER = "tests.support.lock_worker"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "muster.db.lock")


def test_one_holder_at_a_time_who_says_who_it_is(path: str) -> None:
    first, second = CarrierLock(path, StillClock()), CarrierLock(path, StillClock())
    assert first.holder() is None
    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    holder = second.holder()
    assert holder is not None
    assert (holder.host, holder.since) == (socket.gethostname(), "2026-03-01T08:00:00.000Z")
    first.release()
    assert second.holder() is None
    assert second.acquire()
    first.release()
    assert not first.acquire()


def test_the_lock_ends_with_its_holder_however_that_dies(path: str) -> None:
    ours = CarrierLock(path, StillClock())
    with python(WORKER, path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        holder = ours.holder()
        assert holder is not None
        assert holder.pid == process.pid
        assert not ours.acquire()
        process.kill()
        process.wait()
        assert ours.holder() is None
        assert ours.acquire()


def test_of_many_that_want_it_at_once_one_gets_it(path: str) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(python(WORKER, path)) for _ in range(6)]
        answers = [process.stdout.readline() for process in processes if process.stdout is not None]
    assert sorted(answers) == ["False\n"] * 5 + ["True\n"]


def test_those_who_only_look_do_not_keep_the_lock_from_anyone(path: str) -> None:
    lock, other = CarrierLock(path, StillClock()), CarrierLock(path, StillClock())
    for _ in range(50):
        assert other.holder() is None
        assert lock.acquire()
        lock.release()


@pytest.mark.parametrize("words", ["", "not json", "[]", '{"pid": "x"}'])
def test_a_holder_that_has_not_said_who_it_is_still_holds(path: str, words: str) -> None:
    lock = CarrierLock(path, StillClock())
    assert lock.acquire()
    Path(path).write_text(words)
    assert CarrierLock(path, StillClock()).holder() == Carrier(0, "", "")


def test_a_place_that_cannot_hold_the_lock_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreBroken, match=r"nowhere.*lock"):
        CarrierLock(str(tmp_path / "nowhere" / "muster.db.lock"), StillClock()).acquire()
