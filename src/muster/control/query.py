"""Choosing and grouping nodes by what is known of them: any fact, a label, the pool, the health. Reads values alone; changes nothing.

A condition is `PATH=PATTERN` or `PATH!=PATTERN`. What is unknown meets no condition but `PATH=unknown`: it is neither equal nor different,
and how many nodes were left out for that reason is said.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from muster.control.planning import findings
from muster.control.site import Site
from muster.health.consistency import health_words
from muster.model.errors import BadInput, UnknownName
from muster.model.fact import ByKind, FactValue, NodeFacts, Unknown, kind_of
from muster.model.finding import Finding
from muster.model.frozen import dataclass
from muster.model.memo import Remembered
from muster.model.nearest import nearest
from muster.model.node import Node
from muster.planner.pools import Placing, placed

UNKNOWN = "unknown"
NO_POOL = "-"
STATUS_PATHS: Mapping[str, str] = {
    "pool": "pool", "model": "gpu.product", "driver": "module.nvidia.loaded_version", "flavour": "module.nvidia.flavour",
    "kernel": "kernel.running", "health": "health",
}  # fmt: skip
"""What `status` groups by: column -> path."""

_OWN = ("node", "pool", "health")
_KEY = re.compile(r"\[[^\]]*\]")
_CONDITION = re.compile(r"(?P<path>[^=!]+?)(?P<not>!?)=(?P<pattern>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Condition:
    """`pattern` is a shell pattern for a value, from one of its words to its end (`H100*` is in `NVIDIA H100 PCIe`); case does not count."""

    path: str
    pattern: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A node as it can be asked about. `facts` is None when it was never looked at."""

    node: Node
    pool: str
    health: str
    facts: NodeFacts | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The nodes that meet all conditions; `unknown` gives for each path how many nodes could not be judged by it."""

    views: tuple[View, ...]
    unknown: Mapping[str, int]

    @property
    def words(self) -> tuple[str, ...]:
        """What was left out because it is not known."""
        return tuple(
            f"{path} is unknown on {count} nodes, which are left out; they are shown by --where '{path}=unknown'"
            for path, count in self.unknown.items()
        )


def condition(text: str) -> Condition:
    """The condition in `text`. Raises BadInput for what is none."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise BadInput(
            f"{text!r} is no condition", hint="write PATH=PATTERN or PATH!=PATTERN, as in gpu.product='H100*'"
        )
    return Condition(match["path"].strip(), match["pattern"], bool(match["not"]))


async def views(site: Site) -> tuple[View, ...]:
    """Every node of the inventory, by name, with what is known of it."""
    facts = await site.known_facts()
    placings = await site.placings(facts)
    return _seen(site, facts, await findings(site, facts, placings), placings)


def seen_as(site: Site, facts: Mapping[str, NodeFacts], found: Sequence[Finding]) -> tuple[View, ...]:
    """Every node of the inventory with these facts and findings."""
    return _seen(site, facts, found, placed(site.nodes, facts, site.policy))


def _seen(
    site: Site, facts: Mapping[str, NodeFacts], found: Sequence[Finding], placings: Mapping[str, Placing]
) -> tuple[View, ...]:
    health = health_words(found)
    listed = []
    for node in site.nodes:
        pool, name = placings[node.name].pool, node.name
        listed.append(View(node, pool.name if pool else NO_POOL, health.get(name, "ok"), facts.get(name)))
    return tuple(listed)


def choose(views: Sequence[View], conditions: Sequence[Condition], provided: Sequence[str] = ()) -> Chosen:
    """The nodes that meet all conditions. Raises UnknownName, with the nearest, for a path that no node and no source knows.

    `provided` are the paths that the sources of facts can give, with `*` for the keys of lists.
    """
    _need_paths([each.path for each in conditions], views, provided)
    kept, unknown = list(views), dict[str, int]()
    for each in conditions:
        judged = [(view, _meets(view, each)) for view in kept]
        kept = [view for view, meets in judged if meets]
        blind = sum(1 for _, meets in judged if meets is None)
        if blind:
            unknown[each.path] = unknown.get(each.path, 0) + blind
    return Chosen(tuple(kept), unknown)


def grouped(
    views: Sequence[View], paths: Sequence[str], provided: Sequence[str] = ()
) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """The nodes by their values at `paths`: (values, names), in the order of the values. Raises UnknownName as `choose` does."""
    _need_paths(paths, views, provided)
    groups: dict[tuple[str, ...], list[str]] = {}
    words = _Words(paths)
    for view in views:
        groups.setdefault(words.of(view), []).append(view.node.name)
    return tuple((key, tuple(names)) for key, names in sorted(groups.items()))


def _meets(view: View, asked: Condition) -> bool | None:
    """Whether the node meets the condition; None when that is not known."""
    texts = _texts(view, asked.path)
    if asked.pattern == UNKNOWN:
        return (texts in ((), (UNKNOWN,))) is not asked.negated
    if not texts:
        return None
    found = any(_covers(asked.pattern, text) for text in texts)
    return found is not asked.negated


def _covers(pattern: str, text: str) -> bool:
    words, wanted = text.lower(), pattern.lower()
    starts = [0, *(at.end() for at in re.finditer(r"\s+", words))]
    return any(fnmatchcase(words[start:], wanted) for start in starts)


_NO_NODE = Node("", "", None, None, {}, "")


class _Words:
    """What stands in the columns: of nodes whose facts are alike in them, it is put into words once."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        own = [path in _OWN or path.startswith(("label.", "slurm.")) for path in paths]
        self._own = [(at, path) for at, path in enumerate(paths) if own[at]]
        self._known = Remembered[str, tuple[str, ...]](
            lambda facts, _: tuple(
                "" if own[at] else _word(View(_NO_NODE, "", "", facts), path) for at, path in enumerate(paths)
            )
        )

    def of(self, view: View) -> tuple[str, ...]:
        if view.facts is None:
            return tuple(_word(view, path) for path in self._paths)
        words = list(self._known(view.facts, ""))
        for at, path in self._own:
            words[at] = view.pool if path == "pool" else view.health if path == "health" else _word(view, path)
        return tuple(words)


def _word(view: View, path: str) -> str:
    """The node's value at `path` in one cell; of several members each value once, with how often when they differ."""
    texts = _texts(view, path)
    counts = {text: texts.count(text) for text in sorted(set(texts))}
    if len(counts) > 1 and "*" in path:
        return ", ".join(f"{text} x{count}" for text, count in counts.items())
    return ", ".join(counts) or UNKNOWN


def _texts(view: View, path: str) -> tuple[str, ...]:
    """The known values at `path` as people write them; none when nothing is known."""
    own = {"node": view.node.name, "pool": view.pool, "health": view.health}
    if path in own:
        return (own[path],)
    if path.startswith(("label.", "slurm.")):
        value = view.node.labels.get(path.removeprefix("label."))
        return () if value is None else tuple(value.split(",")) if path.startswith("slurm.") else (value,)
    if view.facts is None:
        return ()
    if "*" not in path:
        return _value_texts(view.facts.value(path))
    shape = re.compile(re.escape(path).replace(r"\*", r"[^\]]*"))
    facts, kind = view.facts.facts, kind_of(path)
    return tuple(
        text
        for each in sorted(facts.paths_of(kind) if isinstance(facts, ByKind) and "*" not in kind else facts)
        if shape.fullmatch(each)
        for text in _value_texts(view.facts.value(each))
    )


def _value_texts(value: FactValue) -> tuple[str, ...]:
    match value:
        case Unknown():
            return ()
        case bool():
            return ("true" if value else "false",)  # as the policy writes it
        case tuple():
            return value or ("",)
        case _:
            return (str(value),)


def _need_paths(paths: Sequence[str], views: Sequence[View], provided: Sequence[str]) -> None:
    """Raises UnknownName for the first path that nothing knows."""
    cheap = {*provided, *_OWN, *STATUS_PATHS.values()}
    if all(path in cheap for path in paths):  # the rest reads every fact of every node
        return
    labels = {key if key.startswith("slurm.") else f"label.{key}" for view in views for key in view.node.labels}
    seen: set[str] = set().union(*(view.facts.facts for view in views if view.facts is not None))
    known = seen | {_KEY.sub("[*]", path) for path in seen} | set(provided) | labels | set(_OWN)
    for path in paths:
        if path in known:
            continue
        near = nearest(path, {each for each in known if "[" not in each or "[*]" in each} | set(_OWN))
        hint = f"did you mean {' or '.join(near)}?" if near else "see what can be asked for with: muster facts list"
        raise UnknownName(f"no fact is called {path!r}", hint=hint)
