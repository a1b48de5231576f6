"""Several validators as one: their texts run one after the other, and a node passes when all of them pass. Knows them by their port alone."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

from muster.model.fact import NodeFacts
from muster.model.verdict import Degraded, Fail, Pass, Skipped, Undecided, Verdict, worst
from muster.ports import Validator

PART_BYTES = 5000
"""How much of each part's output is sent. Three parts fit the tail of a task's output; what is cut short is Unknown, not good."""

_PART = r"""
cat >"$MUSTER_PARTS/script" <<'@END@'
@SCRIPT@@END@
sh "$MUSTER_PARTS/script" >"$MUSTER_PARTS/out" 2>&1 </dev/null
status=$?
[ $status = 0 ] || worst=1
tail -c @MOST@ "$MUSTER_PARTS/out" >"$MUSTER_PARTS/tail"
printf '@part %s %s %s\n' '@NAME@' $status $(($(wc -c <"$MUSTER_PARTS/tail")))
cat "$MUSTER_PARTS/tail"
printf '\n'
"""

_HEAD = re.compile(rb"@part ([a-z]+) (\d{1,3}) (\d{1,6})\n")


class Combined:
    """`ports.Validator` of several others."""

    def __init__(self, parts: Sequence[Validator]) -> None:
        self._parts = tuple(parts)
        self.name = "+".join(part.name for part in parts)
        self.limit_s = sum(part.limit_s for part in parts)
        self.needs = tuple(dict.fromkeys(program for part in parts for program in part.needs))

    def script(self) -> str:
        text = 'MUSTER_PARTS=$(mktemp -d "${TMPDIR:-/tmp}/muster-parts.XXXXXX") || exit 73\n'
        text += "trap 'rm -rf \"$MUSTER_PARTS\"' EXIT\nworst=0\n"
        for part in self._parts:
            script = part.script()
            script += "" if script.endswith("\n") else "\n"
            end = f"MUSTER_PART_{hashlib.sha256(script.encode()).hexdigest()[:32]}"
            body = _PART.replace("@END@", end).replace("@NAME@", part.name).replace("@MOST@", str(PART_BYTES))
            text += body.replace("@SCRIPT@", script)
        return text + "exit $worst\n"

    def judge(self, exit_status: int, output: bytes, facts: NodeFacts) -> Verdict:
        """The worst verdict of all parts, with the words of those that have it; a part that did not answer is Unknown."""
        told = _told(output)
        verdicts = [
            part.judge(*told[part.name], facts) if part.name in told else Undecided(f"{part.name} gave no answer")
            for part in self._parts
        ]
        last = worst(verdicts)
        if isinstance(last, Skipped):
            return last
        words = [
            f"{part.name}: {_why(verdict)}"
            for part, verdict in zip(self._parts, verdicts, strict=True)
            if type(verdict) is type(last)
        ]
        return _same(last, "; ".join(words))

    def figures(self, output: bytes) -> Mapping[str, float]:
        """Those of all parts; where two name the same metric, the lower one."""
        told, found = _told(output), dict[str, float]()
        for part in self._parts:
            for metric, value in (part.figures(told[part.name][1]) if part.name in told else {}).items():
                found[metric] = min(value, found.get(metric, value))
        return found


def _told(output: bytes) -> Mapping[str, tuple[int, bytes]]:
    """Part -> exit status and output, of the parts that are there whole."""
    return {name: (status, part) for name, status, part in _frames(output)}


def _frames(output: bytes) -> Iterator[tuple[str, int, bytes]]:
    at = 0
    while (head := _HEAD.match(output, at)) is not None:
        end = head.end() + int(head[3])
        if end + 1 > len(output):
            return
        yield head[1].decode(), int(head[2]), output[head.end() : end]
        at = end + 1


def _why(verdict: Verdict) -> str:
    return "" if isinstance(verdict, Skipped) else verdict.why


def _same(verdict: Verdict, why: str) -> Verdict:
    kinds: tuple[type[Pass | Degraded | Fail | Undecided], ...] = (Pass, Degraded, Fail)
    return next((kind(why) for kind in kinds if isinstance(verdict, kind)), Undecided(why))
