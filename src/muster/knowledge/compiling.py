"""Reads the base from its files and makes its compiled form: what a process does once, when no compiled form of this content lies ready. Pure.

The form itself, and how it is read again, are described in `compiled`.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from muster.knowledge.base import read_base
from muster.knowledge.catalog import KINDS
from muster.knowledge.compiled import CORE_PARTS, MAGIC, digest
from muster.knowledge.packing import Packer
from muster.knowledge.records_more import Fact
from muster.knowledge.schema import KnowledgeBase


def read_and_compile(files: Mapping[str, bytes], key: str) -> tuple[KnowledgeBase, str]:
    """The base in these files and its compiled form; `key` names their content. Raises DocumentFaults."""
    base = read_base({name: content.decode("utf-8", "surrogateescape") for name, content in files.items()})
    return base, compiled(base, key)


def compiled(base: KnowledgeBase, key: str) -> str:
    """The base as text; `key` names the content it was read from."""
    core = (
        _line((branch.name, branch) for branch in base.branches.values()),
        _line((release.version.text, release) for release in base.releases.values()),
        _line((toolkit.version.text, toolkit) for toolkit in base.toolkits.values()),
        _line(base.architectures.items()),
        _line((each.id, each) for each in base.package_sets),
    )
    more = [*(kind.record for kind in KINDS), Fact]
    body = "\n".join((*core, *(_line(base.of(record).items()) for record in more)))
    packer = Packer()
    branch, provenance = base.open_only_from
    packer.pack(provenance)
    head = {
        "magic": MAGIC, "key": key, "revision": base.revision, "parts": [*CORE_PARTS, *(record.__name__ for record in more)],
        "digest": digest(body), "open_only_from": [branch, packer.table()],
    }  # fmt: skip
    return f"{json.dumps(head, ensure_ascii=False)}\n{body}"


def _line(records: Iterable[tuple[str, Any]]) -> str:
    packer = Packer()
    pairs = [(name, packer.pack(record)) for name, record in records]
    content = [packer.table(), [name for name, _ in pairs], [packed for _, packed in pairs]]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
