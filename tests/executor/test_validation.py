"""The three validations of a change: what was broken before is nobody's fault, what got slower is the driver's, and all are kept."""

import subprocess
from dataclasses import dataclass, field, replace

import pytest

from muster.backends.packages.apt import BACKEND as APT
from muster.backends.schedulers.none import NoScheduler
from muster.backends.system import SystemClock, UlidIds
from muster.backends.validators.builtin import METRICS, BuiltinValidator
from muster.executor.phases import baseline, rollback_validate, validate, wanted
from muster.executor.runner import advanced
from muster.executor.scene import Result, Scene
from muster.executor.session import Session, TaskEnd, TaskState
from muster.model.audit import Record
from muster.model.command import Answered, Command, Outcome, Reload, Validate, Work
from muster.model.fact import Fact, NodeFacts
from muster.model.lease import Fence
from muster.model.node import Node as Host
from muster.model.phase import Event, Phase
from muster.model.run import Run
from muster.model.validation import Floors, Learnt
from muster.model.verdict import Fail, Pass, Undecided
from muster.planner.gates import failed_by_driver
from muster.planner.policy import BUILTIN_METRICS
from tests.support import values

PLAN = values.plan()
OLD, NEW = "570.86.10", "580.126.20"
LEARNING = Floors({}, ("matmul_tflops",))


def printed(driver: str, tflops: float = 50.0, *, verdict: str = "pass", gpus: int = 2) -> bytes:
    rows = "".join(f"GPU-11111111-1111-1111-1111-1111111111{i:02x}, {driver}, NVIDIA H100\n" for i in range(gpus))
    names = ",".join('{"name":"NVIDIA H100"}' for _ in range(gpus))
    return (
        f"loaded {driver}\n{rows}nvidia-smi 0\n"
        '{"schema":"muster.node-validate/1","python":"3.6.8","tests":[]}\n'
        f'{{"test":"devices","verdict":"pass","why":"","figures":{{"gpus":[{names}]}}}}\n'
        f'{{"test":"matmul","verdict":"{verdict}","why":"GPU 1: wrong","figures":{{"matmul_tflops":[{tflops},60]}}}}\n'
        f'{{"test":"end","verdict":"{verdict}"}}\n'
    ).encode()


@dataclass
class Node:
    """In a session's place: a node on whose `driver` a validation prints `out` and exits with `status`."""

    driver: str
    out: bytes
    status: int = 0
    state: TaskState = TaskState.DONE
    limits_s: list[int] = field(default_factory=list)

    async def task(self, name: str, script: str, work: Work, deadline_s: int) -> TaskEnd:
        assert "muster-validate.py" in script
        self.limits_s.append(deadline_s)
        return TaskEnd(self.state, self.status if self.state is TaskState.DONE else None, "", self.out)

    async def look(self) -> NodeFacts:
        seen = {"module.nvidia.loaded_version": self.driver, "gpu.count": 2, "gpu.product": "NVIDIA H100"}
        return NodeFacts("n1", values.T0, {path: Fact(path, value, "t", values.T0) for path, value in seen.items()})


def scene(run: Run, node: Node, floors: Floors) -> Scene:
    step = PLAN.node(run.node).step
    validator = BuiltinValidator(floors)
    return Scene(run, PLAN, step, node, APT, NoScheduler(node), validator, waited_s=61.0)  # type: ignore[arg-type]


def before(node: Node | None = None, floors: Floors = LEARNING) -> tuple[Run, Result]:
    """The run after its baseline on the old driver."""
    run = replace(values.run("n1"), phase=Phase.BASELINE_REQUIRED)
    result = values.inline(baseline(scene(run, node or Node(OLD, printed(OLD)), floors)))
    return advanced(run, result, values.later(1)), result


def after(node: Node, floors: Floors = LEARNING) -> tuple[Run, Result]:
    """The run after its validation on the new driver."""
    run = replace(before()[0], phase=Phase.VALIDATE_REQUIRED)
    result = values.inline(validate(scene(run, node, floors)))
    return advanced(run, result, values.later(2)), result


def test_a_good_baseline_is_kept_and_remembered_for_later() -> None:
    run, result = before()
    assert run.phase is Phase.RESTORE_POINT_REQUIRED
    assert run.notes["figures"] == "matmul_tflops=50.000000"
    assert (run.notes["gpu_count"], run.notes["gpu_product"]) == ("2", "NVIDIA H100")
    kept = result.validated
    assert kept is not None
    assert (kept.node, kept.driver, kept.kind, kept.figures) == ("n1", OLD, "NVIDIA H100", {"matmul_tflops": 50.0})
    assert isinstance(kept.verdict, Pass)
    assert kept.at == values.later(61)


def test_gpus_that_compute_wrongly_before_the_change_are_nobodys_fault() -> None:
    run, result = before(Node(OLD, printed(OLD, verdict="fail"), status=1))
    assert result.event is Event.FAILED
    assert "matmul: GPU 1: wrong" in result.notes["broken_before"]
    assert not failed_by_driver(run)
    assert result.validated is not None
    assert isinstance(result.validated.verdict, Fail)


def test_a_node_below_the_floor_of_its_kind_before_the_change_is_not_changed() -> None:
    kind = Floors({}, ("matmul_tflops",), {("NVIDIA H100", "matmul_tflops"): Learnt(55.0, 61.0, 9)})
    _, result = before(floors=kind)
    assert result.event is Event.FAILED
    assert "the floor is 55" in result.why


def test_a_node_that_is_as_fast_as_before_passes() -> None:
    run, result = after(Node(NEW, printed(NEW, 49.0)))
    assert (run.phase, run.notes["validated"]) == (Phase.RETURN_REQUIRED, NEW)
    assert result.validated is not None
    assert result.validated.driver == NEW


@pytest.mark.parametrize(
    ("out", "status", "words"),
    [
        (printed(NEW, 35.0), 0, "30 % less than this node's own 50"),
        (printed(NEW, verdict="fail"), 1, "matmul: GPU 1: wrong"),
        (printed(NEW, 0.0), 0, "matmul_tflops is 0"),
        (printed(NEW, gpus=1), 0, "1 of 2 GPUs answer"),
    ],
)
def test_what_is_worse_after_the_change_counts_against_the_driver(out: bytes, status: int, words: str) -> None:
    run, result = after(Node(NEW, out, status))
    assert run.phase is Phase.ROLLBACK_REQUIRED
    assert words in run.notes["cause"]
    assert failed_by_driver(run)
    assert result.validated is not None
    assert isinstance(result.validated.verdict, Fail)


def test_without_a_floor_to_learn_a_slower_node_passes() -> None:
    assert after(Node(NEW, printed(NEW, 35.0)), Floors())[1].event is Event.PASSED


@pytest.mark.parametrize("state", [TaskState.LOST, TaskState.INTERRUPTED])
def test_a_validation_that_did_not_end_by_itself_is_tried_again_and_is_no_pass(state: TaskState) -> None:
    run, result = after(Node(NEW, b"", state=state))
    assert (run.phase, run.attempt, result.retry) == (Phase.VALIDATE_REQUIRED, 1, True)
    assert result.validated is not None
    assert isinstance(result.validated.verdict, Undecided)


def test_a_node_that_cannot_be_validated_is_tried_three_times_and_then_stays_as_it_is_in_service() -> None:
    out = printed(OLD).partition(b"{")[0] + b"sh: 1: python3: not found\n"
    run, node = replace(values.run("n1"), phase=Phase.BASELINE_REQUIRED), Node(OLD, out, 127)
    for _ in range(2):
        result = values.inline(baseline(scene(run, node, LEARNING)))
        assert (result.event, result.retry) == (Event.WAITING, True)
        run = advanced(run, result, values.later(1))
    result = values.inline(baseline(scene(run, node, LEARNING)))
    assert result.event is Event.REFUSED
    assert "python3" in result.why
    assert advanced(run, result, values.later(2)).phase is Phase.RELEASE_REQUIRED


def test_after_the_way_back_the_node_is_held_against_what_it_was() -> None:
    run = replace(before()[0], phase=Phase.ROLLBACK_VALIDATE_REQUIRED)
    good = values.inline(rollback_validate(scene(run, Node(OLD, printed(OLD, 50.5)), LEARNING)))
    slow = values.inline(rollback_validate(scene(run, Node(OLD, printed(OLD, 20.0)), LEARNING)))
    assert (good.event, slow.event) == (Event.PASSED, Event.FAILED)


def test_a_validation_may_take_as_long_as_its_validator_says() -> None:
    node = Node(OLD, printed(OLD))
    before(node)
    assert node.limits_s == [BuiltinValidator().limit_s]


def test_every_metric_that_a_policy_can_name_is_one_that_is_measured() -> None:
    assert BUILTIN_METRICS == METRICS


@pytest.mark.parametrize(
    ("programs", "said"), [(("sh", "cat"), ""), (("sh", "no such program"), "needs no such program")]
)
def test_a_preflight_ends_where_a_program_of_the_validation_is_missing(programs: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        ["sh", "-s"], input=f"{wanted(programs)}echo GOES-ON", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1 if said else 0, "")
    assert said in done.stdout
    assert ("GOES-ON" in done.stdout) is (not said)


class Silent:
    """A transport that answers nothing that can be read."""

    async def run(self, node: Host, command: Command) -> Outcome:
        return Answered(0, b"", b"")

    async def close(self) -> None:
        return


def test_the_text_of_a_validation_stands_whole_in_the_log_and_each_nodes_task_cites_its_hash() -> None:
    noted: dict[str, Record] = {}

    async def note(key: str, record: Record) -> None:
        noted.setdefault(key, record)

    clock, script = SystemClock(), BuiltinValidator().script()
    for name in ("n1", "n2"):
        session = Session(
            transport=Silent(), clock=clock, ids=UlidIds(clock), specs=(), node=Host(name, name, None, None, {}, "test"),
            run=values.run(name), plan=PLAN, fence=Fence(1, 1), holder="test", note=note, keep=lambda facts: None, at="",
        )  # fmt: skip
        values.inline(session.task("validate", script, Validate(), 60))
        values.inline(session.task("reload", "modprobe nvidia", Reload(), 60))
    whole = [record for record in noted.values() if record.kind == "script"]
    assert [record.body["script"] for record in whole] == [script]
    commands = [record.body for record in noted.values() if record.kind == "command"]
    assert [body.get("script", body["sha256"]) for body in commands] == [whole[0].body["sha256"], "modprobe nvidia"] * 2
