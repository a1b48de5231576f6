"""What the SQLite store does beyond the contract: places, foreign and damaged files, full disks, other processes, sudden death."""

import os
import shutil
import sqlite3
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from muster.backends import _codec
from muster.backends.store.sqlite import SCHEMA_VERSION, open_store
from muster.model import audit
from muster.model.errors import StoreBroken, StoreTooNew
from muster.model.fact import GONE as GONE_WHY
from muster.model.fact import Fact, NodeFacts, Unknown
from muster.ports import Store
from tests.support.processes import python
from tests.support.values import inline, later, look, plan, record, rollout, run

GONE = Unknown(GONE_WHY)
WORKER = "tests.support.store_worker"
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "muster.db")


def begun(path: str, nodes: tuple[str, ...] = ("n1",), *, busy_s: float = 10) -> Store:
    store = open_store(path, busy_s=busy_s)
    proposal = plan(nodes=nodes)
    inline(store.save_plan(proposal))
    inline(store.begin(rollout(proposal.id), [run(name) for name in nodes], record("began")))
    return store


def sql(path: str, *statements: str) -> None:
    """What somebody with a database shell may do behind our back."""
    with closing(sqlite3.connect(path)) as on, on:
        for statement in statements:
            on.execute(statement)


def listing(path: str) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in Path(path).parent.iterdir() if not entry.name.endswith("-shm")}


# Places


def test_the_store_is_for_its_owner_alone(path: str) -> None:
    store = begun(path)
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in Path(path).parent.iterdir()}
    inline(store.close())
    assert modes["muster.db-wal"] == modes["muster.db"] == 0o600
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700


def test_what_was_written_is_there_after_opening_again(path: str) -> None:
    inline(begun(path).close())
    store = open_store(path)
    assert inline(store.plans()) == (plan(nodes=("n1",)),)
    assert [each.node for each in inline(store.runs("rollout-1"))] == ["n1"]
    inline(store.close())


@pytest.mark.parametrize("left", ["nothing", "an empty database"])
def test_what_a_death_while_making_it_left_behind_is_made_again(path: str, left: str) -> None:
    Path(path).parent.mkdir()
    Path(path).touch()
    if left == "an empty database":
        with closing(sqlite3.connect(path)) as on:
            on.execute("PRAGMA journal_mode=WAL")
        assert Path(path).stat().st_size
    inline(begun(path).close())


@contextmanager
def as_nobody() -> Iterator[None]:
    if os.getuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="muster-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_that_cannot_be_written_is_named_with_the_remedy(open_folder: Path) -> None:
    path = str(open_folder / "muster.db")
    open_folder.chmod(0o555)
    with as_nobody(), pytest.raises(StoreBroken, match=r"muster\.db") as caught:
        open_store(path)
    assert "writable" in str(caught.value.hint)


def test_a_store_that_may_only_be_read_is_named_with_the_remedy(open_folder: Path) -> None:
    path = str(open_folder / "muster.db")
    inline(begun(path).close())
    Path(path).chmod(0o444)
    with as_nobody(), pytest.raises(StoreBroken, match=r"muster\.db") as caught:
        open_store(path)
    assert "writable" in str(caught.value.hint)


@pytest.mark.parametrize("place", ["a/file/muster.db", "a"])
def test_a_place_that_cannot_hold_a_file_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("in the way")
    with pytest.raises(StoreBroken) as caught:
        open_store(str(tmp_path / place))
    assert str(tmp_path / place) in caught.value.message
    assert caught.value.hint


# Foreign, newer and damaged files


def test_a_store_of_a_newer_release_is_refused_and_stays_as_it_is(path: str) -> None:
    inline(begun(path).close())
    sql(path, f"UPDATE meta SET value = '{SCHEMA_VERSION + 1}' WHERE key = 'form'", "DROP TABLE audit")
    before = listing(path)
    with pytest.raises(StoreTooNew, match=f"version {SCHEMA_VERSION + 1}") as caught:
        open_store(path)
    assert "the release that wrote it" in str(caught.value.hint)
    assert listing(path) == before


def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(path: str) -> None:
    Path(path).parent.mkdir()
    Path(path).write_text("schema: 1\nfleet: prod-eu\n" * 100)
    before = listing(path)
    with pytest.raises(StoreBroken, match="not a database") as caught:
        open_store(path)
    assert path in caught.value.message
    assert "--store" in str(caught.value.hint)
    assert listing(path) == before


def test_another_programs_database_is_refused_and_stays_as_it_is(path: str) -> None:
    Path(path).parent.mkdir()
    sql(path, "CREATE TABLE moz_places (url TEXT)")
    before = listing(path)
    with pytest.raises(StoreBroken, match="not a store of Muster's"):
        open_store(path)
    assert listing(path) == before


def test_a_damaged_database_is_said_to_be_damaged(path: str) -> None:
    store = begun(path)
    inline(store.save_facts([look(f"n{number}", text="x" * 3000) for number in range(200)]))
    inline(store.close())
    content = bytearray(Path(path).read_bytes())
    content[4096 * 2 :] = b"\xa5" * (len(content) - 4096 * 2)
    Path(path).write_bytes(content)
    with pytest.raises(StoreBroken, match=r"damaged|not a database"):
        inline(open_store(path).facts())


def test_a_plan_that_was_changed_is_named(path: str) -> None:
    store = begun(path)
    (kept,) = inline(store.plans())
    sql(path, "UPDATE plans SET body = replace(body, '580.126.20', '580.126.21')")
    with pytest.raises(StoreBroken, match=f"plan {kept.id}"):
        inline(store.plans())
    inline(store.close())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE plans SET body = '{}'", r"plan plan-.*plan\.schema: is missing"),
        ("UPDATE runs SET phase = 'fixed-by-hand'", "run run-rollout-1-n1"),
        ("UPDATE runs SET wake_at = 'tomorrow'", "run run-rollout-1-n1"),
        ("UPDATE runs SET notes = '[]'", "run run-rollout-1-n1"),
        ("UPDATE rollouts SET state = 'fine'", "rollout rollout-1"),
        ("UPDATE looks SET parts = '[1]'", "facts of n1"),
        ("UPDATE looks SET observed_at = 'then'", "facts of n1"),
        ("UPDATE audit SET body = '{'", "audit entry 1 of rollout-1"),
    ],
)
def test_a_row_that_no_release_could_have_written_is_named(path: str, change: str, named: str) -> None:
    store = begun(path)
    inline(store.save_facts([look("n1", driver="570")]))
    sql(path, change)

    async def everything() -> None:
        for read in (store.plans, store.rollouts, store.facts):
            await read()
        await store.runs("rollout-1")
        await store.audit("rollout-1")

    with pytest.raises(StoreBroken, match=named):
        inline(everything())
    inline(store.close())


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE audit SET actor = 'eve' WHERE seq = 2", "entry 2: its content was changed"),
        ("UPDATE audit SET body = '{\"attempt\":9}' WHERE seq = 3", "entry 3: its content was changed"),
        ("DELETE FROM audit WHERE seq = 2", "entry 3: entry 2 is missing"),
        ("DELETE FROM audit WHERE seq >= 3", "entries were cut off"),
        ("DELETE FROM audit", "entries were cut off"),
    ],
)
def test_tampering_with_the_chain_is_found_against_a_head_kept_elsewhere(path: str, change: str, found: str) -> None:
    store = begun(path)
    for attempt in range(4):
        inline(store.record(inline(store.run("run-rollout-1-n1")), [record("step", attempt=attempt)]))
    head = inline(store.audit("rollout-1"))[-1].hash
    assert audit.faults(inline(store.audit("rollout-1")), head=head) == ()
    sql(path, change)
    assert any(found in fault for fault in audit.faults(inline(store.audit("rollout-1")), head=head))
    inline(store.close())


# Full disks


def fill(store: Store) -> int:
    """How many records went in before the disk was full."""
    for done in range(10_000):
        now = inline(store.run("run-rollout-1-n1"))
        try:
            inline(store.record(replace(now, attempt=done + 1), [record("step", attempt=done + 1, text="x" * 2000)]))
        except StoreBroken as error:
            assert "the disk is full" in error.message
            assert "free some space" in str(error.hint)
            return done
    raise AssertionError("the disk was never full")


def goes_on(store: Store, done: int) -> None:
    now = inline(store.run("run-rollout-1-n1"))
    assert now.attempt == done
    inline(store.record(replace(now, attempt=done + 1), [record("step", attempt=done + 1)]))
    entries = inline(store.audit("rollout-1"))
    assert len(entries) == done + 2
    assert audit.faults(entries, head=entries[-1].hash) == ()


def test_a_full_database_loses_nothing_and_goes_on_when_there_is_room(path: str) -> None:
    store = begun(path)
    store._connection.execute("PRAGMA max_page_count=60")  # type: ignore[attr-defined]
    done = fill(store)
    store._connection.execute("PRAGMA max_page_count=10000")  # type: ignore[attr-defined]
    goes_on(store, done)
    inline(store.close())


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tiny"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "muster-test", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.lab("mount", "umount")
def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_room(tiny_disk: Path) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"x" * 400_000)
    store = begun(str(tiny_disk / "muster.db"))
    done = fill(store)
    ballast.unlink()
    goes_on(store, done)
    inline(store.close())


@pytest.mark.lab("mount", "umount")
def test_a_disk_that_is_full_from_the_beginning_is_named(tiny_disk: Path) -> None:
    with (tiny_disk / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
        while True:
            ballast.write(b"x" * 4096)
    with pytest.raises(StoreBroken, match=r"disk is full|No space") as caught:
        open_store(str(tiny_disk / "muster.db"))
    assert caught.value.hint


# Other processes


def test_many_processes_may_make_the_same_store_at_once(path: str) -> None:
    fresh = str(Path(path).with_name("fresh.db"))
    with ExitStack() as stack:
        processes = [stack.enter_context(python(WORKER, fresh, "run-none", "0")) for _ in range(6)]
        said = [process.communicate(timeout=300)[0] for process in processes]
    assert said == ["open\n"] * 6


def test_processes_that_write_at_once_wait_for_each_other_and_share_one_chain(path: str) -> None:
    store = begun(path, ("n1", "n2", "n3"), busy_s=300)
    workers = [python(WORKER, path, f"run-rollout-1-{node}", "60") for node in ("n1", "n2", "n3")]
    processes = [worker.__enter__() for worker in workers]
    inline(
        store.set_rollout("rollout-1", inline(store.rollouts())[0].state, "beside them", rollout("p").updated_at, None)
    )
    codes = [(process.communicate(timeout=300), process.returncode)[1] for process in processes]
    for worker in workers:
        worker.__exit__(None, None, None)
    entries = inline(store.audit("rollout-1"))
    inline(store.close())
    assert codes == [0, 0, 0]
    assert len(entries) == 181
    assert audit.faults(entries, head=entries[-1].hash) == ()


def test_opening_the_store_a_second_time_in_a_process_does_not_undo_the_first(path: str) -> None:
    # POSIX locks end when a process closes any descriptor of the file; another process would then take away the log we write into.
    first = begun(path)
    open_store(path)
    with python(WORKER, path, "run-none", "0") as process:
        process.communicate(timeout=300)
    inline(first.claim("run-rollout-1-n1"))
    with python(WORKER, path, "run-rollout-1-n1", "1") as process:
        assert process.communicate(timeout=300)[0] == "open\n1\n"
    assert inline(first.run("run-rollout-1-n1")).claim == 2
    inline(first.close())


def test_a_stuck_process_is_waited_for_only_so_long_and_readers_not_at_all(path: str) -> None:
    store = begun(path, busy_s=0.2)
    with python(WORKER, path, "hold") as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["open\n", "held\n"]
        assert inline(store.run("run-rollout-1-n1")).claim == 0
        with pytest.raises(StoreBroken, match="another process") as caught:
            inline(store.claim("run-rollout-1-n1"))
        assert "fuser" in str(caught.value.hint)
    assert inline(store.claim("run-rollout-1-n1")) == 1
    inline(store.close())


def test_a_process_killed_while_writing_leaves_what_it_said_and_a_whole_chain(path: str) -> None:
    inline(begun(path).close())
    said = 0
    for kill in range(10):
        with python(WORKER, path, "run-rollout-1-n1", "100000") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            for _ in range(1 + 3 * kill):
                said = int(process.stdout.readline())
            process.kill()
            said = max([said, *(int(line) for line in process.stdout.read().split("\n")[:-1])])
        store = open_store(path)
        now = inline(store.run("run-rollout-1-n1"))
        entries = inline(store.audit("rollout-1"))
        inline(store.close())
        assert said <= now.attempt <= said + 1
        assert now.claim == kill + 1
        assert [entry.record.body.get("attempt") for entry in entries[1:]] == list(range(1, now.attempt + 1))
        assert audit.faults(entries, head=entries[-1].hash) == ()


def test_a_part_of_a_look_that_was_changed_is_named_when_it_is_read(path: str) -> None:
    store = begun(path)
    inline(store.save_facts([look("n1", driver="570", temperature=40)]))
    sql(path, "UPDATE look_parts SET body = '[1'")
    (facts,) = inline(store.facts())
    with pytest.raises(StoreBroken, match="a part of a look was changed outside Muster"):
        facts.text("driver")
    with pytest.raises(StoreBroken, match="a part of a look"):
        inline(store.history("n1"))


# What was seen, as rows


def rows(path: str, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as on:
        return on.execute(query).fetchall()


def test_what_many_nodes_show_is_kept_once_and_what_none_shows_any_more_is_not_kept(path: str) -> None:
    store = begun(path)
    inline(store.save_facts([look(f"n{at}", driver="570") for at in range(9)]))
    assert rows(path, "SELECT count(*), sum(refs) FROM look_parts") == [(1, 18)]
    for at, driver in enumerate(("580", "590", "580"), start=1):
        inline(store.save_facts([look("n1", at, driver=driver)]))
    assert rows(path, "SELECT count(*) FROM look_parts") == [(2,)]
    assert [fact.value for fact in inline(store.history("n1"))] == ["570", "580", "590", "580"]
    assert [facts.text("driver") for facts in inline(store.facts())] == ["570", "580"] + ["570"] * 7


def test_two_looks_at_one_node_in_one_save_are_two(path: str) -> None:
    store = begun(path)
    inline(
        store.save_facts([look("n1", 0, a="1", b="x"), look("n1", 1, a=Unknown("late")), look("n1", 2, a="1", b="y")])
    )
    assert [(fact.path, fact.value) for fact in inline(store.history("n1"))] == [
        ("a", "1"), ("b", "x"), ("a", Unknown("late")), ("b", GONE), ("a", "1"), ("b", "y"),
    ]  # fmt: skip


def test_members_of_a_list_come_back_in_the_history_under_their_keys(path: str) -> None:
    store = begun(path)

    def seen(at: float, mode: str) -> NodeFacts:
        then = later(at)
        paths = ("gpu[GPU-a].ecc", "gpu[0000:1a:00.0].ecc", "gpu[].ecc", "gpu.count")
        return NodeFacts("n1", then, {p: Fact(p, mode, "gpu", then) for p in paths})

    inline(store.save_facts([seen(0, "on")]))
    inline(store.save_facts([seen(1, "off")]))
    found = [(fact.path, fact.value) for fact in inline(store.history("n1"))]
    paths = sorted(("gpu[GPU-a].ecc", "gpu[0000:1a:00.0].ecc", "gpu[].ecc", "gpu.count"))
    assert found == [(p, "on") for p in paths] + [(p, "off") for p in paths]


def test_a_store_of_the_first_form_keeps_its_looks_and_its_history(path: str) -> None:
    seen = look("n1", 60, driver="580", temperature=41, blind=Unknown("no root"))
    inline(begun(path).close())
    sql(
        path,
        "CREATE TABLE facts (node TEXT PRIMARY KEY, body TEXT NOT NULL)",
        "CREATE TABLE fact_history (serial INTEGER PRIMARY KEY, node TEXT, path TEXT, value TEXT, source TEXT, observed_at TEXT)",
        *(f"DROP TABLE {name}" for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE name LIKE 'fact\\_%' ESCAPE '\\' "
          "AND type = 'table' AND name != 'fact_history'")),
        *(f"DROP TABLE {name}" for name in ("looks", "look_parts", "first_looks")),
        f"INSERT INTO facts VALUES ('n1', '{_codec.facts_text(seen)}')",
        *(
            f"INSERT INTO fact_history VALUES (NULL, 'n1', 'driver', '\"{value}\"', 'test', '{_codec.text_of(later(at))}')"
            for at, value in ((0, "570"), (60, "580"))
        ),
        "UPDATE meta SET value = '1' WHERE key = 'form'",
    )  # fmt: skip
    store = open_store(path)
    assert inline(store.facts()) == (seen,)
    past = (Fact("driver", "570", "test", later(0)), Fact("driver", "580", "test", later(60)))
    assert inline(store.history("n1")) == past
    inline(store.save_facts([look("n1", 120, driver="590")]))
    assert inline(store.history("n1")) == (*past, Fact("driver", "590", "test", later(120)))
    assert rows(path, "SELECT value FROM meta WHERE key = 'form'") == [(str(SCHEMA_VERSION),)]


FORM_2 = Path(__file__).parents[1] / "fixtures/store/form-2.sql"


def of_form_2(path: str) -> None:
    Path(path).parent.mkdir()
    with closing(sqlite3.connect(path)) as on:
        on.executescript(FORM_2.read_text(encoding="utf-8"))


def test_a_store_of_the_second_form_keeps_its_looks_its_history_and_its_plans(path: str) -> None:
    of_form_2(path)
    store = open_store(path)
    first, second = inline(store.facts())
    assert [plan.target for plan in inline(store.plans())] == ["580.126.20"]
    assert (second.node, second.trouble) == ("n2", Unknown("no route"))
    assert {path: (fact.value, fact.momentary) for path, fact in first.facts.items()} == {
        "gpu[GPU-a].serial": ("16a", False), "gpu[GPU-a].ecc.mode": (True, False), "gpu[GPU-b].serial": ("16b", False),
        "gpu[GPU-b].ecc.mode": (True, False), "gpu.count": (2, False), "machine.id": ("0" * 31 + "1", False),
        "kernel.secure_boot": (Unknown("no root"), False), "module.parameters": (("a=1", "b"), False), "uptime_s": (1120, True),
    }  # fmt: skip
    past = inline(store.history("n1"))
    assert [(fact.path, fact.value, fact.observed_at) for fact in past[-4:]] == [
        ("gpu[GPU-a].ecc.mode", "off", later(60)), ("gpu[GPU-b].ecc.mode", "off", later(60)),
        ("gpu[GPU-a].ecc.mode", True, later(120)), ("gpu[GPU-b].ecc.mode", True, later(120)),
    ]  # fmt: skip
    assert len(past) == 11
    assert inline(store.most_gpus(later(0))) == {"n1": 2}
    inline(store.save_facts([first]))
    assert inline(store.history("n1")) == past
    inline(store.close())
    tables = {str(name) for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables >= {
        "meta",
        "plans",
        "look_parts",
        "looks",
        "first_looks",
        "fact_changes",
        "fact_shapes",
        "fact_members",
    }
    assert not tables & {"fact_parts", "fact_looks", "fact_firsts", "old_fact_changes"}


def test_before_a_store_is_brought_to_todays_form_a_copy_is_put_beside_it_and_named(path: str) -> None:
    of_form_2(path)
    before = rows(path, "SELECT * FROM fact_looks")
    Path(f"{path}.form-2").write_text("kept from an earlier try")
    told: list[str] = []
    inline(open_store(path, tell=told.append).close())
    copy = f"{path}.form-2-2"
    assert len(told) == 1
    assert copy in told[0]
    assert stat.S_IMODE(Path(copy).stat().st_mode) == 0o600
    assert rows(copy, "SELECT * FROM fact_looks") == before
    assert rows(copy, "SELECT value FROM meta WHERE key = 'form'") == [("2",)]
    inline(open_store(path, tell=told.append).close())
    assert len(told) == 1


def test_a_store_that_cannot_be_brought_to_todays_form_stays_as_it_is(path: str) -> None:
    of_form_2(path)
    sql(path, "UPDATE fact_parts SET body = '[1' WHERE id = 7")
    with pytest.raises(StoreBroken, match="changed outside Muster"):
        open_store(path)
    assert rows(path, "SELECT value FROM meta WHERE key = 'form'") == [("2",)]
    assert rows(path, "SELECT count(*) FROM fact_looks") == [(2,)]


def test_one_source_seen_at_two_times_with_alike_members_is_kept_apart(path: str) -> None:
    store = begun(path)
    facts = {
        f"{kind}[{key}].x": Fact(f"{kind}[{key}].x", "1", "gpu", later(at), kind == "heat")
        for kind in ("gpu", "heat") for key, at in (("GPU-a", 1), ("GPU-b", 2))
    }  # fmt: skip
    inline(store.save_facts([NodeFacts("n1", later(2), facts)]))
    (back,) = inline(store.facts())
    assert back == NodeFacts("n1", later(2), facts)
    assert back.members("gpu") == ("GPU-a", "GPU-b")
    assert back.column("gpu", ".x") == {"GPU-a": "1", "GPU-b": "1"}
