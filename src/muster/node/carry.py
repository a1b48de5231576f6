"""The same look at a node, carried by hand: a text to run where no connection leads, and the reader of the file that it prints.

The file says when it was made and on which node: it may be read weeks later on another continent, and old evidence must look old.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.node.collect import Frame, Row, parse_frames, render

_HEAD = re.compile(rb"^muster-look/1 ([A-Za-z0-9]{8,64}) (\d{1,11}) ([A-Za-z0-9][A-Za-z0-9._-]{0,252})$", re.MULTILINE)


@dataclass(frozen=True)
class Carried:
    """What a file holds: the node's own name, when it was looked at (seconds since 1970 by the node's clock), and the frames by name."""

    hostname: str
    epoch_s: int
    frames: Mapping[str, Frame]


def render_carried(rows: Iterable[Row], nonce: str) -> str:
    """The text to run as `sh look.sh >NODE.out` on a node. Raises ValueError as `render` does."""
    text = render(rows, nonce, pack=False)
    return f"printf 'muster-look/1 %s %s %s\\n' '{nonce}' \"$(date +%s)\" \"$(uname -n)\"\n{text}"


def parse_carried(stdout: bytes) -> Carried | None:
    """What the text printed; None when its first line is not there. Of several looks in one file the last one counts. Never raises."""
    heads = list(_HEAD.finditer(stdout))
    if not heads:
        return None
    nonce, epoch, hostname = (part.decode() for part in heads[-1].groups())
    return Carried(hostname, int(epoch), parse_frames(stdout[heads[-1].end() :], nonce))
