"""`ibstat`: the InfiniBand and RoCE ports of a node, and the tool's own failure, which leaves ports out."""

import re
from collections.abc import Mapping

from muster.facts.captures import _ib
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue

_CA = re.compile(r"CA '([\w.-]{1,60})'\s*")
_PORT = re.compile(r"\s+Port (\d{1,3}):\s*")
_LINE = re.compile(r"\s+([A-Za-z][A-Za-z ]{0,40}): (.{1,200})")
_PANIC = re.compile(r"^ibpanic: (.{1,300})", re.MULTILINE)
_FIELDS = {
    "state": "state", "physical state": "physical_state", "rate": "rate_gbps", "base lid": "lid", "link layer": "link_layer",
    "port guid": "guid", "ca type": "ca_type", "firmware version": "firmware",
}  # fmt: skip


def sniff(head: str) -> int:
    if _CA.match(head.lstrip("\n")):
        return 95
    return 90 if head.startswith("ibpanic: ") else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`ib[<device>/<port>].state`, `.physical_state`, `.rate_gbps`, ...; `ib.trouble` when the tool gave up: then more ports may be there."""
    ports: dict[str, dict[str, str]] = {}
    adapter: dict[str, str] = {}
    current: dict[str, str] = {}
    device = ""
    for line in text.split("\n"):
        started, port, value = _CA.fullmatch(line), _PORT.fullmatch(line), _LINE.fullmatch(line)
        if started:
            device, adapter = started[1], {}
            current = adapter
        elif port and device and len(ports) < _ib.MOST_PORTS:
            current = ports.setdefault(f"{device}/{port[1]}", dict(adapter))
        elif value:
            current.setdefault(value[1].lower(), value[2].strip())
    found = dict(_ib.facts(ports, _FIELDS))
    panic = _PANIC.search(text)
    if panic:
        found["ib.trouble"] = panic[1]
    return found


READER = CaptureSpec("ibstat", "ibstat", sniff, parse)
