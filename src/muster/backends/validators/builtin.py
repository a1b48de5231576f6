"""The built-in validation: every GPU answers on the loaded driver, computes, remembers and copies right, and reaches its floors.

What runs on the node is `node/validate.py`, which needs python3 and the driver's library; here its text is made ready and what it printed is
judged. A node without python3 is Unknown. This file runs nothing and reads nothing but that text.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from muster.health.floors import held_against
from muster.model.fact import NodeFacts
from muster.model.frozen import dataclass
from muster.model.validation import NO_FLOORS, Floors
from muster.model.verdict import Fail, Pass, Undecided, Verdict
from muster.ports import Validator

SCHEMA = "muster.node-validate/1"
METRICS = ("matmul_tflops", "memory_gbps", "h2d_gbps", "d2h_gbps", "d2d_gbps", "peer_gbps", "allreduce_gbps")
"""What node/validate.py measures. More is always better."""

LIMIT_S = 600
"""How long all of node/validate.py may take: eight large GPUs need about two minutes; a hang costs its test two more."""

_SCRIPT = r"""
PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C
D=$(mktemp -d "${TMPDIR:-/tmp}/muster-validate.XXXXXX") || exit 73
trap 'rm -rf "$D"' EXIT
echo "loaded $(cat "$MUSTER_ROOT/sys/module/nvidia/version" 2>/dev/null)"
{ nvidia-smi --query-gpu=uuid,driver_version,name --format=csv,noheader; echo $? >"$D/rc"; } </dev/null >"$D/smi" 2>&1 &
tries=0
until [ -s "$D/rc" ] || [ $tries -ge 1200 ]; do
  tries=$((tries + 1))
  sleep 0.05
done
smi=$(cat "$D/rc" 2>/dev/null)
cat "$D/smi"
echo "nvidia-smi ${smi:-hangs}"
[ "$smi" = 0 ] || exit 1
cat >"$D/muster-validate.py" <<'@END@'
@PROGRAM@@END@
python3 -B "$D/muster-validate.py" @OPTIONS@ </dev/null 2>"$D/err"
status=$?
[ $status = 0 ] || tail -n 1 "$D/err"
exit $status
"""

_ROW = re.compile(r"^(GPU-[0-9a-fA-F-]+), *([0-9][0-9.]*), *(.+)$")
_SMI = re.compile(r"^nvidia-smi (\d+|hangs)$")


@cache
def _program() -> str:
    return files("muster.node").joinpath("validate.py").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Told:
    """What a node printed, taken apart: what nvidia-smi said before the line with its status, and the JSON lines after it, by test."""

    loaded: str
    listed: tuple[str, ...]
    smi: str
    begun: bool
    tests: Mapping[str, Mapping[str, Any]]
    rest: str


class BuiltinValidator:
    """`ports.Validator` by computing on the GPUs. `nccl` is the libnccl of an environment on the nodes; without it the loader's own is tried."""

    name = "builtin"
    limit_s = LIMIT_S + 120
    needs: tuple[str, ...] = ("nvidia-smi", "python3")

    def __init__(self, floors: Floors = NO_FLOORS, nccl: str | None = None) -> None:
        self._floors = floors
        self._nccl = nccl

    def script(self) -> str:
        options = f"--limit-s {LIMIT_S}" + (f" --nccl {shlex.quote(self._nccl)}" if self._nccl else "")
        # A delimiter that holds the text's own hash cannot stand inside the text.
        end = f"MUSTER_{hashlib.sha256(_program().encode()).hexdigest()[:32]}"
        return _SCRIPT.replace("@END@", end).replace("@OPTIONS@", options).replace("@PROGRAM@", _program())

    def judge(self, exit_status: int, output: bytes, facts: NodeFacts) -> Verdict:
        """See `ports.Validator`. Silence, and whatever is cut short, is Unknown; no GPU at all, and fewer than the facts list, is a Fail."""
        told = _read(output)
        if told is None:
            return Undecided("the validation printed nothing that can be read")
        verdict = _answers(told, facts)
        if not isinstance(verdict, Pass):
            return verdict
        computed = _computes(told, exit_status)
        if not isinstance(computed, Pass):
            return computed
        before = {metric: text for metric in METRICS if (text := facts.text(f"baseline.{metric}")) is not None}
        reached = held_against(self._floors, facts.text("gpu.product") or "", self.figures(output), _numbers(before))
        if isinstance(reached, Pass):
            return Pass("; ".join(words for words in (verdict.why, computed.why, reached.why) if words))
        return reached

    def figures(self, output: bytes) -> Mapping[str, float]:
        """See `ports.Validator`."""
        told = _read(output)
        found: dict[str, float] = {}
        for body in told.tests.values() if told else ():
            figures = body.get("figures")
            for metric, values in figures.items() if isinstance(figures, dict) else ():
                numbers = [v for v in values if _is_number(v)] if isinstance(values, list) else []
                if metric in METRICS and numbers:
                    found[metric] = float(min(numbers))
        return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _numbers(texts: Mapping[str, str]) -> Mapping[str, float]:
    return {metric: float(text) for metric, text in texts.items() if re.fullmatch(r"[0-9.]{1,20}", text)}


def _read(output: bytes) -> _Told | None:
    """What was printed; None when it does not begin as it should."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    if not lines or not lines[0].startswith("loaded"):
        return None
    at = next((index for index, line in enumerate(lines) if _SMI.match(line)), len(lines))
    smi = lines[at].partition(" ")[2] if at < len(lines) else ""
    bodies = [body for line in lines[at + 1 :] if (body := _json(line)) is not None]
    tests = {str(body["test"]): body for body in bodies if "test" in body}
    begun = any(body.get("schema") == SCHEMA for body in bodies)
    rest = next((line for line in reversed(lines[at + 1 :]) if not line.startswith("{")), "")
    return _Told(lines[0].removeprefix("loaded").strip(), tuple(lines[1:at]), smi, begun, tests, rest[:200])


def _json(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _answers(told: _Told, facts: NodeFacts) -> Verdict:
    """Whether every GPU that the facts list answers nvidia-smi, with the driver that is loaded."""
    if told.smi == "hangs":
        return Fail("nvidia-smi hangs")
    if told.smi != "0":
        words = told.listed[-1] if told.listed else "nothing"
        return (
            Fail(f"nvidia-smi exits {told.smi}: {words}") if told.smi else Undecided(f"it was cut short after: {words}")
        )
    rows = [_ROW.match(line) for line in told.listed]
    if not rows or not all(rows):
        odd = next((line for line, row in zip(told.listed, rows, strict=True) if not row), "no GPU answers")
        return Fail(f"a GPU does not answer as it should: {odd}")
    other = sorted({row[2] for row in rows if row and row[2] != told.loaded})
    if other or not told.loaded:
        return Fail(f"the GPUs answer as {', '.join(other)}, loaded is {told.loaded or 'nothing'}")
    expected = facts.value("gpu.count")
    if not isinstance(expected, int):
        return Undecided("how many GPUs this node has is unknown")
    if len(rows) < expected:
        return Fail(f"{len(rows)} of {expected} GPUs answer")
    return Pass(f"{len(rows)} GPUs answer on {told.loaded}")


def _computes(told: _Told, exit_status: int) -> Verdict:
    """What node/validate.py found. Only a whole output that ends with its own last line, all of it passed, is a Pass."""
    if not told.begun:
        said = f": {told.rest}" if told.rest else ""
        return Undecided(f"the GPUs were not exercised, which needs python3 (3.6 or newer) on the node{said}")
    words = {name: str(body.get("verdict")) for name, body in told.tests.items()}
    failed = [name for name, word in words.items() if word == "fail" and name != "end"]
    if failed:
        return Fail(_whys(told, failed))
    unknown = [name for name, word in words.items() if word not in ("pass", "skip") and name != "end"]
    if unknown:
        return Undecided(_whys(told, unknown))
    if words.get("end") != "pass" or words.get("devices") != "pass" or exit_status != 0:
        return Undecided(f"the validation was cut short (exit {exit_status}); done were: {', '.join(words) or 'none'}")
    count, listed = _gpus(told), len(told.listed)
    if count is not None and count < listed:
        return Fail(f"the driver gives {count} of {listed} GPUs to a program")
    skipped = [f"{name} left out ({told.tests[name].get('why')})" for name, word in words.items() if word == "skip"]
    passed = [name for name, word in words.items() if word == "pass" and name not in ("end", "devices")]
    return Pass("; ".join([f"right in {', '.join(passed)}", *skipped]) if passed else "; ".join(skipped))


def _gpus(told: _Told) -> int | None:
    """How many GPUs a program was given; None where MIG is on, of which one program sees one instance alone."""
    figures = told.tests["devices"].get("figures")
    gpus = figures.get("gpus") if isinstance(figures, dict) else None
    if not isinstance(gpus, list):
        return 0
    names = [str(gpu.get("name")) for gpu in gpus if isinstance(gpu, dict)]
    return None if any(" MIG " in f"{name} " for name in names) else len(gpus)


def _whys(told: _Told, tests: Sequence[str]) -> str:
    return "; ".join(f"{name}: {told.tests[name].get('why') or 'no reason given'}" for name in tests)[:600]


BACKEND: Validator = BuiltinValidator()
