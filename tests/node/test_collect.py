"""The laws of the collecting text, run for real under every shell this machine has, and of the reader of its frames."""

import contextlib
import gzip
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.node.collect import Frame, Row, parse_frames, render, render_packed, wants_plain

SHELLS = {
    name: argv
    for name, argv in {"dash": ("dash",), "bash": ("bash",), "busybox": ("busybox", "sh")}.items()
    if shutil.which(argv[0])
}

NONCE = "0123456789abcdef"

LIMIT_S = 300
"""For what does not end at all."""

HEALTHY_S = 120
"""The deadline of a command that ends by itself: a busy machine is no fault."""

HANGING_S = 3
"""The deadline of one that does not: long enough for it to have begun, and to have set its traps."""


@pytest.fixture(params=list(SHELLS))
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    argv = SHELLS[request.param]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").write_text(f'#!/bin/sh\nexec {" ".join(argv)} "$@"\n')
    (tmp_path / "bin/sh").chmod(0o755)
    return argv


def collect(
    shell: tuple[str, ...],
    root: Path,
    *rows: Row,
    nonce: str = NONCE,
    environment: Mapping[str, str] | None = None,
    strict: bool = True,
) -> bytes:
    env = {**os.environ, "MUSTER_ROOT": str(root), "PATH": f"{root}/bin:{os.environ['PATH']}", **(environment or {})}
    done = subprocess.run(
        [*shell, "-s"], input=render(rows, nonce).encode(), capture_output=True, timeout=LIMIT_S, env=env
    )
    assert done.stderr == b"" or not strict
    return done.stdout


def test_every_command_gives_its_status_and_its_bytes(shell: tuple[str, ...], tmp_path: Path) -> None:
    rows: list[Row] = [
        ("plain", "echo hi", HEALTHY_S, 100),
        ("fails", "echo half; exit 3", HEALTHY_S, 100),
        ("silent", "true", HEALTHY_S, 100),
        ("open-end", "printf 'no newline'", HEALTHY_S, 100),
        ("quotes", "printf '%s' \"it's $((1 + 1)) \\\\\"", HEALTHY_S, 100),
        ("bytes", "printf '\\377\\000\\n'", HEALTHY_S, 100),
        ("missing", "muster-no-such-program", HEALTHY_S, 100),
        ("asks", "cat; echo asked", HEALTHY_S, 100),
        ("errors", "echo no >&2", HEALTHY_S, 100),
        ("two-lines", "cd /\npwd", HEALTHY_S, 100),
    ]
    assert parse_frames(collect(shell, tmp_path, *rows), NONCE) == {
        "plain": Frame(0, b"hi\n", False),
        "fails": Frame(3, b"half\n", False),
        "silent": Frame(0, b"", False),
        "open-end": Frame(0, b"no newline", False),
        "quotes": Frame(0, b"it's 2 \\", False),
        "bytes": Frame(0, b"\xff\x00\n", False),
        "missing": Frame(127, b"", False),
        "asks": Frame(0, b"asked\n", False),
        "errors": Frame(0, b"", False),
        "two-lines": Frame(0, b"/\n", False),
    }


def test_an_output_is_cut_at_its_cap_and_one_without_end_ends(shell: tuple[str, ...], tmp_path: Path) -> None:
    frames = parse_frames(
        collect(shell, tmp_path, ("exact", "printf 12345", HEALTHY_S, 5), ("endless", "yes", HEALTHY_S, 1000)), NONCE
    )
    assert frames["exact"] == Frame(0, b"12345", False)
    assert (frames["endless"].truncated, len(frames["endless"].stdout)) == (True, 1000)


def test_an_output_that_the_node_cannot_write_down_is_no_answer(shell: tuple[str, ...], tmp_path: Path) -> None:
    def node(limit: str) -> Mapping[str, Frame]:
        text = render([("much", "printf '%03000d' 7", HEALTHY_S, 9000), ("little", "echo hi", HEALTHY_S, 100)], NONCE)
        return parse_frames(
            subprocess.run(
                [*shell, "-c", f"{limit} exec {' '.join(shell)} -s"], input=text.encode(), capture_output=True, timeout=LIMIT_S,
                env={**os.environ, "MUSTER_ROOT": str(tmp_path), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
            ).stdout,
            NONCE,
        )  # fmt: skip

    much, little = node("ulimit -f 2;").values()
    assert (much.exit_status, much.note, little) == (None, "unwritten", Frame(0, b"hi\n", False))
    assert [frame.note for frame in node("").values()] == ["", ""]


def test_a_command_that_hangs_costs_only_itself(shell: tuple[str, ...], tmp_path: Path) -> None:
    frames = parse_frames(
        collect(
            shell,
            tmp_path,
            ("hangs", "echo first; exec sleep 3600", HANGING_S, 100),
            ("other", "echo hi", HEALTHY_S, 100),
        ),
        NONCE,
    )
    assert (frames["hangs"].exit_status, frames["hangs"].note, frames["other"]) == (
        None,
        "deadline",
        Frame(0, b"hi\n", False),
    )


def test_what_is_still_stuck_is_not_started_a_second_time(shell: tuple[str, ...], tmp_path: Path) -> None:
    # It ignores being asked to end, as a process in uninterruptible sleep does.
    stuck = "trap '' TERM; echo $$ >>\"$MUSTER_ROOT/started\"; exec sleep 3600"
    rows: list[Row] = [("stuck", stuck, HANGING_S, 100), ("other", "echo hi", HEALTHY_S, 100)]
    assert parse_frames(collect(shell, tmp_path, *rows), NONCE)["stuck"].note == "deadline"
    try:
        for turn in range(2):
            frames = parse_frames(collect(shell, tmp_path, *rows, nonce=f"second{turn}00"), f"second{turn}00")
            assert frames == {"stuck": Frame(None, b"", False, "stuck"), "other": Frame(0, b"hi\n", False)}
        assert len((tmp_path / "started").read_text().split()) == 1
    finally:
        left = _left(tmp_path / "run/muster/held/fact-stuck")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    _until(lambda: not any(_running(pid) for pid in left))
    freed = parse_frames(
        collect(shell, tmp_path, ("stuck", "echo free", HEALTHY_S, 100), nonce="third0000"), "third0000"
    )
    assert freed == {"stuck": Frame(0, b"free\n", False)}


def _left(book: Path) -> list[int]:
    """The processes that a look wrote down as still there."""
    return [int(entry.partition(":")[0]) for entry in book.read_text().split()]


def test_what_a_hanging_command_started_is_asked_to_end_with_it(shell: tuple[str, ...], tmp_path: Path) -> None:
    # Three deep, and the middle one ends only by being told to.
    deep = "sh -c 'sleep 3600; echo never' | (sleep 3600; cat)"
    frames = parse_frames(collect(shell, tmp_path, ("deep", deep, HANGING_S, 100)), NONCE)
    assert frames["deep"].note == "deadline"
    left = _left(tmp_path / "run/muster/held/fact-deep")
    assert len(left) >= 4
    _until(lambda: not any(_running(pid) for pid in left))


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.01)


def test_one_hanging_question_to_the_gpus_keeps_all_others_from_being_asked(
    shell: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "bin/nvidia-smi").write_text(
        "#!/bin/sh\ntrap '' TERM\necho $$ >>\"$MUSTER_ROOT/started\"\nexec sleep 3600\n"
    )
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    rows: list[Row] = [
        ("apps", "nvidia-smi -A", HANGING_S, 99),
        ("gpu", "nvidia-smi -q 2>&1", HANGING_S, 99),
        ("other", "echo", HEALTHY_S, 9),
    ]
    notes = {name: frame.note for name, frame in parse_frames(collect(shell, tmp_path, *rows), NONCE).items()}
    (pid,) = (tmp_path / "started").read_text().split()
    try:
        assert notes == {"apps": "deadline", "gpu": "stuck", "other": ""}
        frames = parse_frames(collect(shell, tmp_path, *rows[1:], nonce="second000"), "second000")
        assert (frames["gpu"].note, frames["other"].note) == ("stuck", "")
        assert (tmp_path / "started").read_text().split() == [pid]
    finally:
        os.kill(int(pid), signal.SIGKILL)


def test_questions_to_the_gpus_follow_one_another(shell: tuple[str, ...], tmp_path: Path) -> None:
    text = '#!/bin/sh\nmkdir "$MUSTER_ROOT/asked" || exit 9\nsleep 0.1\nrmdir "$MUSTER_ROOT/asked"\n'
    (tmp_path / "bin/nvidia-smi").write_text(text)
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    frames = parse_frames(collect(shell, tmp_path, *((f"g{n}", "nvidia-smi", 10, 9) for n in range(4))), NONCE)
    assert [frame.exit_status for frame in frames.values()] == [0] * 4


def test_what_hangs_keeps_no_channel_open(shell: tuple[str, ...], tmp_path: Path) -> None:
    # As sshd does it: input and output are one socket, and the channel ends when nobody has the other end open.
    stuck = "trap '' TERM; echo $$ >\"$MUSTER_ROOT/pid\"; while :; do sleep 1; done"
    ours, theirs = socket.socketpair()
    ours.settimeout(LIMIT_S)
    env = {**os.environ, "MUSTER_ROOT": str(tmp_path)}
    with ours, theirs:
        child = subprocess.Popen([*shell, "-s"], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env)
        theirs.close()
        ours.sendall(render([("stuck", stuck, HANGING_S, 9), ("other", "echo hi", HEALTHY_S, 9)], NONCE).encode())
        ours.shutdown(socket.SHUT_WR)
        told = b""
        while data := ours.recv(65536):
            told += data
        child.wait(timeout=LIMIT_S)
    left = _left(tmp_path / "run/muster/held/fact-stuck")
    try:
        assert {name: frame.note for name, frame in parse_frames(told, NONCE).items()} == {
            "stuck": "deadline",
            "other": "",
        }
        assert any(_running(pid) for pid in left)
    finally:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_command_that_was_ended_by_a_signal_says_so(shell: tuple[str, ...], tmp_path: Path) -> None:
    killed = "kill -9 \"$(sh -c 'echo $PPID')\""
    frames = parse_frames(collect(shell, tmp_path, ("killed", killed, 9, 9), strict=False), NONCE)
    assert frames["killed"].exit_status == 137


def test_two_collects_at_the_same_time_both_see_everything(shell: tuple[str, ...], tmp_path: Path) -> None:
    rows: list[Row] = [(f"fact-{number}", f"sleep 0.2; echo {number}", HEALTHY_S, 100) for number in range(6)]
    with ThreadPoolExecutor(2) as pool:
        outputs = list(
            pool.map(
                lambda nonce: parse_frames(collect(shell, tmp_path, *rows, nonce=nonce), nonce),
                ("first0000", "second000"),
            )
        )
    assert outputs == [{f"fact-{number}": Frame(0, f"{number}\n".encode(), False) for number in range(6)}] * 2


def test_no_more_than_a_few_commands_run_at_one_time(shell: tuple[str, ...], tmp_path: Path) -> None:
    count = 'echo in >>"$MUSTER_ROOT/in"; sleep 0.1; n=$(wc -l <"$MUSTER_ROOT/in"); o=$(wc -l <"$MUSTER_ROOT/out"); echo $((n - o)); '
    count += 'echo out >>"$MUSTER_ROOT/out"'
    (tmp_path / "out").touch()
    frames = parse_frames(
        collect(shell, tmp_path, *((f"fact-{number}", count, 10, 100) for number in range(12))), NONCE
    )
    assert len(frames) == 12
    assert max(int(frame.stdout) for frame in frames.values()) <= 5  # one may end between the two counts


def test_nothing_is_left_behind_but_the_books(shell: tuple[str, ...], tmp_path: Path) -> None:
    collect(shell, tmp_path, ("plain", "echo hi", HEALTHY_S, 100))
    left = sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file() and path.name != "sh"
    )
    assert left == ["run/muster/held/fact-plain", "run/muster/look"]
    assert (tmp_path / "run/muster").stat().st_mode & 0o777 == 0o700


def test_a_scratch_folder_of_somebody_else_or_a_link_is_not_used(shell: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/muster").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "user").mkdir()
    rows: Row = ("plain", "echo hi", HEALTHY_S, 100)
    frames = parse_frames(
        collect(shell, tmp_path, rows, environment={"XDG_RUNTIME_DIR": str(tmp_path / "user")}), NONCE
    )
    assert frames == {"plain": Frame(0, b"hi\n", False)}
    assert not list((tmp_path / "elsewhere").iterdir())
    assert (tmp_path / "user/muster/held/fact-plain").exists()
    frames = parse_frames(collect(shell, tmp_path, rows, environment={"XDG_RUNTIME_DIR": ""}), NONCE)
    assert frames == {"plain": Frame(0, b"hi\n", False)}
    assert (tmp_path / f"tmp/muster-{os.geteuid()}/held/fact-plain").exists()


def test_a_text_cut_short_on_its_way_prints_nothing(shell: tuple[str, ...], tmp_path: Path) -> None:
    text = render([("plain", "echo hi", HEALTHY_S, 100)], NONCE)
    env = {**os.environ, "MUSTER_ROOT": str(tmp_path)}
    for part in (0.2, 0.6, 0.98):
        done = subprocess.run(
            [*shell, "-s"], input=text[: int(len(text) * part)].encode(), capture_output=True, timeout=LIMIT_S, env=env
        )
        assert done.stdout == b""


FRAMES = (
    b"0123456789abcdef a 0 0 19\nhi\n0123456789abcdef\n0123456789abcdef b deadline 1 2\nxy\n0123456789abcdef end 2\n"
)


def test_banners_before_and_noise_between_frames_are_passed_over() -> None:
    noisy = b"Welcome to gpu-01!\n\n" + FRAMES.replace(b"\n0123456789abcdef b", b"\nprofile: noise\n0123456789abcdef b")
    assert parse_frames(noisy, NONCE) == {"a": Frame(0, b"hi\n", False), "b": Frame(None, b"xy", True, "deadline")}


def test_a_frame_that_is_cut_short_is_missing() -> None:
    assert parse_frames(FRAMES[:-26], NONCE) == {"a": Frame(0, b"hi\n", False)}
    assert parse_frames(FRAMES[:30], NONCE) == {}


def test_another_nonce_is_not_ours() -> None:
    assert parse_frames(FRAMES, "fedcba9876543210") == {}


def test_frames_are_packed_where_gzip_is_and_plain_where_not(shell: tuple[str, ...], tmp_path: Path) -> None:
    big = ("big", "i=0; while [ $i -lt 2000 ]; do echo line $((i % 7)); i=$((i + 1)); done", 9, 99999)
    packed = collect(shell, tmp_path, big)
    tools = ["awk", "cat", "flock", "head", "id", "mkdir", "mkfifo", "rm", "sh", "sleep", "wc"]
    for tool in tools:
        (tmp_path / "bin" / tool).exists() or (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    own = {"PATH": str(tmp_path / "bin")}
    text = render([big], NONCE).replace(":/usr/local/sbin:/usr/sbin:/sbin", "").encode()
    env = {"MUSTER_ROOT": str(tmp_path), **own}
    plain = subprocess.run(
        [str(shutil.which(shell[0])), *shell[1:], "-s"], input=text, capture_output=True, timeout=LIMIT_S, env=env
    ).stdout
    assert parse_frames(packed, NONCE) == parse_frames(plain, NONCE)
    assert len(parse_frames(plain, NONCE)["big"].stdout) == 14000
    assert len(packed) < 500 < 14000 < len(plain)


def test_a_text_sent_packed_does_the_same(shell: tuple[str, ...], tmp_path: Path) -> None:
    rows: list[Row] = [("plain", "echo hi", HEALTHY_S, 100), ("input", "cat; echo none", HEALTHY_S, 100)]
    argv, packed = render_packed(rows, NONCE)
    env = {**os.environ, "MUSTER_ROOT": str(tmp_path), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = subprocess.run([*shell, *argv[1:]], input=packed, capture_output=True, timeout=LIMIT_S, env=env)
    assert done.stderr == b""
    assert parse_frames(done.stdout, NONCE) == {"plain": Frame(0, b"hi\n", False), "input": Frame(0, b"none\n", False)}
    cut = subprocess.run([*shell, *argv[1:]], input=packed[:-60], capture_output=True, timeout=LIMIT_S, env=env)
    assert parse_frames(cut.stdout, NONCE) == {}


def test_a_node_without_gzip_runs_nothing_and_says_so(shell: tuple[str, ...], tmp_path: Path) -> None:
    argv, packed = render_packed([("plain", "echo hi", HEALTHY_S, 100)], NONCE)
    done = subprocess.run(
        [str(shutil.which(shell[0])), *shell[1:], *argv[1:]],
        input=packed,
        capture_output=True,
        timeout=LIMIT_S,
        env={"PATH": "/none"},
    )
    assert wants_plain(b"motd\n" + done.stdout, NONCE)
    assert done.stdout == f"{NONCE} plain\n".encode()


def test_packed_frames_are_read_as_far_as_they_came() -> None:
    lead, body = b"motd\n" + NONCE.encode() + b" gzip\n", gzip.compress(FRAMES)
    whole = {"a": Frame(0, b"hi\n", False), "b": Frame(None, b"xy", True, "deadline")}
    assert parse_frames(lead + body + b"and a last word", NONCE) == whole
    assert parse_frames(lead + body[:-12], NONCE).items() <= whole.items()
    assert parse_frames(lead + b"\x1f\x8bnonsense", NONCE) == {}


@given(st.binary(max_size=300))
def test_no_packed_bytes_raise(packed: bytes) -> None:
    assert parse_frames(NONCE.encode() + b" gzip\n" + packed, NONCE) == {}
    assert parse_frames(NONCE.encode() + b" gzip\n\x1f\x8b\x08\0\0\0\0\0\0\x03" + packed, NONCE) == {}


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300))
def test_no_bytes_raise_and_a_whole_frame_among_them_is_found(before: bytes, inside: bytes, after: bytes) -> None:
    frame = NONCE.encode() + f" a 0 0 {len(inside) + len(NONCE)}\n".encode() + inside + NONCE.encode() + b"\n"
    assert parse_frames(before + b"\n" + frame + after, NONCE)["a"] == Frame(0, inside, False)
    assert dict(parse_frames(before, NONCE)) == {}


@pytest.mark.parametrize(
    ("rows", "nonce"),
    [
        ([("a b", "true", 1, 1)], NONCE),
        ([("a", "true", 1, 1)] * 2, NONCE),
        ([("a", "\0", 1, 1)], NONCE),
        ([], "short"),
        ([], "'; rm -rf x"),
    ],
)
def test_what_could_not_be_a_safe_text_is_not_made(rows: list[Row], nonce: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        render(rows, nonce)
