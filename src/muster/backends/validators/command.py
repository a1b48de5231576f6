"""Validation by a site's own command: its exit status, and one JSON object on its last line when it wants to say more.

    {"verdict": "pass" | "fail" | "unknown", "why": "words for people", "figures": {"metric": 1.5}}

Exit status 0 passes; a verdict in the JSON can only make that worse. It is run with standard input closed, under the environment of a task.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from muster.health.floors import held_against
from muster.model.fact import NodeFacts
from muster.model.validation import NO_FLOORS, Floors
from muster.model.verdict import Fail, Pass, Undecided, Verdict
from muster.ports import Validator

LIMIT_S = 900

CANNOT_RUN = (126, 127)
"""What a shell says of a command that is not there, or not executable."""

TIMED_OUT = 124


class CommandValidator:
    """`ports.Validator` by `argv`, run on the node."""

    name = "command"
    limit_s = LIMIT_S

    def __init__(self, argv: Sequence[str] = ("true",), floors: Floors = NO_FLOORS) -> None:
        self._argv = tuple(argv)
        self.needs: tuple[str, ...] = self._argv[:1]
        self._floors = floors

    def script(self) -> str:
        return f"PATH=$PATH:/usr/sbin:/sbin\nexport PATH\n{shlex.join(self._argv)} </dev/null\n"

    def judge(self, exit_status: int, output: bytes, facts: NodeFacts) -> Verdict:
        """See `ports.Validator`."""
        body, words = _said(output)
        why = f"{self._argv[0]}: {body.get('why') or words or 'no words'}"[:400]
        if exit_status in CANNOT_RUN:
            return Undecided(f"{self._argv[0]} cannot be run on the node (exit {exit_status}): {words}")
        verdict = str(body.get("verdict", "pass")).lower()
        if verdict == "unknown":
            return Undecided(why)
        if exit_status == TIMED_OUT:
            return Fail(f"{self._argv[0]} exits {exit_status}, as for a command that did not end in time: {words}")
        if exit_status != 0 or verdict == "fail":
            return Fail(why if body.get("why") else f"{self._argv[0]} exits {exit_status}: {words or 'no words'}")
        if verdict != "pass":
            return Undecided(f"{self._argv[0]} gives the verdict {verdict[:40]!r}; it is pass, fail or unknown")
        before = {name: float(text) for name in self.figures(output) if (text := facts.text(f"baseline.{name}"))}
        reached = held_against(self._floors, facts.text("gpu.product") or "", self.figures(output), before)
        return Pass(f"{why}; {reached.why}".rstrip("; ")) if isinstance(reached, Pass) else reached

    def figures(self, output: bytes) -> Mapping[str, float]:
        """See `ports.Validator`."""
        given = _said(output)[0].get("figures")
        items = given.items() if isinstance(given, dict) else ()
        return {str(name): float(v) for name, v in items if type(v) in (int, float) and abs(v) < 1e30}


def _said(output: bytes) -> tuple[Mapping[str, Any], str]:
    """The JSON object on the last line, if that is one, and the last line that is none."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    body: object = None
    if lines and lines[-1].startswith("{"):
        try:
            body = json.loads(lines[-1])
        except (ValueError, RecursionError):
            body = None
    plain = lines[:-1] if isinstance(body, dict) else lines
    words = "".join(c if c.isprintable() else "?" for c in plain[-1])[:200] if plain else ""
    return (body if isinstance(body, dict) else {}), words


BACKEND: Validator = CommandValidator()
