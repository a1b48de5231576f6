"""Reading what a command prints, up to a bound."""

from typing import Protocol


class Reader(Protocol):
    """What can be read from: asyncio's and asyncssh's streams."""

    async def read(self, n: int = -1) -> bytes: ...


class TooMuch(Exception):
    """More was printed than anybody may."""


async def read_capped(reader: Reader, cap_bytes: int) -> bytes:
    """Everything up to the end of the stream. Raises TooMuch when that is more than `cap_bytes`."""
    parts: list[bytes] = []
    size = 0
    while part := await reader.read(65536):
        size += len(part)
        if size > cap_bytes:
            raise TooMuch
        parts.append(part)
    return b"".join(parts)
