"""`dpkg -l`: packages with version and state, through the parser of the node's own source; and what is amiss over all of them."""

import re
from collections.abc import Mapping

from muster.facts import dpkg
from muster.facts.captures import _text
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, RawOutput, Unknown

_ROW = re.compile(r"[uihrp][ncHUFWti]R?\s+[a-z0-9][a-z0-9+.-]+(?::[a-z0-9]+)?\s+\d\S*", re.MULTILINE)
_QUERY = re.compile(r"[a-z0-9][a-z0-9+.:-]+\t\S+\t(?:unknown|install|hold|deinstall|purge)\t[a-z-]+\t\S*")
_BRANCH = re.compile(r"-(\d{3})(?:-|$|:)")
_PACKAGE = re.compile(r"package\[(.+)\]\.(version|state)")


def sniff(head: str) -> int:
    lines = [line for line in head.split("\n") if line.strip()][:400]
    rows = sum(1 for line in lines if _ROW.match(line) or _QUERY.match(line))
    header = any(line.startswith("||/ ") for line in lines[:10])  # what follows is in the language of who asked
    return 95 if rows and (header or rows * 2 > len(lines)) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """The packages; `packages.half_configured` and `.unpacked` name those; `.branches` are the numbers in the names of NVIDIA's packages and
    `.revisions` their Debian revisions, which differ where packages of two repositories are mixed.
    """
    found = dict(dpkg.parse(RawOutput(0, text.encode("utf-8", "replace"))))
    by_state: dict[str, list[str]] = {}
    branches, revisions = set(), set()
    for path, value in list(found.items()):
        match = _PACKAGE.fullmatch(path)
        if match and match[2] == "state":
            by_state.setdefault(str(value), []).append(match[1])
        elif match and "nvidia" in match[1]:
            branch = _BRANCH.search(match[1])
            branches |= {branch[1]} if branch else set()
            revisions |= {str(value).rpartition("-")[2]} if "linux-" not in match[1] and "-" in str(value) else set()
    if not by_state:
        return {"packages.manager": Unknown("no line is a row of dpkg -l")}
    found["packages.half_configured"] = _text.distinct(by_state.get("half-configured", ()))
    found["packages.unpacked"] = _text.distinct(by_state.get("unpacked", ()))
    found["packages.branches"] = _text.distinct(branches)
    found["packages.revisions"] = _text.distinct(revisions)
    return found


READER = CaptureSpec("dpkg_list", "dpkg -l", sniff, parse)
