"""Strict YAML text to values that know their line.

Why it exists: policy, inventory and knowledge are written by hand and reviewed in git, and a wrong guess about one of
them moves drivers on machines. YAML's guesses are therefore turned off: `580.10`, `13.0`, `1:30`, `on` and
`2026-11-30` stay the text that was written; only a plain `null`, `Null`, `NULL`, `~` or nothing at all is `None`.
Duplicate keys, anchors, aliases, merge keys, tags and a second document are refused, and size and depth are bounded,
so no text can cost more than its length. Every node keeps its 1-based line and column, and a `Reader` collects all
faults of a file before it reports, because people mend files in one go.

What it does not do: it opens no file, knows no schema, and never evaluates anything.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias, TypeVar

import yaml

from muster.model.errors import DocumentFaults
from muster.model.frozen import dataclass
from muster.model.nearest import nearest

T = TypeVar("T")

# A 100,000-node inventory is a few MiB. The worst text of this size costs about 13 s of CPU and 0.5 GiB (measured);
# a larger bound would let one wrong file fill a machine.
MAX_BYTES: Final = 8 * 1024 * 1024
# The deepest known document (knowledge, redistributable manifests) has seven levels. A bound far below Python's own
# recursion limit lets every later walk over the tree be written as plain recursion.
MAX_DEPTH: Final = 32
# A file that is the wrong file altogether (a kubeconfig, say) would fault on every line; the first ones tell it.
MAX_FAULTS: Final = 200

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"
_TOO_DEEP_HINT: Final = "check brackets and indentation"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing wrong at one place of a document; `line` and `column` are 1-based."""

    line: int
    column: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"


def refused(name: str, faults: Iterable[Fault]) -> DocumentFaults:
    """The error for these faults of the document `name`: sorted by line, at most MAX_FAULTS and then a count.

    Its message holds all its lines, each `file:line: message (hint)`.
    """
    found = sorted(set(faults), key=lambda fault: (fault.line, fault.column, fault.message))
    lines = [f"{name}:{fault.line}: {fault}" for fault in found[:MAX_FAULTS]]
    if len(found) > MAX_FAULTS:
        lines.append(f"{name}: {len(found) - MAX_FAULTS} more faults not shown")
    return DocumentFaults("\n".join(lines), faults=tuple(lines))


@dataclass(frozen=True, slots=True)
class Scalar:
    """A leaf: its text as written, or None for a plain null."""

    text: str | None
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list, in the order written."""

    items: tuple["Node", ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One `key: value` of a map; the line and column are the key's."""

    key: str
    value: "Node"
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Map:
    """A mapping, in the order written; no key stands twice."""

    entries: tuple[Entry, ...]
    line: int
    column: int

    def get(self, key: str) -> "Node | None":
        """The value under `key`, or None when the key is absent."""
        return next((entry.value for entry in self.entries if entry.key == key), None)


Node: TypeAlias = Scalar | Sequence | Map


@dataclass(frozen=True, slots=True)
class Document:
    """The tree of one text, with the faults of form found while it was built (a Reader goes on from them)."""

    name: str
    root: Node
    faults: tuple[Fault, ...] = ()


def compose(text: str, name: str) -> Document:
    """The tree of `text`; `name` is what messages call the file.

    Faults of form that leave the rest readable (duplicate keys, anchors, tags, ...) are kept in the document. Raises
    DocumentFaults when no tree can be made: not YAML, empty, several documents, too deep, too big, not text.
    """
    _check_text(text, name)
    builder = _Builder(name)
    try:
        # Two files that differ only in a leading byte-order mark are the same file to their author.
        for event in yaml.parse(text.removeprefix("\ufeff"), Loader=_LOADER):
            builder.feed(event)
    except yaml.MarkedYAMLError as error:
        raise refused(name, (*builder.faults, _fault_of_marked(error))) from None
    except yaml.YAMLError as error:
        raise refused(name, (*builder.faults, _fault_of_reader(text, error))) from None
    if builder.root is None:
        raise refused(name, (Fault(1, 1, "the file is empty", "a mapping of keys is expected"),))
    return Document(name, builder.root, tuple(builder.faults))


def parse(text: str, name: str) -> Node:
    """Like `compose`, but raises DocumentFaults for any fault."""
    document = compose(text, name)
    if document.faults:
        raise refused(name, document.faults)
    return document.root


def plain(node: Node) -> Any:
    """The tree as dicts, tuples, strings and None: for hashing and for tests, without the lines."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Sequence):
        return tuple(plain(item) for item in node.items)
    return {entry.key: plain(entry.value) for entry in node.entries}


def _check_text(text: str, name: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise refused(name, (Fault(line, 1, "the file is not text in UTF-8", "save it as UTF-8"),)) from None
    if size > MAX_BYTES:
        message = f"the file has {size} bytes; at most {MAX_BYTES} are read"
        raise refused(name, (Fault(1, 1, message, "split it, or check that it is the file meant"),))


def _fault_of_marked(error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "no valid YAML"
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    if "nesting depth" in problem:  # libyaml looks far ahead for a key and meets its own bound before ours
        return Fault(line, column, _TOO_DEEP, _TOO_DEEP_HINT)
    return Fault(line, column, f"not valid YAML: {problem}", _syntax_hint(problem))


def _syntax_hint(problem: str) -> str:
    """What usually causes a complaint of the YAML parser, in words for the person who wrote the file."""
    if "\\t" in problem or "cannot start any token" in problem:
        return "indent with spaces, and quote text that starts with @, `, % or a tab"
    if "mapping values are not allowed" in problem:
        return "quote text that holds ': ', and check the indentation"
    if "alias" in problem or "anchor" in problem:
        return "quote text that starts with & or *"
    return "check indentation, brackets and quotes on this line and the one above"


def _fault_of_reader(text: str, error: yaml.YAMLError) -> Fault:
    position = getattr(error, "position", 0)
    line = text.count("\n", 0, position if isinstance(position, int) else 0) + 1
    return Fault(line, 1, "the file holds a character that YAML does not allow", "remove control characters")


@dataclass(slots=True)
class _Open:
    """A collection under construction; for a map, `key` waits for its value."""

    line: int
    column: int
    is_map: bool
    items: list[Node] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    key: Entry | None = None
    # The key of the coming value cannot be used: read the value, then drop it.
    skip: bool = False


class _Builder:
    """Builds the tree from parser events without recursion, so that depth is bounded by a number and not a crash."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: Node | None = None
        self.faults: list[Fault] = []
        self._stack: list[_Open] = []
        self._documents = 0
        # The last leaf, if it was a plain `<<`; a quoted one is a key like any other.
        self._merge: Scalar | None = None

    def feed(self, event: Any) -> None:
        """Take the next parser event; marks are zero-based there and one-based here."""
        place = (event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.ScalarEvent):
            self._refuse_decoration(event)
            unquoted = event.style in (None, "")
            node = Scalar(None if unquoted and event.value in _NULLS else event.value, *place)
            self._merge = node if unquoted and event.value == "<<" else None
            self._add(node)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._refuse_decoration(event)
            self._open(event, is_map=isinstance(event, yaml.MappingStartEvent))
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._fault(
                event, f"alias *{event.anchor} is refused", "write the value out; or quote text that starts with *"
            )
            self._add(Scalar(None, *place))
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(event, "a second document starts here; one file holds one", "remove the '---' line")

    def _open(self, event: Any, *, is_map: bool) -> None:
        if len(self._stack) >= MAX_DEPTH:
            self._stop(event, _TOO_DEEP, _TOO_DEEP_HINT)
        mark = event.start_mark
        self._stack.append(_Open(mark.line + 1, mark.column + 1, is_map))

    def _close(self) -> None:
        done = self._stack.pop()
        if done.is_map:
            self._add(Map(tuple(done.entries), done.line, done.column))
        else:
            self._add(Sequence(tuple(done.items), done.line, done.column))

    def _add(self, node: Node) -> None:
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        if not parent.is_map:
            parent.items.append(node)
        elif parent.skip:
            parent.skip = False
        elif parent.key is None:
            self._take_key(parent, node)
        else:
            key, parent.key = parent.key, None
            parent.entries.append(Entry(key.key, node, key.line, key.column))

    def _take_key(self, parent: _Open, node: Node) -> None:
        place = (node.line, node.column)
        if not isinstance(node, Scalar) or node.text is None:
            self.faults.append(Fault(*place, "a key must be a plain word", "quote it if it is meant as text"))
            parent.skip = True
        elif node is self._merge:
            self.faults.append(Fault(*place, "merge key << is refused", "write the keys out"))
            parent.skip = True
        elif node.text in parent.seen:
            first = parent.seen[node.text]
            message = f"key {node.text!r} stands twice, first on line {first}"
            self.faults.append(Fault(*place, message, "keep one of the two"))
            parent.skip = True
        else:
            parent.seen[node.text] = node.line
            parent.key = Entry(node.text, node, *place)

    def _refuse_decoration(self, event: Any) -> None:
        if event.anchor is not None:
            self._fault(
                event, f"anchor &{event.anchor} is refused", "write the value out; or quote text that starts with &"
            )
        if event.tag is not None:
            self._fault(
                event, f"tag {event.tag} is refused", "every value is read as text; quote text that starts with !"
            )

    def _fault(self, event: Any, message: str, hint: str) -> None:
        self.faults.append(Fault(event.start_mark.line + 1, event.start_mark.column + 1, message, hint))

    def _stop(self, event: Any, message: str, hint: str) -> None:
        self._fault(event, message, hint)
        raise refused(self.name, self.faults)


class Reader:
    """Turns a tree into typed values and collects every fault of the file on the way.

    Each method answers with a usable default after a fault, so that reading goes on; `finish` raises DocumentFaults if
    there was any, hence a default never reaches anybody.
    """

    def __init__(self, document: Document) -> None:
        self.name = document.name
        self.root = document.root
        self._faults: list[Fault] = list(document.faults)
        # What was refused for its form (an alias, say) has no value; a second complaint about it would only confuse.
        self._refused = frozenset((fault.line, fault.column) for fault in document.faults)

    def fault(self, at: Node | Entry, message: str, hint: str | None = None) -> None:
        """Record a fault at the place of `at`."""
        if (at.line, at.column) in self._refused:
            return
        self._faults.append(Fault(at.line, at.column, message, hint))

    def finish(self) -> None:
        """Raise DocumentFaults if anything was wrong."""
        if self._faults:
            raise refused(self.name, self._faults)

    def fields(self, node: Node, what: str, known: Collection[str], required: Collection[str] = ()) -> "Fields":
        """The keys of a map; faults: not a map, an unknown key (with the nearest known), a missing required one.

        `what` names the thing in messages, e.g. `pool train`.
        """
        if not isinstance(node, Map):
            self.fault(node, f"{what} must be a mapping, not {kind_of(node)}", f"its keys: {_listing(known)}")
            return Fields(self, Map((), node.line, node.column), what)
        for entry in node.entries:
            if entry.key not in known:
                # A wrong file can hold a million unknown keys; nobody reads that many hints, and each costs a search.
                hint = did_you_mean(entry.key, known) if len(self._faults) < MAX_FAULTS else None
                self.fault(entry, f"{what} has no key {entry.key!r}", hint)
        present = {entry.key for entry in node.entries}
        for key in required:
            if key not in present:
                self.fault(node, f"{what} lacks the key {key!r}", f"required: {_listing(required)}")
        return Fields(self, node, what)

    def entries(self, node: Node, what: str, hint: str | None = None) -> tuple[Entry, ...]:
        """The entries of a map with free keys; a fault and () when it is no map."""
        if isinstance(node, Map):
            return node.entries
        self.fault(node, f"{what} must be a mapping, not {kind_of(node)}", hint)
        return ()

    def items(self, node: Node, what: str, hint: str | None = None) -> tuple[Node, ...]:
        """The members of a list; a fault and () when it is no list."""
        if isinstance(node, Sequence):
            return node.items
        self.fault(node, f"{what} must be a list, not {kind_of(node)}", hint or "write [a, b] or one '- a' a line")
        return ()

    def text(self, node: Node, what: str, default: str = "", hint: str | None = None) -> str:
        """The text of a leaf; a fault when it is null, empty, a list or a map."""
        if isinstance(node, Scalar) and node.text:
            return node.text
        self.fault(node, f"{what} must be text, not {kind_of(node)}", hint)
        return default

    def value(self, node: Node, what: str, convert: Callable[[str], T], default: T, hint: str | None = None) -> T:
        """`convert` of the leaf's text; its ValueError becomes a fault `what: its message`.

        A `hint` attribute of that error, if it has one, wins over `hint`.
        """
        if not isinstance(node, Scalar) or not node.text:
            self.fault(node, f"{what} must be one value, not {kind_of(node)}", hint)
            return default
        try:
            return convert(node.text)
        except ValueError as error:
            own = getattr(error, "hint", None)
            # An error that holds its hint in its text too (versions, ranges) would otherwise say it twice.
            message = str(error).removesuffix(f": {own}") if own else str(error)
            self.fault(node, f"{what}: {message}", own or hint)
            return default

    def choice(self, node: Node, what: str, choices: Mapping[str, T], default: T) -> T:
        """One of the named values; the fault names the nearest, or all."""
        if isinstance(node, Scalar) and node.text is not None and node.text in choices:
            return choices[node.text]
        shown = kind_of(node) if not isinstance(node, Scalar) or not node.text else repr(node.text)
        near = did_you_mean(node.text or "", choices) if isinstance(node, Scalar) else f"one of {_listing(choices)}"
        self.fault(node, f"{what} cannot be {shown}", near)
        return default


class Fields:
    """The checked keys of one map; lookups answer None for an absent key."""

    def __init__(self, reader: Reader, node: Map, what: str) -> None:
        self.node = node
        self.what = what
        self._reader = reader
        self._entries = {entry.key: entry for entry in node.entries}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.node.entries)

    def node_of(self, key: str) -> Node | None:
        """The value under `key`, or None when it is absent; a null value is a Scalar with text None."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def entry(self, key: str) -> Entry | None:
        """The whole entry, for messages that point at the key."""
        return self._entries.get(key)

    def text(self, key: str, default: str = "", hint: str | None = None) -> str:
        """The text under `key`, or `default` when absent."""
        node = self.node_of(key)
        return default if node is None else self._reader.text(node, self._name(key), default, hint)

    def value(self, key: str, convert: Callable[[str], T], default: T, hint: str | None = None) -> T:
        """`convert` of the text under `key`, or `default` when absent."""
        node = self.node_of(key)
        return default if node is None else self._reader.value(node, self._name(key), convert, default, hint)

    def choice(self, key: str, choices: Mapping[str, T], default: T) -> T:
        """One of the named values under `key`, or `default` when absent."""
        node = self.node_of(key)
        return default if node is None else self._reader.choice(node, self._name(key), choices, default)

    def texts(self, key: str) -> tuple[str, ...]:
        """The texts of the list under `key`, a lone text counting as a list of one; () when absent."""
        node = self.node_of(key)
        if node is None:
            return ()
        items = node.items if isinstance(node, Sequence) else (node,)
        return tuple(self._reader.text(item, self._name(key)) for item in items)

    def is_null(self, key: str) -> bool:
        """Whether `key` is absent or null, for the keys where a schema says that null means "not known"."""
        node = self.node_of(key)
        return node is None or (isinstance(node, Scalar) and node.text is None)

    def _name(self, key: str) -> str:
        return f"{self.what}: {key}"


def kind_of(node: Node) -> str:
    """What a node is, in the words of a message."""
    if isinstance(node, Map):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if node.text is None:
        return "nothing"
    return "empty text" if node.text == "" else repr(node.text)


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """The hint for a word that is not known: the nearest known words, or the whole list when none is near."""
    words = sorted(known)
    near = nearest(text, words)
    return f"did you mean {' or '.join(near)}?" if near else f"one of {_listing(words)}"


def _listing(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))
