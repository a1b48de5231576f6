"""What `muster knowledge` does: sums up, checks, adds a site's own records, writes them out, says what differs.

A site's records lie in the folder that `fleet.yaml` names (`knowledge: FOLDER`), else beside the store. They are read by the release's own
rules: what would not pass in the release is not added.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from muster.documents import compose
from muster.knowledge.base import FILES, read_base
from muster.knowledge.checks import misfits, places
from muster.knowledge.listing import Change, changes, views
from muster.knowledge.loader import added, load, packaged, site_files
from muster.knowledge.schema import Confidence, KnowledgeBase
from muster.knowledge.shelves import file_of
from muster.model.errors import BadInput, DocumentFaults, Refused
from muster.model.frozen import dataclass
from muster.model.nearest import nearest


@dataclass(frozen=True, slots=True)
class FileSum:
    """A file's records by kind, with the days between which they were read. `site` where a site added it."""

    file: str
    records: int
    oldest: str
    newest: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What the base holds: records by file and by kind, how far they can be trusted, between which days they were read."""

    revision: str
    files: tuple[FileSum, ...]
    kinds: Mapping[str, int]
    confidence: Mapping[str, int]
    oldest: str
    newest: str
    site_files: tuple[str, ...]


def summed_up(base: KnowledgeBase, site: Path | None) -> Summary:
    """The numbers of a base."""
    days: dict[str, list[str]] = {}
    trust: Counter[Confidence] = Counter()
    kinds: dict[str, int] = {}
    for view in views(base):
        kinds[view.name] = len(view.records)
        for key, record in view.records.items():
            file = view.file or f"{key.partition(':')[0]}.yaml"
            days.setdefault(file, []).append(record.provenance.as_of)
            trust[record.provenance.confidence] += 1
    files = tuple(FileSum(file, len(days[file]), min(days[file]), max(days[file])) for file in sorted(days))
    return Summary(
        base.revision,
        files,
        kinds,
        {each.value: trust[each] for each in Confidence},
        min(each.oldest for each in files),
        max(each.newest for each in files),
        tuple(added(site)),
    )


def faults(site: Path | None) -> tuple[str, ...]:
    """All that is wrong with the base, a line each with file and line; empty where nothing is.

    The files are read anew: form and schema, then whether the records fit together, then whether the compiled form says the same.
    """
    texts = _texts({**packaged(), **added(site)})
    try:
        base = read_base(texts)
    except DocumentFaults as error:
        return error.faults
    return _unfitting(base, texts) or _miscompiled(base, site)


def _unfitting(base: KnowledgeBase, texts: Mapping[str, str]) -> tuple[str, ...]:
    where = places(compose(text, name) for name, text in texts.items())
    return tuple(
        f"{where.get((each.kind, each.key), 'records')}: {each.kind} {each.key}: {each.why}" for each in misfits(base)
    )


def _miscompiled(base: KnowledgeBase, site: Path | None) -> tuple[str, ...]:
    used = load(site)
    if used.revision != base.revision:
        return (f"the compiled form is of revision {used.revision[:12]}, the files are of {base.revision[:12]}",)
    return tuple(f"compiled form: {each.kind} {each.key} differs from the files" for each in changes(base, used))


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: the files it wrote, what changed, and the revisions before and after."""

    files: tuple[str, ...]
    changes: tuple[Change, ...]
    before: str
    after: str


def compare(path: Path, site: Path) -> Imported:
    """What importing a file or a folder would change; writes nothing. Raises as `bring_in`."""
    now = added(site)
    coming = _coming(path)
    then = {
        name: content for name, content in now.items() if Path(name).name not in {Path(each).name for each in coming}
    }
    texts = _texts({**packaged(), **then, **coming})
    after = read_base(texts)
    unfit = _unfitting(after, texts)
    if unfit:
        raise BadInput("\n".join(unfit), hint="mend these records; nothing was imported")
    before = load(site)
    return Imported(tuple(sorted(coming)), changes(before, after), before.revision, after.revision)


def bring_in(path: Path, site: Path) -> Imported:
    """Add the records of a file, or of all YAML files of a folder, to the site's own; a file of the same name is replaced.

    All of it or nothing. Raises DocumentFaults for a file with faults, BadInput for records that do not fit with the others, or for a name
    that no file of the base bears, Refused where the folder cannot be written.
    """
    done = compare(path, site)
    try:
        site.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name in done.files:
            draft = site / f".{Path(name).name}.draft"
            draft.write_bytes(Path(name).read_bytes())
            draft.replace(site / Path(name).name)
    except OSError as error:
        raise Refused(
            f"{site} cannot be written: {error.strerror}", hint="import as the user who owns the store"
        ) from None
    return done


def write_out(folder: Path, site: Path | None) -> tuple[str, ...]:
    """Write all files of the base into a folder that is empty or not there; their names. Raises BadInput."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder} is there and not an empty folder", hint="name a folder that does not exist")
    files = {**packaged(), **{f"site/{Path(name).name}": content for name, content in added(site).items()}}
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror}") from None
    return tuple(files)


def _coming(path: Path) -> Mapping[str, bytes]:
    found = site_files(path) if path.is_dir() else (path,)
    if not found:
        raise BadInput(
            f"{path} holds no YAML file", hint=f"files are called as the release's: {', '.join(FILES[:4])}, ..."
        )
    files: dict[str, bytes] = {}
    for each in found:
        if file_of(each.name) not in FILES or each.suffix != ".yaml":
            near = nearest(file_of(each.name), FILES)
            hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(FILES)}"
            raise BadInput(
                f"{each}: a file is called as the one of the release to which it adds, {each.name!r} as none", hint=hint
            )
        try:
            files[str(each.resolve())] = each.read_bytes()
        except OSError as error:
            raise BadInput(f"{each} cannot be read: {error.strerror}") from None
    return files


def _texts(files: Mapping[str, bytes]) -> Mapping[str, str]:
    return {name: content.decode("utf-8", "surrogateescape") for name, content in files.items()}
