"""Findings in the forms that other programs read: Prometheus text for node-exporter, and one line for a scheduler's health check.

Renders text from values, and puts a text in its place whole. Judges nothing.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from muster.model.errors import BadInput
from muster.model.fact import NodeFacts
from muster.model.finding import Finding, Severity
from muster.model.frozen import dataclass

TEXTFILE = "muster.prom"
LINE_CHARS = 250
"""Of the one-line form: Slurm keeps a drain reason of some hundred characters, and syslog cuts long lines."""

CLEAN, FOUND, NOT_KNOWN = 0, 1, 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which findings are asked for: of these severities and codes, on this node; empty is any."""

    severities: tuple[Severity, ...] = ()
    codes: tuple[str, ...] = ()
    node: str = ""

    def of(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Those of `findings` that are asked for, in their order. One that names no node is the whole fleet's, and no single node's."""
        return tuple(
            each
            for each in findings
            if (not self.severities or each.severity in self.severities)
            and (not self.codes or each.code in self.codes)
            and (not self.node or self.node in each.nodes)
        )


def exit_code(findings: Sequence[Finding]) -> int:
    """0 clean, 1 findings, 5 something is unknown, which is not clean."""
    if any(each.severity is Severity.UNKNOWN for each in findings):
        return NOT_KNOWN
    return FOUND if findings else CLEAN


def one_line(name: str, findings: Sequence[Finding]) -> str:
    """The findings of a node in one line of printable characters, the worst first; at most `LINE_CHARS` long."""
    if not findings:
        return f"OK {name}: no findings"
    first, *more = findings
    end = f" (and {len(more)} more: {', '.join(dict.fromkeys(each.code for each in more))})" if more else ""
    text = f"{first.severity.value.upper()} {name}: {first.code}: {first.evidence}"
    room = LINE_CHARS - min(len(end), LINE_CHARS // 2)
    line = (text if len(text) <= room else text[: room - 3] + "...") + end
    plain = "".join(each if each.isprintable() else " " for each in line)
    return plain if len(plain) <= LINE_CHARS else plain[: LINE_CHARS - 3] + "..."


def textfile(
    findings: Sequence[Finding],
    pools: Mapping[str, str],
    facts: Mapping[str, NodeFacts],
    now: datetime,
) -> str:
    """The findings as Prometheus text (exposition format 0.0.4). `pools` gives every node's pool, and so the nodes there are.

    A node's last collect is its last whole look: one that failed does not renew it.
    """
    counts: dict[tuple[str, str, str], int] = {}
    unknown: set[str] = set()
    for each in findings:
        if each.severity is Severity.UNKNOWN:
            unknown |= set(each.nodes)
        for pool in [pools.get(node, "") for node in each.nodes] or [""]:
            key = (each.code, each.severity.value, pool)
            counts[key] = counts.get(key, 0) + 1
    sizes = {pool: list(pools.values()).count(pool) for pool in sorted(set(pools.values()))}
    last = {node: facts[node].observed_at for node in sorted(pools) if node in facts and facts[node].facts}
    lines = [
        *_metric("muster_findings", "Nodes with this finding at the last check."),
        *(
            _sample("muster_findings", count, code=code, severity=severity, pool=pool)
            for (code, severity, pool), count in sorted(counts.items())
        ),
        *_metric("muster_nodes", "Nodes of the inventory."),
        *(_sample("muster_nodes", count, pool=pool) for pool, count in sizes.items()),
        *_metric("muster_nodes_unknown", "Nodes of which something is unknown, which is not the same as good."),
        _sample("muster_nodes_unknown", len(unknown & set(pools))),
        *_metric("muster_last_collect_timestamp_seconds", "When the node was last looked at."),
        *(
            _sample("muster_last_collect_timestamp_seconds", int(at.timestamp()), node=node)
            for node, at in last.items()
        ),
        *_metric("muster_last_check_timestamp_seconds", "When this file was made."),
        _sample("muster_last_check_timestamp_seconds", int(now.timestamp())),
    ]
    return "\n".join(lines) + "\n"


def put_textfile(folder: Path, text: str) -> Path:
    """Write `text` as `muster.prom` into node-exporter's folder, whole or not at all, readable for all. Raises BadInput where it cannot be."""
    place = folder / TEXTFILE
    # node-exporter reads *.prom alone; the other name keeps a half-written file from it.
    part = folder / f".{TEXTFILE}.{os.getpid()}"
    try:
        try:
            with part.open("w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(part, place)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(
            f"{folder}: {error.strerror or error}",
            hint="give the folder of node-exporter's --collector.textfile.directory, and the right to write there",
        ) from error
    return place


def _metric(name: str, help_text: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} gauge"


def _sample(name: str, value: int, **labels: str) -> str:
    said = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{said}}} {value}" if said else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
