"""`/usr/local/cuda/version.json`: the parts of a CUDA toolkit.

Its `nvidia_driver` is the driver that came with the toolkit, never the node's.
"""

import json
from collections.abc import Mapping

from muster.facts.captures import _text
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_MOST_PARTS = 500
_DATE_DIGITS = 8
"""A redistributable build puts a date (20241114) where a release has its patch level."""


def sniff(head: str) -> int:
    return 90 if head.lstrip().startswith("{") and '"cuda"' in head and '"version"' in head else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`toolkit.version`, `toolkit.bundled_driver`, and `toolkit[<part>].version` of each part."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {"toolkit.version": Unknown("the text is no whole JSON document")}
    if not isinstance(document, dict):
        return {"toolkit.version": Unknown("the document is no list of parts")}
    found: dict[str, FactValue] = {}
    for part, about in list(document.items())[:_MOST_PARTS]:
        version = about.get("version") if isinstance(about, dict) else None
        if isinstance(version, str) and version:
            found[f"toolkit[{_text.key(part)}].version"] = version[:80]
    found |= _release(found.get("toolkit[cuda].version"))
    bundled = found.get("toolkit[nvidia_driver].version")
    if bundled is not None:
        found["toolkit.bundled_driver"] = bundled
    return found


def _release(version: FactValue | None) -> Mapping[str, FactValue]:
    if not isinstance(version, str):
        return {"toolkit.version": Unknown("the document names no CUDA version")}
    parts = version.split(".")
    if len(parts) == 3 and len(parts[2]) == _DATE_DIGITS and parts[2].isdigit():
        return {"toolkit.version": ".".join(parts[:2]), "toolkit.build_date": parts[2]}
    return {"toolkit.version": version}


READER = CaptureSpec("version_json", "cat /usr/local/cuda/version.json", sniff, parse)
