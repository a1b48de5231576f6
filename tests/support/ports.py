"""Ports for servers that are told theirs: below the range from which Linux gives ports to clients, of which a busy suite has hundreds."""

import os
import socket
from contextlib import ExitStack

_FIRST, _LAST = 10000, 22000  # where the loopback fleet's begin


def free_ports(count: int) -> list[int]:
    """`count` ports that nobody has now, and that no client gets by chance. Two processes begin to look in different places."""
    found: list[int] = []
    with ExitStack() as held:
        begin = _FIRST + os.getpid() * 37 % (_LAST - _FIRST)
        for port in (*range(begin, _LAST), *range(_FIRST, begin)):
            each = held.enter_context(socket.socket())
            try:
                each.bind(("", port))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError(f"no {count} free ports between {_FIRST} and {_LAST}")
