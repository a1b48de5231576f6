"""`ibstatus`: the InfiniBand and RoCE ports as the kernel names them. States are given in ibstat's words (`4: ACTIVE` is `Active`)."""

import re
from collections.abc import Mapping

from muster.facts.captures import _ib
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue

_PORT = re.compile(r"Infiniband device '([\w.-]{1,60})' port (\d{1,3}) status:\s*")
_LINE = re.compile(r"\s+([a-z][a-z_ ]{0,40}):\s+(.{1,200})")
_FIELDS = {
    "state": "state", "phys state": "physical_state", "rate": "rate", "base lid": "lid", "link_layer": "link_layer", "default gid": "gid",
}  # fmt: skip
_NUMBER = re.compile(r"\d{1,2}: (\w+)")


def sniff(head: str) -> int:
    return 95 if _PORT.match(head.lstrip("\n")) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    ports: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in text.split("\n"):
        port, value = _PORT.fullmatch(line), _LINE.fullmatch(line)
        if port:
            current = ports.setdefault(f"{port[1]}/{port[2]}", {}) if len(ports) < _ib.MOST_PORTS else {}
        elif value:
            current.setdefault(value[1], _state(value[1], value[2].strip()))
    return _ib.facts(ports, _FIELDS)


def _state(word: str, value: str) -> str:
    number = _NUMBER.fullmatch(value)
    if number is None:
        return value
    return number[1].capitalize() if word == "state" else number[1]


READER = CaptureSpec("ibstatus", "ibstatus", sniff, parse)
