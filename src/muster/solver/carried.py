"""Which packages carry the wanted driver on a class of nodes, where names change with the branch or the flavour. Pure.

Names are data (`knowledge/data/package_sets.yaml`). Where the data say nothing of a node's packages they keep their names, unless a name holds
the branch's number: then nobody can say what the next is called, and nothing is planned. Whether a package exists is for the repository to
say, which preflight asks.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.knowledge.query import branch_number, installed_set, package_set
from muster.knowledge.schema import KnowledgeBase, PackageMember, PackageNeed, PackageSet
from muster.model.fact import Unknown
from muster.model.frozen import dataclass
from muster.model.policy import Flavour
from muster.model.stack import PackagePin, pins_from
from muster.model.versions.driver import DriverVersion
from muster.solver.problem import NodeClass

_MACHINES = {("apt", "x86_64"): "amd64", ("apt", "aarch64"): "arm64"}
_BRANCH = re.compile(r"-\d{3,4}(?=-|$)")
_EL = ("rhel", "rocky", "almalinux", "ol", "centos")
"""Distributions that take NVIDIA's packages for RHEL, each of its own minor version; source: the driver installation guide's list of them."""


@dataclass(frozen=True, slots=True)
class Carried:
    """The packages that carry the target, and where their names come from."""

    packages: tuple[PackagePin, ...]
    renamed: tuple[str, ...] = ()
    """Names of today that go, where the change crosses into another set of names."""
    names_from: PackageSet | None = None


@dataclass(frozen=True, slots=True)
class NotNamed:
    """Nobody can say what the packages are called: why, and by which packages of today that is told."""

    why: str
    packages: tuple[str, ...]


def carried(kind: NodeClass, target: str, flavour: str, version: str, base: KnowledgeBase) -> Carried | NotNamed:
    """The packages of driver `target` in `flavour` on nodes of `kind`. `version` is the package version where names stay as they are.

    A module stream (`@nvidia-driver`) goes along where one is enabled: to that of the new branch and flavour.
    """
    streams = tuple(pin for pin in kind.packages if is_stream(pin.name))
    answer = _packages(kind, target, flavour, version, base)
    if isinstance(answer, NotNamed) or not streams:
        return answer
    wanted = _stream(kind, target, flavour, base)
    if wanted is None and (_branch(kind.driver), kind.flavour) != (_branch(target), flavour):
        return NotNamed(
            f"which module stream carries the {flavour} flavour of {_branch(target)} on {kind.os} is not known: no package set names it",
            tuple(pin.name for pin in streams),
        )
    stay = (_branch(kind.driver), kind.flavour) == (_branch(target), flavour)
    moved = tuple(pin if stay else PackagePin(pin.name, wanted or "") for pin in streams)
    return replace(answer, packages=tuple(sorted((*answer.packages, *moved))))


def is_stream(name: str) -> bool:
    """Whether a name among packages is a module whose stream is enabled, as dnf writes it."""
    return name.startswith("@")


def _place(kind: NodeClass) -> tuple[str, str]:
    """Distribution and architecture as NVIDIA's repositories call them: `ubuntu2404`, `rhel9`."""
    name, _, version = kind.os.partition(" ")
    distribution = f"rhel{version.partition('.')[0]}" if name in _EL else f"{name}{version.replace('.', '')}"
    return distribution, _MACHINES.get((kind.manager, kind.arch), kind.arch)


def _stream(kind: NodeClass, target: str, flavour: str, base: KnowledgeBase) -> str | None:
    number, to = branch_number(_branch(kind.driver)), branch_number(_branch(target))
    names = tuple(pin.name for pin in kind.packages)
    source = installed_set(base, *_place(kind), f"R{number}", Flavour(kind.flavour), names)
    repository = source.repository if source else "nvidia-cuda"
    wanted = package_set(base, *_place(kind), f"R{to}", Flavour(flavour), repository)
    return wanted.stream_for(to) if wanted else None


def _packages(kind: NodeClass, target: str, flavour: str, version: str, base: KnowledgeBase) -> Carried | NotNamed:
    """Without the streams."""
    number, to = branch_number(_branch(kind.driver)), branch_number(_branch(target))
    names = tuple(pin.name for pin in kind.packages if not is_stream(pin.name))
    place = _place(kind)
    source = installed_set(base, *place, f"R{number}", Flavour(kind.flavour), names)
    same = _same_names(kind, names, number, to, flavour, version)
    if source is None:
        return same
    wanted = package_set(base, *place, f"R{to}", Flavour(flavour), source.repository)
    if wanted is None:
        return same
    if wanted.id == source.id:
        return Carried(pins_from({_renumbered(name, number, to): version for name in names}))
    crossing = _crossing(names, (source, number), (wanted, to), target)
    # What no set names keeps its name where the node's own repository has all of today's names in the new version.
    kept = isinstance(crossing, NotNamed) and isinstance(same, Carried) and _is_offered(kind, target)
    return same if kept else crossing


def _is_offered(kind: NodeClass, target: str) -> bool:
    if isinstance(kind.offers, Unknown):
        return False
    wanted = DriverVersion.parse(target).upstream
    return any(version.rpartition(":")[2].partition("-")[0] == wanted for version in kind.offers.whole)


def same_names(kind: NodeClass, target: str, flavour: str, version: str) -> Carried | NotNamed:
    """Like `carried` where there is no knowledge of names."""
    number, to = branch_number(_branch(kind.driver)), branch_number(_branch(target))
    streams = tuple(pin for pin in kind.packages if is_stream(pin.name))
    if streams and (number, kind.flavour) != (to, flavour):
        return NotNamed(
            f"which module stream carries R{to} on {kind.os} is not known", tuple(pin.name for pin in streams)
        )
    names = (pin.name for pin in kind.packages if not is_stream(pin.name))
    answer = _same_names(kind, names, number, to, flavour, version)
    return (
        replace(answer, packages=tuple(sorted((*answer.packages, *streams)))) if isinstance(answer, Carried) else answer
    )


def _branch(driver: str) -> str:
    return DriverVersion.parse(driver).branch


def _same_names(
    kind: NodeClass, given: Iterable[str], number: int, to: int, flavour: str, version: str
) -> Carried | NotNamed:
    names = tuple(given)
    if flavour != kind.flavour:
        return NotNamed(
            f"what the {flavour} flavour of R{to} is called on {kind.os} is not known: no package set names it",
            names[:1],
        )
    numbered = [name for name in names if f"-{number}" in name]
    if number != to and numbered:
        return NotNamed(
            f"what {numbered[0]} becomes with R{to} on {kind.os} is not known: no package set names it (knowledge: package_sets)",
            tuple(numbered[:1]),
        )
    return Carried(pins_from(dict.fromkeys(names, version)))


def _crossing(
    names: tuple[str, ...], source: tuple[PackageSet, int], wanted: tuple[PackageSet, int], target: str
) -> Carried | NotNamed:
    """From one set to another: each package to its counterpart, and what takes over from those that have none."""
    old = {member.name_for(source[1]): member for member in source[0].members}
    new = {member.name_for(wanted[1]): member for member in wanted[0].members}
    by_stem = {_stem(name): name for name in new}
    taken: dict[str, None] = {}
    lost = set()
    for name in names:
        successor = by_stem.get(_stem(name))
        # What is always there by the one set and optional by the other came with the one: the other has its own for it.
        came = name in old and old[name].need is PackageNeed.ALWAYS
        if successor is not None and (not came or new[successor].need is PackageNeed.ALWAYS):
            taken[successor] = None
        elif name in old:
            lost.add(old[name].role)
        else:
            return NotNamed(
                f"what becomes of {name} with {target} is not known: neither {source[0].id} nor {wanted[0].id} names it",
                (*(each for each in names if each in old), name),
            )
    known_roles = {member.role for member in source[0].members}
    for name, member in new.items():
        if member.need is PackageNeed.ALWAYS and (member.role in lost or member.role not in known_roles):
            taken[name] = None
    gone = tuple(sorted(set(names) - set(taken)))
    return Carried(pins_from(_versions(taken, new, target)), gone, wanted[0])


def _versions(taken: Iterable[str], new: Mapping[str, PackageMember], target: str) -> Mapping[str, str]:
    return {name: target if "-" in target else f"{target}{new[name].revision}" for name in taken}


def _stem(name: str) -> str:
    """The name without a branch: `nvidia-dkms-580-open` and `nvidia-dkms-open` have one."""
    return _BRANCH.sub("", name)


def _renumbered(name: str, number: int, to: int) -> str:
    return re.sub(rf"-{number}(?=-|$)", f"-{to}", name)
