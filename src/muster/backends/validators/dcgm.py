"""Validation by NVIDIA's own `dcgmi diag -j`: reads what it printed, of DCGM 3.x and 4.x. It needs DCGM, and its host engine, on the node.

The form of that JSON is promised by nobody (docs.nvidia.com says to pin a release); what both majors share is read, and anything that cannot
be read is Unknown. A test that passes with a warning is not taken for a pass: DCGM 4.5's memory test passes where it could allocate nothing.
"""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from muster.model.fact import NodeFacts
from muster.model.frozen import dataclass
from muster.model.verdict import Degraded, Fail, Pass, Undecided, Verdict, worst
from muster.ports import Validator

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
"""The key of the diagnostic itself: of 4.x and of 3.x."""

CONFIG, MONITOR = 5, 1
"""`error_severity` of what is set otherwise than DCGM wants (persistence mode), and of what shall be watched: the GPU is usable."""

LIMITS_S: Mapping[int, int] = {1: 300, 2: 900, 3: 3600, 4: 10800}
"""How long each level may take. NVIDIA says seconds, 2, 15 minutes and longer, for one GPU of the newest kinds."""

UNPACKED_MOST = 4 * 1024 * 1024
"""A level 4 of sixteen GPUs prints some hundred kilobytes."""

NOT_FOUND = 127

_SCRIPT = """\
PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C
command -v dcgmi >/dev/null || { echo 'dcgmi is not installed here'; exit 127; }
D=$(mktemp -d "${TMPDIR:-/tmp}/muster-validate.XXXXXX") || exit 73
trap 'rm -rf "$D"' EXIT
dcgmi diag -r @LEVEL@ -j </dev/null >"$D/out" 2>&1
status=$?
# It prints tens of kilobytes, mostly blanks; an answer carries a few.
printf 'gzip-base64 '
gzip -9c "$D/out" | base64 | tr -d '\\n'
echo
exit $status
"""

_PACKED = re.compile(rb"gzip-base64 ([A-Za-z0-9+/=]+)\s*$")


@dataclass(frozen=True, slots=True)
class _Result:
    """What one test says of some GPUs (none named: of all)."""

    test: str
    gpus: tuple[str, ...]
    status: str
    warnings: tuple[tuple[str, int | None], ...]
    """Words and severity."""


class DcgmValidator:
    """`ports.Validator` by DCGM's diagnostic at a level, 1 to 4."""

    name = "dcgm"
    needs: tuple[str, ...] = ("dcgmi",)

    def __init__(self, level: int = 2) -> None:
        self._level = level
        self.limit_s = LIMITS_S[level]

    def script(self) -> str:
        return _SCRIPT.replace("@LEVEL@", str(self._level))

    def judge(self, exit_status: int, output: bytes, facts: NodeFacts) -> Verdict:
        """See `ports.Validator`. Findings of severity config or monitor alone are Degraded."""
        text = unpacked(output)
        root = _root(text)
        if root is None:
            words = "".join(c if c.isprintable() else " " for c in text.strip()[-200:])
            return Undecided(f"dcgmi says nothing that can be read (exit {exit_status}): {words or 'nothing'}")
        error = root.get("runtime_error")
        if isinstance(error, str) and error.strip():
            return Undecided(f"dcgmi could not run its tests: {error.strip()[:300]}")
        results = tuple(_results(root))
        judged = worst(_judged(result) for result in results) if results else Undecided("dcgmi ran no test")
        if not isinstance(judged, Pass):
            return judged
        if exit_status != 0:
            return Undecided(f"every test of dcgmi passed, and it exits {exit_status}")
        return _counted(results, facts)

    def figures(self, output: bytes) -> Mapping[str, float]:
        """None: its words hold some, in no form that is promised."""
        return {}


def unpacked(output: bytes) -> str:
    """What dcgmi printed, from its packed form or as it is. Never raises; of packing that is damaged or cut short, nothing."""
    match = _PACKED.search(output)
    if match is None:
        return output.decode(errors="replace")
    unpacking = zlib.decompressobj(wbits=31)
    try:
        text = unpacking.decompress(base64.b64decode(match[1]), UNPACKED_MOST)
    except (zlib.error, binascii.Error, ValueError):
        return ""
    return text.decode(errors="replace") if unpacking.eof else ""


def _root(text: str) -> Mapping[str, Any] | None:
    """The diagnostic in `text`, which may begin with other lines."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        body, _ = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return None
    for key in ROOTS:
        if isinstance(body, dict) and isinstance(body.get(key), dict):
            found: dict[str, Any] = body[key]
            return found
    return None


def _listed(body: object, key: str) -> Iterator[Mapping[str, Any]]:
    """The mappings in the list under `key`; other things in it (3.1 prints nulls) are not there."""
    found = body.get(key) if isinstance(body, dict) else None
    yield from (each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()


def _results(root: Mapping[str, Any]) -> Iterator[_Result]:
    for category in _listed(root, "test_categories"):
        for test in _listed(category, "tests"):
            name = str(test.get("name", "a test without a name"))
            results = [_result(name, result) for result in _listed(test, "results")]
            yield from results
            # Of 4.x: it says once more what its results say (4.2 without the severity), or alone what failed as a whole.
            summary = test.get("test_summary")
            whole = _result(name, summary) if isinstance(summary, dict) else None
            if whole is not None and all(result.status != whole.status for result in results):
                yield whole


def _result(test: str, body: Mapping[str, Any]) -> _Result:
    ids = next((body[key] for key in ("gpu_ids", "gpu_id", "entity_id") if key in body), "")
    gpus = tuple(part.strip() for part in str(ids).split(",") if part.strip())
    given = body.get("warnings", [])
    warnings = []
    for each in given if isinstance(given, list) else [given]:
        severity = each.get("error_severity") if isinstance(each, dict) else None
        words = each.get("warning", each) if isinstance(each, dict) else each
        warnings.append((str(words)[:200], severity if isinstance(severity, int) else None))
    return _Result(test, gpus, str(body.get("status", "")).strip().lower(), tuple(warnings))


def _judged(result: _Result) -> Verdict:
    where = f"{result.test}, GPU {', '.join(result.gpus)}" if result.gpus else result.test
    words = "; ".join(text for text, _ in result.warnings) or "no reason given"
    mild = result.warnings and all(severity in (CONFIG, MONITOR) for _, severity in result.warnings)
    match result.status:
        case "pass" if not result.warnings:
            return Pass()
        case "pass":
            return Undecided(f"{where} passes, but: {words}")
        case "skip" | "notrun" | "not run":
            return Pass()  # whether anything was tried at all is counted over all tests
        case "fail":
            return Degraded(f"{where}: {words}") if mild else Fail(f"{where}: {words}")
        case "warn":
            return Degraded(f"{where}: {words}")
        case other:
            return Undecided(f"{where}: what status {other[:40]!r} means is unknown")


def _counted(results: tuple[_Result, ...], facts: NodeFacts) -> Verdict:
    """Everything that was tried passed: whether enough was, on all GPUs."""
    tried = [result for result in results if result.status == "pass"]
    if not tried:
        return Undecided("dcgmi skipped every test")
    expected, seen = facts.value("gpu.count"), {gpu for result in tried for gpu in result.gpus}
    if not isinstance(expected, int):
        return Undecided("how many GPUs this node has is unknown")
    if len(seen) < expected:
        return Fail(f"dcgmi tested {len(seen)} of {expected} GPUs")
    names = dict.fromkeys(result.test for result in tried)
    left = dict.fromkeys(result.test for result in results if result.status != "pass" and result.test not in names)
    return Pass(f"dcgmi passes {len(names)} tests" + (f"; left out: {', '.join(left)}" if left else ""))


BACKEND: Validator = DcgmValidator()
