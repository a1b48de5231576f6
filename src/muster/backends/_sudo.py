"""sudo that asks for a password, over a channel without a terminal: the talk before the command begins.

The password goes only to a sudo that has just asked for it by our own words, never to the command itself: a sudo that does not ask (no
password needed, or not allowed at all) gets none. It is in no argument, no environment and no message.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

PROMPT = "muster asks for the sudo password: "
BEGUN = "muster: the command begins"

MOST_TALK_BYTES = 64 * 1024
"""Of lectures and banners before the command begins."""


class Refused(Exception):
    """sudo asked a second time: the password is not the right one."""


class Reader(Protocol):
    """The command's standard error."""

    async def read(self, n: int) -> bytes:
        """At most `n` bytes, empty at the end."""
        ...


def asking(argv: tuple[str, ...], *, marked: bool) -> tuple[str, ...]:
    """`argv` as root by a sudo that asks on standard error. `marked`: it also says there when the command begins to read its input."""
    if marked:
        argv = ("sh", "-c", f'echo "{BEGUN}" >&2; exec "$@"', "sh", *argv)
    return ("sudo", "-k", "-S", "-p", PROMPT, "--", *argv)


async def talk(stderr: Reader, answer: Callable[[bytes], Awaitable[None]], password: str, *, marked: bool) -> bytes:
    """Answer sudo until the command begins (`marked`) or its errors end; what came on standard error after that.

    Raises Refused when sudo asks again.
    """
    said, asked = b"", 0
    prompt, begun = PROMPT.encode(), BEGUN.encode() + b"\n"
    while len(said) < MOST_TALK_BYTES:
        data = await stderr.read(4096)
        if not data:
            break
        said += data
        if marked and begun in said:
            return said.partition(begun)[2]
        while said.count(prompt) > asked:
            asked += 1
            if asked > 1:
                raise Refused
            await answer(password.encode() + b"\n")
    return said.replace(prompt, b"")
