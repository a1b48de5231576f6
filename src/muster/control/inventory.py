"""Puts the listings of several sources together: one node is one node, under whatever names its sources know it. Pure.

Two sources mean the same node when they use one name, or when one uses the short form of the other's (`gpu01`, `gpu01.site.example`), or
when they reach it at one address. Within one source two names are two nodes, always: whoever wrote the list tells them apart. Where more than
one node could be meant nothing is merged, and the doubt is shown. That two names are one *machine* (one machine-id, one GPU serial) is not
known from names: that is a finding of `health`, after a look.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from operator import attrgetter

from muster.model.errors import BadInput
from muster.model.frozen import dataclass
from muster.model.inventory import Conflict, Inventory, Listing, Said
from muster.model.node import Node, Via

MOST_ALIKE = 32
"""What more nodes than this share (127.0.0.1 in a pretended cluster, `node` before a hundred domains) tells none of them from another."""


@dataclass(slots=True)
class _Entry:
    """One node while it is put together: what each source says of it, the first one first."""

    said: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.said[0].name


class _Index:
    """Entries by the ways a node can be known."""

    def __init__(self, listings: Sequence[Listing]) -> None:
        self._listed: dict[str, set[int]] = {}
        for number, listing in enumerate(listings):
            for node in listing.nodes:
                self._listed.setdefault(node.name, set()).add(number)
        self.entries: list[_Entry] = []
        self._names: dict[str, dict[int, None]] = {}
        self._shorts: dict[str, dict[int, None]] = {}
        self._addresses: dict[str, dict[int, None]] = {}

    def add(self, node: Node, at: int | None) -> None:
        """Keep `node` as entry number `at`, or as a new one."""
        if at is None:
            at = len(self.entries)
            self.entries.append(_Entry())
        self.entries[at].said.append(node)
        self._names.setdefault(node.name.lower(), {})[at] = None
        self._shorts.setdefault(_short(node.name), {})[at] = None
        for address in _addresses(node):
            self._addresses.setdefault(address, {})[at] = None

    def candidates(self, node: Node) -> tuple[int, ...]:
        """The entries that may be this node: by name alone when one has it, else by short form, else by address."""
        named = tuple(at for at in self._names.get(node.name.lower(), ()) if self._may_be(node.name, at))
        if named:
            return named
        forms = self._shorts.get(_short(node.name), {})
        short = tuple(
            at
            for at in (forms if len(forms) <= MOST_ALIKE else ())
            if self._is_form(node.name, at) and self._may_be(node.name, at)
        )
        if short:
            return short
        found: dict[int, None] = {}
        for address in _addresses(node):
            alike = self._addresses.get(address, {})
            for at in alike if len(alike) <= MOST_ALIKE else ():
                if self._may_share(node, at) and self._may_be(node.name, at):
                    found[at] = None
        return tuple(found)

    def _may_be(self, name: str, at: int) -> bool:
        """Whether no source, not even a later one, tells this name and one of the entry's apart."""
        own = self._listed[name]
        return all(name == each.name or not own & self._listed[each.name] for each in self.entries[at].said)

    def _is_form(self, name: str, at: int) -> bool:
        """Whether one of the two names is the short form of the other, and no third name says otherwise."""
        return "." not in name or all("." not in each.name for each in self.entries[at].said)

    def _may_share(self, node: Node, at: int) -> bool:
        """One address with two ports is two nodes (a gateway before them, or a laptop's demo)."""
        ports = {each.port for each in self.entries[at].said if each.port is not None}
        return node.port is None or not ports or node.port in ports


def merged(listings: Sequence[Listing]) -> Inventory:
    """All nodes of these listings. A node's name, address, port and user are those of the first source that has any; labels are joined."""
    for listing in listings:
        _check_names(listing)
    if len(listings) == 1:
        return _alone(listings[0])
    index = _Index(listings)
    doubts: list[str] = []
    for listing in listings:
        found = {node.name: index.candidates(node) for node in listing.nodes}
        claims: dict[int, list[str]] = {}
        for name, candidates in found.items():
            for at in candidates:
                claims.setdefault(at, []).append(name)
        for node in listing.nodes:
            index.add(node, _chosen(node, found[node.name], claims, index, doubts))
    entries = sorted(index.entries, key=lambda entry: entry.name)
    names = {entry.name: tuple(Said(node.source, node.name) for node in entry.said) for entry in entries}
    return Inventory(
        nodes=tuple(_node(entry.said) for entry in entries),
        names=names,
        conflicts=tuple(conflict for entry in entries for conflict in _conflicts(entry.said)),
        warnings=(
            *(warning for listing in listings for warning in listing.warnings),
            *doubts,
            *_shared([_node(entry.said) for entry in entries]),
        ),
    )


_SAFE_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]{0,252}", re.ASCII)
_SAFE_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+\\-]{0,63}\$?", re.ASCII)
"""What may be the name, the address or the user of a node. An ssh_config may hand them to a shell (`ProxyCommand` with %h and %r)."""


def _check_names(listing: Listing) -> None:
    """Raises BadInput for a node whose name, address or user could be more than that to a shell, to a terminal or to a file system."""
    for node in listing.nodes:
        told = {"name": node.name} | ({"address": node.address} if node.via is Via.SSH else {})
        for what, text in told.items():
            if not _SAFE_NAME.fullmatch(text):
                hint = "letters, digits and . _ - : % stand in a host's name or address, 253 at most; a hyphen or a dot does not begin it"
                raise BadInput(f"{node.source}: {text[:80]!r} cannot be the {what} of a node", hint=hint)
        if node.user is not None and not _SAFE_USER.fullmatch(node.user):
            raise BadInput(
                f"{node.source}: {node.user[:80]!r} cannot be the user of a node", hint="as in `ssh USER@NODE`"
            )


def _alone(listing: Listing) -> Inventory:
    """What one source says: within it two names are two nodes, so nothing is to be put together."""
    nodes = tuple(sorted(listing.nodes, key=attrgetter("name")))
    return Inventory(
        nodes=nodes,
        names=_Own({node.name: node for node in nodes}),
        warnings=(*listing.warnings, *_shared(nodes)),
    )


class _Own(Mapping[str, tuple[Said, ...]]):
    """Of nodes that one source names: the names each has, made when they are asked for."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes

    def __getitem__(self, name: str) -> tuple[Said, ...]:
        return (Said(self._nodes[name].source, name),)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _chosen(
    node: Node, candidates: tuple[int, ...], claims: Mapping[int, Sequence[str]], index: _Index, doubts: list[str]
) -> int | None:
    """The entry that is this node; None when there is none, or when it cannot be told."""
    exact = [at for at in candidates if any(each.name == node.name for each in index.entries[at].said)]
    if exact:
        return exact[0]
    rivals = [name for at in candidates for name in claims[at] if name != node.name]
    if not candidates:
        return None
    if len(candidates) == 1 and not rivals:
        return candidates[0]
    others = dict.fromkeys([*(index.entries[at].name for at in candidates), *rivals])
    doubts.append(f"{node.source}: {node.name} may be the same node as {' or '.join(others)}; they are kept apart")
    return None


def _node(said: Sequence[Node]) -> Node:
    first = said[0]
    labels: dict[str, str] = {}
    for node in reversed(said):
        labels |= node.labels
    # A source that only lists names (or a scheduler's own idea of an address) does not say how a node is reached; one that does counts.
    reached = next((node for node in said if _is_explicit(node)), None) or next(
        (node for node in said if node.via is not Via.FILES), first
    )
    return Node(
        name=first.name,
        address=reached.address,
        port=next((node.port for node in said if node.port is not None), None),
        user=next((node.user for node in said if node.user is not None), None),
        labels=labels,
        source=first.source,
    )


def _conflicts(said: Sequence[Node]) -> Iterable[Conflict]:
    name = said[0].name
    for what, values in (
        ("address", [(node.source, node.address) for node in said if _is_explicit(node)]),
        ("port", [(node.source, str(node.port)) for node in said if node.port is not None]),
        ("user", [(node.source, node.user) for node in said if node.user is not None]),
    ):
        if len({value for _, value in values}) > 1:
            yield Conflict(name, what, tuple(Said(source, value) for source, value in values))
    for key in dict.fromkeys(key for node in said for key in node.labels):
        told = [Said(node.source, node.labels[key]) for node in said if key in node.labels]
        if len({each.value for each in told}) > 1:
            yield Conflict(name, f"label {key}", tuple(told))


def _shared(nodes: Sequence[Node]) -> Iterable[str]:
    """Nodes that are kept apart and yet reached at one address and port: a change of one is a change of the other."""
    reached = [((node.address.lower(), node.port), node) for node in nodes]
    places: dict[tuple[str, int | None], list[str]] = {}
    if len({place for place, _ in reached}) < len(reached):
        for place, node in reached:
            if node.via is Via.SSH:
                places.setdefault(place, []).append(node.name)
    for (address, _), names in places.items():
        if len(names) > 1:
            shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            yield f"{shown} are reached at one address, {address}: if they are one machine, name it once"


def _is_explicit(node: Node) -> bool:
    """Whether a source says how to reach it, and does not only repeat its name, or have outputs that were carried here."""
    return node.via is not Via.FILES and node.address.lower() != node.name.lower()


def _addresses(node: Node) -> tuple[str, ...]:
    """What a node is reached at, in lower case; a carried folder and this machine are no addresses."""
    if node.via is not Via.SSH:
        return ()
    return tuple(dict.fromkeys((node.address.lower(), node.name.lower())))


def _short(name: str) -> str:
    lowered = name.lower()
    if lowered[:1].isdigit() or ":" in lowered:
        with suppress(ValueError):
            return str(ipaddress.ip_address(lowered))
    return lowered.partition(".")[0]
