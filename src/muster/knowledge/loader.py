"""Opens the knowledge base that comes with this release, with what a site added to it, in its compiled form where there is one.

Why it exists: it is the one module of `knowledge` that touches files. The compiled form lies in the user's cache, under a name made of the
content it was read from, the program's own included; a form that is not ours alone to write, is damaged, or was made of other content is
not used, and one that cannot be written is done without.
"""

import hashlib
import importlib
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from muster.documents import MAX_BYTES, Fault, refused
from muster.knowledge.compiled import restored
from muster.knowledge.schema import KnowledgeBase

# Not importlib.resources: importing that alone costs most of what reading the files does.
_HERE: Final = Path(__file__).parent
DATA: Final = _HERE / "data"

MOST_FORMS: Final = 4
"""Compiled forms kept: of this release, of one before, and of two sites' additions to them."""


def load(site: Path | None = None) -> KnowledgeBase:
    """The packaged base with what a site keeps in the folder `site`, read once a process.

    A folder that is not there adds nothing. Raises DocumentFaults, which the release's own tests rule out for the packaged files.
    """
    return _loaded(site if site is not None and site_files(site) else None)


@cache
def _loaded(site: Path | None) -> KnowledgeBase:
    return read_cached({**packaged(), **added(site)}, cache_folder())


def packaged() -> Mapping[str, bytes]:
    """The files that come with this release, by name."""
    return {path.name: path.read_bytes() for path in sorted(DATA.glob("*.yaml"))}


def site_files(folder: Path) -> tuple[Path, ...]:
    """The YAML files of a folder, by name; not those whose name begins with a dot, which editors leave."""
    return tuple(path for path in sorted(folder.glob("*.yaml")) if not path.name.startswith("."))


def added(site: Path | None) -> Mapping[str, bytes]:
    """The files a site added, by their paths. Raises DocumentFaults for one that cannot be read."""
    found: dict[str, bytes] = {}
    for path in () if site is None else site_files(site):
        try:
            with path.open("rb") as file:
                found[str(path.resolve())] = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise refused(str(path), (Fault(1, 1, f"cannot be read: {error.strerror}"),)) from None
    return found


def cache_folder() -> Path:
    """Where compiled forms lie: `$XDG_CACHE_HOME/muster`."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "muster"


def read_cached(files: Mapping[str, bytes], folder: Path) -> KnowledgeBase:
    """The base in these files, by the compiled form in `folder` where there is one, which is made otherwise. Raises DocumentFaults."""
    key = content_key(files)
    form = folder / f"knowledge-{key[:32]}.jsonl"
    text = _read_own(form)
    base = None if text is None else restored(text, key)
    if base is not None:
        return base
    # Late, because it is needed once and costs every command more to import than the compiled form costs to read (ADR 0007).
    compiling = importlib.import_module("muster.knowledge.compiling")
    read: KnowledgeBase
    read, made = compiling.read_and_compile(files, key)
    _keep(form, made)
    return read


def content_key(files: Mapping[str, bytes]) -> str:
    """SHA-256 over the files and over the modules that read them: another program may read the same files otherwise."""
    digest = hashlib.sha256()
    modules = {path.name: path.read_bytes() for path in sorted(_HERE.glob("*.py"))}
    for name, content in (*sorted(files.items()), *modules.items()):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _read_own(form: Path) -> str | None:
    """The text of a form that only this user, or root, can have written; None otherwise."""
    try:
        handle = os.open(form, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    found = os.fstat(handle)
    ours = found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not ours or not stat.S_ISREG(found.st_mode):
        os.close(handle)
        return None
    with os.fdopen(handle, encoding="utf-8", errors="replace") as file:
        return file.read()


def _keep(form: Path, text: str) -> None:
    """Write a form so that nobody sees half of it, and drop the oldest ones. A full or read-only disk only costs time."""
    draft = form.with_name(f"{form.name}.{os.getpid()}")
    try:
        form.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(form)
        others = sorted(form.parent.glob("knowledge-*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in others[MOST_FORMS:]:
            old.unlink()
    except OSError:
        with suppress(OSError):
            draft.unlink()
