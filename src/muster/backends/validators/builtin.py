"""The built-in validation: every GPU answers, none was lost, the driver that answers is the one that is loaded.

It does not compute on the GPUs yet; what it proves is stated in its verdict.
"""

import re

from muster.model.fact import NodeFacts
from muster.model.verdict import Fail, Pass, Undecided, Verdict
from muster.ports import Validator

_SCRIPT = """\
PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C
echo "loaded $(cat "$MUSTER_ROOT/sys/module/nvidia/version" 2>/dev/null)"
nvidia-smi --query-gpu=uuid,driver_version,name --format=csv,noheader
"""

_ROW = re.compile(r"^(GPU-[0-9a-fA-F-]+), *([0-9][0-9.]*), *(.+)$")


class BuiltinValidator:
    """`ports.Validator` from nvidia-smi alone."""

    name = "builtin"

    def script(self) -> str:
        return _SCRIPT

    def judge(self, exit_status: int, output: bytes, facts: NodeFacts) -> Verdict:
        """Pass only when every GPU that the facts list answers with the loaded driver. No GPU at all is a Fail, silence is Unknown."""
        lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
        if not lines or not lines[0].startswith("loaded"):
            return Undecided("the validation printed nothing that can be read")
        loaded = lines[0].removeprefix("loaded").strip()
        if exit_status != 0:
            return Fail(f"nvidia-smi exits {exit_status}: {lines[-1]}")
        rows = [_ROW.match(line) for line in lines[1:]]
        if not rows or not all(rows):
            odd = next((line for line, row in zip(lines[1:], rows, strict=True) if not row), "no GPU answers")
            return Fail(f"a GPU does not answer as it should: {odd}")
        other = sorted({row[2] for row in rows if row and row[2] != loaded})
        if other or not loaded:
            return Fail(f"the GPUs answer as {', '.join(other)}, loaded is {loaded or 'nothing'}")
        expected = facts.value("gpu.count")
        if not isinstance(expected, int):
            return Undecided("how many GPUs this node has is unknown")
        if len(rows) < expected:
            return Fail(f"{len(rows)} of {expected} GPUs answer")
        return Pass(f"{len(rows)} GPUs answer on {loaded}")


BACKEND: Validator = BuiltinValidator()
