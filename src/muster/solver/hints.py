"""What people can do about a refusal: sentences that more than one rule gives. Never a reason; those are `explain`'s."""

from muster.knowledge.query import LEARN_MORE
from muster.solver.explain import Hint

NEWER_KNOWLEDGE = Hint(LEARN_MORE)
LOOK_AGAIN = Hint("look again with the rights it needs: muster collect")
OWN_POOL = Hint("give these nodes a pool of their own")
REFRESH_LISTS = Hint("on the node: apt-get update; then: muster collect")

MOST_HINTS = 3
"""More advice than this is none."""


def few(hints: tuple[Hint, ...]) -> tuple[Hint, ...]:
    """The first hints, each once."""
    return tuple(dict.fromkeys(hints))[:MOST_HINTS]
