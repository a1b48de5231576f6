"""Rows of `dkms status`, which stand in other outputs too. Pure.

dkms 2 writes `module, version, kernel, arch: state`, dkms 3 `module/version, kernel, arch: state`.
"""

import re
from collections.abc import Iterable, Mapping

from muster.facts.captures import _text
from muster.model.fact import FactValue

MOST_ROWS = 2_000

_ROW = re.compile(
    r"(?P<module>[A-Za-z0-9_.+-]{1,60})(?P<form>/|, )(?P<version>[A-Za-z0-9_.+~-]{1,60})"
    r"(?:, (?P<kernel>[A-Za-z0-9_.+~-]{1,120}), (?P<arch>[a-z0-9_]{1,20}))?: (?P<state>added|built|installed)(?P<rest>.*)"
)
_FORMS = {"/": "module/version", ", ": "module, version"}


def row(line: str) -> re.Match[str] | None:
    """The parts of a line that is a row."""
    return _ROW.fullmatch(line.strip())


def facts(lines: Iterable[str]) -> Mapping[str, FactValue]:
    """`dkms[<module>/<version>/<kernel>/<arch>].state` and `.warning`, and the sums over nvidia's own modules. No row: an empty mapping."""
    rows = [match for line in lines if (match := row(line))][:MOST_ROWS]
    if not rows:
        return {}
    found: dict[str, FactValue] = {}
    for match in rows:
        key = _text.key("/".join(filter(None, match.group("module", "version", "kernel", "arch"))))
        found[f"dkms[{key}].state"] = match["state"]
        found[f"dkms[{key}].warning"] = "WARNING" in match["rest"]
    own = [match for match in rows if match["module"].startswith("nvidia")]
    installed = {match["version"] for match in own if match["state"] == "installed"}
    built = {match["version"] for match in own if match["state"] == "built"}
    found |= {
        "dkms.rows": len(rows),
        "dkms.forms": _text.distinct(_FORMS[match["form"]] for match in rows),
        "dkms.installed": _text.distinct(installed),
        "dkms.built_only": _text.distinct(built - installed),
        "dkms.versions": _text.distinct(match["version"] for match in own),
    }
    return found
