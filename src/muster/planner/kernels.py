"""A kernel that moves together with the driver: which packages come for it, and what the solver is asked of it. Pure.

Names are not known to us but read off the node: the packages that carry the running kernel, under the name of the wanted one. What else those
need comes by itself; preflight refuses a change that would move anything else that is there.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.model.fact import Unknown
from muster.model.frozen import dataclass
from muster.model.plan import KernelMove
from muster.model.policy import KernelPolicy
from muster.model.stack import PackagePin, pins_from
from muster.model.versions.deb import deb_order_key
from muster.solver.problem import Kernel, NodeClass

CARRIERS = re.compile(r"linux-(?:image|headers|modules|kbuild)-\S+")
"""Packages that a kernel comes in. Those that NVIDIA's modules come in ready built do not move with a kernel, and are refused elsewhere."""

_BASE = re.compile(r"(\d+\.\d+\.\d+-\d+)(?=-|$)")
_SERIES = re.compile(r"linux-kbuild-(\d+\.\d+)")
_PREBUILT = re.compile(r"linux-modules-nvidia-\S+")


@dataclass(frozen=True, slots=True)
class Moved:
    """A kernel's move, and packages that are there already and move with it: to what, and back to what."""

    move: KernelMove
    to: tuple[PackagePin, ...] = ()
    back: tuple[PackagePin, ...] = ()


def carriers(installed: Mapping[str, str]) -> tuple[PackagePin, ...]:
    """The installed packages of kernels."""
    return pins_from({n: v for n, v in installed.items() if CARRIERS.fullmatch(n) and not _PREBUILT.fullmatch(n)})


def with_kernel(kind: NodeClass, wish: KernelPolicy | None) -> NodeClass:
    """The class as it is once the wanted kernel is there: bootable, with the headers that come with it, its modules signed as today's are."""
    if wish is None or wish.want.text == kind.kernel or isinstance(kind.kernels, Unknown):
        return kind
    running = next((each for each in kind.kernels if each.name == kind.kernel), None)
    others = tuple(each for each in kind.kernels if each.name != wish.want.text)
    signer = running.signer if running is not None else Unknown("no module of the running kernel was seen")
    return replace(kind, kernels=(*others, Kernel(wish.want.text, headers=True, signer=signer)))


def moved(kind: NodeClass, there: Iterable[PackagePin], wish: KernelPolicy | None) -> Moved | str | None:
    """The move to the wanted kernel; None where it runs or none is wanted; why there is none, in words."""
    if wish is None or wish.want.text == kind.kernel:
        return None
    if kind.manager != "apt":
        return f"a kernel is moved by apt only, and this node has {kind.manager}"
    now = {pin.name: pin.version for pin in there}
    names = _names(now, kind.kernel, wish.want.text)
    if not any(name.startswith("linux-image-") for name in names):
        return f"no installed package carries the running kernel {kind.kernel}: what {wish.want.text} comes in cannot be told"
    new = pins_from({name: wish.package for name in names if name not in now})
    other = {name: now[name] for name in names if now.get(name, wish.package) != wish.package}
    other |= _older_tools(now, wish)
    move = KernelMove(kind.kernel, wish.want.text, new)
    return Moved(move, pins_from(dict.fromkeys(other, wish.package)), pins_from(other))


def _names(now: Iterable[str], old: str, new: str) -> tuple[str, ...]:
    """The names of today's packages of kernel `old`, for `new`; those that several flavours of a kernel share among them."""
    old_base, new_base = _BASE.match(old), _BASE.match(new)
    found = []
    for name in now:
        if re.search(rf"-{re.escape(old)}$", name):
            found.append(name.replace(old, new))
        elif old_base and new_base and re.search(rf"-{re.escape(old_base[1])}(-common)?$", name):
            found.append(name.replace(old_base[1], new_base[1]))
    return tuple(sorted(found))


def _older_tools(now: Mapping[str, str], wish: KernelPolicy) -> Mapping[str, str]:
    """Debian's tools for building modules are of a series, not of a kernel, and must not be older than the headers."""
    return {
        name: version
        for name, version in now.items()
        if (series := _SERIES.fullmatch(name))
        and wish.want.text.startswith(f"{series[1]}.")
        and deb_order_key(version) < deb_order_key(wish.package)
    }
