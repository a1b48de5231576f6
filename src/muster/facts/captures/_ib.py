"""InfiniBand and RoCE ports as facts, for the tools that list them in different words. Pure."""

from collections.abc import Mapping

from muster.facts.captures import _text
from muster.model.fact import FactValue, Unknown

MOST_PORTS = 512


def facts(ports: Mapping[str, Mapping[str, str]], fields: Mapping[str, str]) -> Mapping[str, FactValue]:
    """`ib[<device>/<port>].state` and so on: `fields` is the tool's word (lower case) -> the fact's. No port at all: `ib.ports` is Unknown."""
    found: dict[str, FactValue] = {"ib.ports": len(ports) or Unknown("the output lists no port")}
    for name, port in ports.items():
        for word, field in fields.items():
            if word in port:
                found[f"ib[{_text.key(name)}].{field}"] = port[word][:120]
    return found
