"""The laws of tasks and leases on a node, on the real texts under every shell this machine has."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.node import lease, task

SHELLS = {
    name: argv
    for name, argv in {"dash": ("dash",), "bash": ("bash",), "busybox": ("busybox", "sh")}.items()
    if shutil.which(argv[0])
}

LIMIT_S = 300.0
"""For what does not come at all: a busy machine is no fault."""

BOOT = "11111111-2222-3333-4444-555555555555"
OTHER_BOOT = "99999999-2222-3333-4444-555555555555"


@dataclass(frozen=True)
class Node:
    """A node's root folder, and the shell its texts run in. `/bin/sh` inside it is that shell too."""

    root: Path
    shell: tuple[str, ...]

    def run(
        self, text: str, *, ignored: tuple[signal.Signals, ...] = (), preamble: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        path = f"{self.root}/bin:{os.environ['PATH']}"
        return subprocess.run(
            [*self.shell, "-s"], input=(preamble + text).encode("utf-8", "surrogateescape"), capture_output=True, timeout=LIMIT_S, cwd="/",
            env={**os.environ, "MUSTER_ROOT": str(self.root), "PATH": path}, restore_signals=not ignored,
        )  # fmt: skip

    def start(self, task_id: str, script: str, fence: str = "1.1", **options: object) -> task.TaskAnswer:
        return task.parse_answer(self.run(task.task_start(task_id, fence, script, **options)).stdout)  # type: ignore[arg-type]

    def poll(self, task_id: str) -> task.TaskAnswer:
        return task.parse_answer(self.run(task.task_poll(task_id)).stdout)

    def ended(self, task_id: str) -> task.TaskAnswer:
        return self.until(task_id, lambda answer: answer.state != "running")

    def until(self, task_id: str, wanted: Callable[[task.TaskAnswer], bool]) -> task.TaskAnswer:
        limit = time.monotonic() + LIMIT_S
        while not wanted(answer := self.poll(task_id)):
            assert time.monotonic() < limit, f"it did not come: {answer}"
        return answer

    def take(self, rollout_id: str = "rollout-1", *, ttl_s: int = 3600, over: int = 0) -> lease.LeaseAnswer:
        text = lease.lease_take(
            holder="anna@control",
            rollout_id=rollout_id,
            plan_id="plan-1",
            reason='it\'s "due"\n\\',
            ttl_s=ttl_s,
            over=over,
        )
        return lease.parse_lease_answer(self.run(text).stdout)

    def release(self, rollout_id: str = "rollout-1") -> lease.LeaseAnswer:
        return lease.parse_lease_answer(self.run(lease.lease_release(rollout_id=rollout_id)).stdout)

    def show(self) -> lease.LeaseAnswer:
        return lease.parse_lease_answer(self.run(lease.lease_show()).stdout)

    def boot(self, boot_id: str, uptime_s: int = 100) -> None:
        (self.root / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
        (self.root / "proc/sys/kernel/random/boot_id").write_text(boot_id + "\n")
        (self.root / "proc/uptime").write_text(f"{uptime_s}.55 1.00\n")

    def pid(self, task_id: str) -> int:
        return int((self.state / "tasks" / task_id / "pid").read_text())

    @property
    def state(self) -> Path:
        return self.root / "var/lib/muster/node"


@pytest.fixture(params=list(SHELLS))
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    (tmp_path / "bin").mkdir()
    shell = SHELLS[request.param]
    (tmp_path / "bin/sh").write_text(f'#!/bin/sh\nexec {" ".join(shell)} "$@"\n')
    (tmp_path / "bin/sh").chmod(0o755)
    made = Node(tmp_path, shell)
    made.boot(BOOT)
    yield made
    for pid in made.state.glob("tasks/*/pid"):
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.killpg(int(pid.read_text()), signal.SIGKILL)


def test_a_task_is_started_detached_and_its_end_is_recorded(node: Node) -> None:
    node.take()
    started = node.start("t-1", "echo out; echo err >&2; exit 3")
    assert (started.state in ("running", "done"), started.started, started.fence) == (True, True, "1.1")
    answer = node.ended("t-1")
    assert (answer.state, answer.exit_status, answer.out, answer.err) == ("done", 3, b"out\n", b"err\n")
    assert (answer.boot_id, answer.now_boot_id, answer.started) == (BOOT, BOOT, False)
    assert answer.started_at.endswith("Z")
    assert answer.ended_at.endswith("Z")


def test_eight_starts_of_one_task_at_the_same_time_run_it_once(node: Node) -> None:
    node.take()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: node.start("t-1", 'echo ran >>"$MUSTER_ROOT/runs"'), range(8)))
    assert sorted(answer.started for answer in answers) == [False] * 7 + [True]
    assert node.ended("t-1").state == "done"
    assert (node.root / "runs").read_text() == "ran\n"


def test_a_known_task_is_answered_and_never_run_again(node: Node) -> None:
    node.take()
    node.start("t-1", 'echo ran >>"$MUSTER_ROOT/runs"; exit 4')
    node.ended("t-1")
    node.release()
    again = node.start("t-1", 'echo ran >>"$MUSTER_ROOT/runs"; exit 5', "9.9")
    assert (again.state, again.exit_status, again.started) == ("done", 4, False)
    assert (node.root / "runs").read_text() == "ran\n"


def test_a_task_nobody_started_is_absent(node: Node) -> None:
    assert node.poll("t-1").state == "absent"
    assert not (node.root / "var").exists()


def test_a_lower_fence_is_refused_and_compared_as_numbers(node: Node) -> None:
    node.take()
    assert node.start("t-1", "true", "1.10").started
    refused = node.start("t-2", "true", "1.9")
    assert (refused.state, refused.started) == ("refused", False)
    assert "1.9" in refused.why
    assert node.poll("t-2").state == "absent"
    assert node.start("t-3", "true", "1.10").started
    assert node.run(task.task_start("t-4", "1.2", "true")).returncode == 75


def test_without_the_lease_of_its_number_nothing_is_changed(node: Node) -> None:
    assert node.start("t-1", "true").state == "refused"
    node.take()
    assert node.start("t-2", "true", "2.1").state == "refused"
    node.release()
    node.take("rollout-2")
    late = node.start("t-3", "true", "1.5")
    assert late.state == "refused"
    assert "rollout-2" in late.why


def test_what_only_reads_needs_no_lease_and_moves_no_fence(node: Node) -> None:
    assert node.start("t-1", "true", "0.7", reads_only=True).started
    node.take()
    assert node.start("t-2", "true", "1.1").started
    assert node.start("t-3", "true", "0.1", reads_only=True).started


def test_a_killed_task_is_lost_and_not_running(node: Node) -> None:
    node.take()
    node.start("t-1", "exec sleep 3600")
    os.killpg(node.pid("t-1"), signal.SIGKILL)
    answer = node.ended("t-1")
    assert (answer.state, answer.exit_status) == ("lost", None)


def test_while_anything_of_a_task_lives_it_is_running_even_without_its_wrapper(node: Node) -> None:
    node.take()
    node.run(task.task_start("t-1", "1.1", 'mkfifo "$MUSTER_ROOT/gate"; cat "$MUSTER_ROOT/gate"'))
    node.until("t-1", lambda _: (node.root / "gate").exists())
    os.kill(node.pid("t-1"), signal.SIGKILL)
    assert node.poll("t-1").state == "running"
    (node.root / "gate").write_text("go\n")
    assert node.ended("t-1").state == "lost"


def test_after_another_boot_a_task_without_result_is_interrupted_and_never_running(node: Node) -> None:
    node.take()
    node.start("t-1", "exec sleep 3600")
    node.start("t-2", "exit 2")
    node.ended("t-2")
    node.boot(OTHER_BOOT, 3)
    answer = node.poll("t-1")
    assert (answer.state, answer.boot_id, answer.now_boot_id) == ("interrupted", BOOT, OTHER_BOOT)
    assert node.start("t-1", "true").state == "interrupted"
    assert node.poll("t-2").state == "done"


def test_a_task_outlives_the_shell_and_the_session_that_started_it(node: Node) -> None:
    node.take()
    text = task.task_start("t-1", "1.1", 'cat "$MUSTER_ROOT/gate"')
    os.mkfifo(node.root / "gate")
    with subprocess.Popen(
        [*node.shell, "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "MUSTER_ROOT": str(node.root)},
    ) as starter:  # fmt: skip
        out, _ = starter.communicate(text.encode())  # ends: the task holds neither pipe
        with contextlib.suppress(ProcessLookupError):
            os.killpg(starter.pid, signal.SIGHUP)
            os.killpg(starter.pid, signal.SIGKILL)
    assert task.parse_answer(out).started
    assert node.poll("t-1").state == "running"
    (node.root / "gate").write_text("still here\n")
    answer = node.ended("t-1")
    assert (answer.state, answer.out) == ("done", b"still here\n")


def test_a_script_of_any_bytes_arrives_as_it_was_sent(node: Node) -> None:
    node.take()
    odd = bytes(range(1, 256)).replace(b"\n", b"").replace(b"\r", b"").decode("utf-8", "surrogateescape")
    script = f"cat <<'END'\n{odd}\n$HOME `id` \\ EOF\n\n  MUSTER_COMMAND\nEND\nprintf '%s' \"it's 'ü' $((1 + 1))\""
    assert node.start("t-1", script).started
    answer = node.ended("t-1")
    raw = script.encode("utf-8", "surrogateescape") + b"\n"
    assert (node.state / "tasks/t-1/command").read_bytes() == raw
    assert answer.out.endswith("it's 'ü' 2".encode())


def test_a_text_cut_short_on_its_way_runs_nothing(node: Node) -> None:
    node.take()
    text = task.task_start("t-1", "1.1", "true")
    for part in (0.3, 0.7, 0.99):
        node.run(text[: int(len(text) * part)])
        assert not (node.state / "tasks/t-1").exists()


def test_a_deadline_ends_the_task_and_says_so(node: Node) -> None:
    node.take()
    node.start("t-1", "sleep 3600", deadline_s=1)
    answer = node.ended("t-1")
    assert (answer.state, answer.exit_status) == ("done", 124)


def test_only_the_end_of_a_long_output_is_answered(node: Node) -> None:
    node.take()
    node.start("t-1", "head -c 100000 /dev/zero | tr '\\0' x; echo end")
    answer = node.ended("t-1")
    assert (len(answer.out), answer.out_size, answer.out[-5:]) == (task.TAIL_BYTES, 100004, b"xend\n")


def test_a_full_disk_is_said_and_leaves_no_half_task(node: Node) -> None:
    node.take()
    # A limit on the size of files stands in for a full disk: the script does not fit, the small files do.
    done = node.run(
        task.task_start("t-1", "1.1", "# " + "x" * 600_000), ignored=(signal.SIGXFSZ,), preamble="ulimit -f 100\n"
    )
    answer = task.parse_answer(done.stdout)
    assert (done.returncode, answer.state, answer.started) == (73, "failed", False)
    assert "no space" in answer.why
    assert node.poll("t-1").state == "absent"
    assert [path.name for path in (node.state / "tasks").iterdir()] == []


@pytest.mark.lab("mount", "umount")
def test_on_a_disk_that_is_really_full_nothing_is_started_and_a_running_task_still_records_its_end(node: Node) -> None:
    node.state.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "muster-test", str(node.state)], check=True)
    try:
        node.take()
        assert node.start("t-1", f'head -c 400k /dev/zero >"{node.state}/filler"; exit 5').started
        answer = node.ended("t-1")
        assert (answer.state, answer.exit_status) == ("done", 5)
        failed = node.start("t-2", "true")
        assert failed.state == "failed"
        assert "no space" in failed.why
        assert node.poll("t-2").state == "absent"
        assert node.take().state in ("taken", "failed")
        assert node.show().number == 1
    finally:
        subprocess.run(["umount", "-l", str(node.state)], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_without_permission_root_is_asked_for(node: Node) -> None:
    (node.root / "var").mkdir()
    (node.root / "var").chmod(0o555)
    assert "root" in node.take().why


def test_a_lease_names_its_holder_and_a_second_one_is_refused(node: Node) -> None:
    taken = node.take()
    assert (taken.state, taken.number, taken.reason, taken.boot_id, taken.uptime_s) == (
        "taken",
        1,
        'it\'s "due"\n\\',
        BOOT,
        100,
    )
    refused = node.take("rollout-2")
    assert (refused.state, refused.holder, refused.plan_id, refused.rollout_id) == (
        "refused",
        "anna@control",
        "plan-1",
        "rollout-1",
    )
    assert not refused.expired
    text = lease.lease_take(holder="b", rollout_id="rollout-2", plan_id="p", reason="", ttl_s=1)
    assert node.run(text).returncode == 75


def test_the_number_grows_with_every_take_and_outlives_the_release(node: Node) -> None:
    numbers = []
    for turn in range(3):
        numbers.append(node.take(f"rollout-{turn}").number)
        assert node.release(f"rollout-{turn}").state == "released"
    assert numbers == [1, 2, 3]
    assert node.show().state == "free"
    assert node.release("rollout-2").state == "free"


def test_taking_again_for_the_same_rollout_keeps_the_number_and_renews_the_time(node: Node) -> None:
    first = node.take()
    node.boot(BOOT, 500)
    again = node.take()
    assert (again.state, again.number, again.taken_at, again.uptime_s) == ("taken", 1, first.taken_at, 500)


def test_eight_rollouts_that_want_one_node_at_the_same_time_are_told_one_holder(node: Node) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda turn: node.take(f"rollout-{turn}"), range(8)))
    assert sorted(answer.state for answer in answers) == ["refused"] * 7 + ["taken"]
    assert {answer.rollout_id for answer in answers} == {node.show().rollout_id}


@pytest.mark.parametrize(
    ("boot", "uptime_s", "state"),
    [(BOOT, 159, "held"), (BOOT, 160, "expired"), (OTHER_BOOT, 59, "held"), (OTHER_BOOT, 60, "expired")],
)
def test_expiry_is_by_the_nodes_own_uptime_and_after_a_boot_counts_from_it(
    node: Node, boot: str, uptime_s: int, state: str
) -> None:
    node.take(ttl_s=60)
    node.boot(boot, uptime_s)
    assert node.show().state == state


def test_an_expired_lease_is_taken_over_only_by_who_names_it(node: Node) -> None:
    node.take(ttl_s=60)
    assert node.take("rollout-2", over=1).state == "refused"
    node.boot(BOOT, 1000)
    refused = node.take("rollout-2")
    assert (refused.state, refused.expired, refused.rollout_id) == ("refused", True, "rollout-1")
    assert node.take("rollout-2", over=1).number == 2
    assert node.start("t-1", "true", "1.9").state == "refused"
    assert node.release("rollout-1").state == "refused"


def test_a_damaged_lease_is_never_taken_for_none(node: Node) -> None:
    node.take()
    (node.state / "lease").write_text("")
    assert node.show().state == "failed"
    assert node.take("rollout-2").state == "failed"
    assert node.start("t-1", "true").state == "failed"


@given(st.binary(max_size=400))
def test_no_bytes_are_an_answer_by_chance_and_none_raise(noise: bytes) -> None:
    assert task.parse_answer(noise).state == "unknown"
    assert lease.parse_lease_answer(noise).state == "unknown"


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_an_answer_is_found_among_noise(before: bytes, inside: bytes) -> None:
    record = b'{"exit_status":3,"state":"done"}'
    answer = (
        b"muster-task/1 begin\nstate done\nrecord "
        + record
        + b"\n@out "
        + str(len(inside)).encode()
        + b"\n"
        + inside
        + b"\nmuster-task/1 end\n"
    )
    read = task.parse_answer(before + b"\n" + answer)
    assert (read.state, read.exit_status, read.out) == ("done", 3, inside)
    for cut in range(len(answer) - 1):
        assert task.parse_answer(answer[:cut]).state == "unknown"


@pytest.mark.parametrize("task_id", ["", "../x", "a b", "a;b", "-x", "a\n"])
def test_an_id_that_is_no_name_makes_no_text(task_id: str) -> None:
    with pytest.raises(ValueError, match="task id"):
        task.task_poll(task_id)


def test_a_node_keeps_its_newest_tasks_and_every_one_that_has_no_end(node: Node) -> None:
    node.take()
    tasks = node.root / "var/lib/muster/node/tasks"
    month_ago = 1_700_000_000
    for number in range(task.KEPT_NEWEST + 5):
        place = tasks / f"run-old-{number:03d}"
        place.mkdir(parents=True)
        state = "running" if number == 0 else "done"
        (place / "record.json").write_text(f'{{"task_id":"{place.name}","boot_id":"{BOOT}","state":"{state}"}}\n')
        for path in (place / "record.json", place):
            os.utime(path, (month_ago + number, month_ago + number))
    node.start("run-new-0", "true")
    left = sorted(path.name for path in tasks.iterdir() if path.name.startswith("run-old"))
    assert "run-old-000" in left
    assert len(left) == task.KEPT_NEWEST + 1
    assert node.ended("run-new-0").state == "done"
