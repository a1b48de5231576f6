"""Opens the knowledge base that comes with this release.

Why it exists: it is the one module of `knowledge` that reads files. It keeps no compiled form: reading all five files
strictly costs about 0.1 s of CPU, less than a cache would cost in ways to be stale.
"""

from functools import cache
from pathlib import Path
from typing import Final

from muster.knowledge.reading import FILES, read_base
from muster.knowledge.schema import KnowledgeBase

# Not importlib.resources: importing that alone costs most of what reading the files does.
DATA: Final = Path(__file__).parent / "data"


@cache
def load() -> KnowledgeBase:
    """The packaged base, read once a process. Raises DocumentFaults, which the release's own tests rule out."""
    return read_base({name: (DATA / name).read_text(encoding="utf-8") for name in FILES})
