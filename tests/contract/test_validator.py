"""The contract of `ports.Validator`: its text, run by a real sh on a stand-in of a node, and its judgement of what came back.

The node is a folder with GPUs, DCGM and a site's command that are stand-ins; python3 and node/validate.py are real.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.backends._combined import Combined
from muster.backends.validators.builtin import BuiltinValidator
from muster.backends.validators.command import CommandValidator
from muster.backends.validators.dcgm import DcgmValidator
from muster.discovery import discover
from muster.model.fact import Fact, NodeFacts
from muster.model.verdict import Fail, Pass, Undecided, Verdict
from muster.ports import Validator
from tests.support.gpus import QUICK, compiled
from tests.support.values import T0

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures/dcgm"
DRIVER = "580.126.20"
GPUS: Mapping[str, int] = {"builtin": 2, "dcgm": 8, "command": 2, "combined": 2}
"""How many GPUs each validator gets to see: DCGM those of its recorded answer."""

SITE = "/opt/site/check gpus"

VALIDATORS: Mapping[str, Validator] = {
    "builtin": BuiltinValidator(),
    "dcgm": DcgmValidator(1),
    "command": CommandValidator((SITE, "--quick", "it's")),
    "combined": Combined([BuiltinValidator(), DcgmValidator(1), CommandValidator((SITE, "--quick", "it's"))]),
}


def facts(count: int = 2) -> NodeFacts:
    values = {"gpu.count": count, "gpu.product": "Stand-in GPU"}
    return NodeFacts("n1", T0, {path: Fact(path, value, "test", T0) for path, value in values.items()})


@dataclass(frozen=True)
class Ran:
    status: int
    output: bytes


@dataclass(frozen=True)
class Node:
    """A folder that plays a node: `bin` stands first on its PATH."""

    root: Path
    libraries: Path

    def program(self, name: str, text: str, place: str = "bin") -> None:
        file = self.root / place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        file.chmod(0o755)

    def ready(self) -> None:
        """All GPUs well, DCGM and the site's command content."""
        version = self.root / "sys/module/nvidia/version"
        version.parent.mkdir(parents=True, exist_ok=True)
        version.write_text(f"{DRIVER}\n", encoding="ascii")
        rows = "".join(f"GPU-11111111-1111-1111-1111-1111111111{i:02x}, {DRIVER}, Stand-in GPU\n" for i in range(2))
        self.program("nvidia-smi", f"cat <<'X'\n{rows}X")
        # The default sizes are a GPU's work.
        self.program("python3", f'exec {sys.executable} "$@" {" ".join(QUICK)} --deadline-s 600 --memory-share 0.2')
        self.program("dcgmi", f"cat {FIXTURES / '3.1.0_8gpu_pass.txt'}")
        self.program("check gpus", '[ "$1 $2" = "--quick it\'s" ] || exit 9; echo all is well', "opt/site")

    def run(self, validator: Validator, fault: str = "") -> Ran:
        text = validator.script().replace("/opt/site", f"{self.root}/opt/site")
        scratch = self.root / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = {
            "PATH": f"{self.root}/bin:/usr/bin:/bin", "MUSTER_ROOT": str(self.root), "TMPDIR": str(scratch), "STANDIN_FAULT": fault,
            "LD_LIBRARY_PATH": str(self.libraries), "STANDIN_GPUS": "2", "STANDIN_MEMORY_MIB": "16",
        }  # fmt: skip
        done = subprocess.run(
            ["sh", "-s"], input=text.encode(), capture_output=True, env=environment, timeout=900, check=False
        )
        assert list(scratch.iterdir()) == []  # nothing is left behind, whatever happened
        return Ran(done.returncode, done.stdout)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("standins"))


@pytest.fixture
def node(tmp_path: Path, libraries: Path) -> Node:
    made = Node(tmp_path, libraries)
    made.ready()
    return made


@pytest.fixture(params=sorted(VALIDATORS))
def kind(request: pytest.FixtureRequest, covers: Callable[[str, str], None]) -> str:
    covers("Validator", request.param)
    return str(request.param)


def judged(kind: str, ran: Ran, more: int = 0) -> Verdict:
    return VALIDATORS[kind].judge(ran.status, ran.output, facts(GPUS[kind] + more))


def test_every_validator_that_can_be_found_is_under_contract() -> None:
    assert set(discover("muster.backends.validators", "BACKEND")) == set(VALIDATORS) - {"combined"}


def test_a_node_that_is_well_passes_and_every_byte_of_its_answer_counts(kind: str, node: Node) -> None:
    ran = node.run(VALIDATORS[kind])
    verdict = judged(kind, ran)
    assert isinstance(verdict, Pass), verdict
    assert verdict.why
    assert len(ran.output) < 16384
    if kind == "command":
        return  # what it prints is for people; its exit status speaks
    for size in range(0, len(ran.output.rstrip()), 7):
        cut = judged(kind, Ran(ran.status, ran.output[:size]))
        assert not isinstance(cut, Pass), ran.output[:size][-80:]
        tail = judged(kind, Ran(ran.status, ran.output[size + 1 :]))
        assert not isinstance(tail, Pass), ran.output[size + 1 :][:80]


@pytest.mark.parametrize("status", [1, 5, 126, 127, 137, 226])
def test_an_exit_status_that_is_not_0_is_never_a_pass(kind: str, status: int, node: Node) -> None:
    if kind == "combined":
        return  # the exit status of each of its parts stands in the answer
    ran = node.run(VALIDATORS[kind]) if kind == "command" else Ran(0, GOOD[kind])
    assert isinstance(judged(kind, Ran(0, ran.output)), Pass)
    assert not isinstance(judged(kind, Ran(status, ran.output)), Pass)


GOOD: Mapping[str, bytes] = {
    "builtin": "".join(
        [
            f"loaded {DRIVER}\n",
            *(f"GPU-11111111-1111-1111-1111-1111111111{i:02x}, {DRIVER}, Stand-in GPU\n" for i in range(2)),
            'nvidia-smi 0\n{"schema":"muster.node-validate/1"}\n',
            '{"test":"devices","verdict":"pass","figures":{"gpus":[{"name":"a"},{"name":"a"}]}}\n',
            '{"test":"matmul","verdict":"pass"}\n{"test":"end","verdict":"pass"}\n',
        ]
    ).encode(),
    "dcgm": (FIXTURES / "3.1.0_8gpu_pass.txt").read_bytes(),
}


def test_a_node_that_is_wrong_fails_and_says_where(kind: str, node: Node) -> None:
    wrong = (FIXTURES / "3.1.0_8gpu_pass.txt").read_text(encoding="utf-8").replace('"PASS"', '"FAIL"', 1)
    node.program("dcgmi", f"cat <<'X'\n{wrong}X\nexit 226")
    node.program("check gpus", "echo link 3 is down; exit 1", "opt/site")
    ran = node.run(VALIDATORS[kind], "bit-flip")
    verdict = judged(kind, ran)
    assert isinstance(verdict, Fail), verdict
    expected = {"builtin": ["matmul: GPU 1"], "dcgm": ["Denylist, GPU 0"], "command": ["link 3 is down"]}
    for words in expected.get(kind, ["matmul: GPU 1", "Denylist, GPU 0", "link 3 is down"]):
        assert words in verdict.why


def test_a_tool_that_is_not_there_is_unknown_not_well(kind: str, node: Node) -> None:
    for name in ("bin/python3", "bin/dcgmi", "opt/site/check gpus"):
        (node.root / name).unlink()
    path = node.root / "only"
    path.mkdir()
    for tool in ("sh", "cat", "mktemp", "rm", "tail", "wc", "sleep", "gzip", "base64", "tr"):
        (path / tool).symlink_to(str(shutil.which(tool)))
    text = VALIDATORS[kind].script().replace("/opt/site", f"{node.root}/opt/site")
    environment = {"PATH": f"{node.root}/bin:{path}", "MUSTER_ROOT": str(node.root), "TMPDIR": str(node.root)}
    text = text.replace("PATH=$PATH:/usr/sbin:/sbin", "PATH=$PATH")
    done = subprocess.run(
        [str(shutil.which("sh")), "-s"], input=text.encode(), capture_output=True, env=environment, check=False
    )
    verdict = judged(kind, Ran(done.returncode, done.stdout))
    assert isinstance(verdict, Undecided), verdict
    named = {"builtin": "python3", "dcgm": "dcgmi", "command": "cannot be run"}
    assert named.get(kind, "python3") in verdict.why


def test_fewer_gpus_than_the_node_had_are_not_a_pass(kind: str, node: Node) -> None:
    if kind == "command":
        return  # it says what it likes
    verdict = judged(kind, node.run(VALIDATORS[kind]), more=1)
    assert isinstance(verdict, Fail)
    assert f"{GPUS[kind]} of {GPUS[kind] + 1}" in verdict.why


@given(st.binary(max_size=300), st.integers(0, 255), st.sampled_from(sorted(VALIDATORS)))
def test_no_output_raises_or_passes_by_chance(output: bytes, status: int, kind: str) -> None:
    validator = VALIDATORS[kind]
    verdict = validator.judge(status, output, facts())
    assert not isinstance(verdict, Pass) or (kind == "command" and status == 0)
    validator.figures(output)


@given(st.data())
def test_no_damage_to_a_good_answer_raises(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(GOOD)))
    output = bytearray(GOOD[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(output) - 1))
        output[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=6))
        output = output or bytearray(b"{")
    VALIDATORS[kind].judge(0, bytes(output), facts())
    VALIDATORS[kind].figures(bytes(output))


def test_the_text_is_one_that_every_posix_shell_reads(kind: str) -> None:
    for shell in (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"]):
        if shutil.which(shell[0]):
            text = VALIDATORS[kind].script().encode()
            done = subprocess.run([*shell, "-n"], input=text, capture_output=True, check=False)
            assert (done.returncode, done.stderr) == (0, b""), shell


def test_what_it_measures_is_that_of_the_worst_gpu(node: Node) -> None:
    figures = VALIDATORS["builtin"].figures(node.run(VALIDATORS["builtin"], "slow").output)
    assert figures["matmul_tflops"] == pytest.approx(14, rel=0.01)
    assert set(figures) == {
        "matmul_tflops", "memory_gbps", "h2d_gbps", "d2h_gbps", "d2d_gbps", "peer_gbps", "allreduce_gbps",
    }  # fmt: skip


def test_environment_of_the_test_leaks_nothing_into_the_node() -> None:
    assert "STANDIN_FAULT" not in os.environ
