"""Groups nodes by the facts that matter to their driver, so that thousands of nodes become a few questions. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from muster.model.fact import NodeFacts, Unknown
from muster.model.stack import PackagePin, pins_from
from muster.model.versions.deb import deb_order_key
from muster.ports import PackageManager
from muster.solver.problem import Kernel, NodeClass, Offers, Switches
from muster.solver.rules.image import IMAGE_KINDS
from muster.solver.rules.kernel import UNSIGNED

LOCKSTEP = re.compile(r"nvidia-imex(-\d+)?|nvidia-fabricmanager(-\d+)?|@\S*nvidia\S*")
"""Packages that must be of the driver's version whatever version they are now: they move with it. So does the module stream (`@nvidia-driver`)
that hides the packages of the others."""

_TOOLKIT = re.compile(r"cuda-(?:cudart|runtime|toolkit)-(\d{1,3})-(\d{1,3})")
_RELEASE = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\D|$)")
_COMPAT = re.compile(r"cuda-compat-\d{1,3}-\d{1,3}")
_PREBUILT = re.compile(r"linux-(?:modules|objects)-nvidia-\S+")

NEEDED = (
    "gpu.product",
    "kernel.running",
    "arch",
    "os.id",
    "os.version",
    "module.nvidia.flavour",
    "module.nvidia.disk_version",
)
"""Facts without which no class can be told, and so no driver chosen."""


def unknown_facts(facts: NodeFacts) -> tuple[str, ...]:
    """Which of the needed facts are unknown, with why; the installed packages among them."""
    unread = facts.unread("package")
    return (
        *(f"{path} ({getattr(facts.value(path), 'why', 'not a text')})" for path in NEEDED if facts.text(path) is None),
        *((f"the installed packages ({unread})",) if unread is not None else ()),
    )


def node_class(facts: NodeFacts, managers: Iterable[PackageManager]) -> NodeClass | None:
    """The class of a node; None when a needed fact is unknown or no package manager serves it."""
    manager = next((m for m in managers if m.serves(facts)), None)
    if manager is None or unknown_facts(facts):
        return None
    installed = manager.installed(facts)
    packages = driver_packages(
        installed, facts.text("module.nvidia.disk_version") or "", facts.text("library.libcuda.version") or ""
    )
    secure_boot = _flag(facts, "secure_boot.enabled")
    return NodeClass(
        product=facts.text("gpu.product") or "",
        kernel=facts.text("kernel.running") or "",
        arch=facts.text("arch") or "",
        os=f"{facts.text('os.id')} {facts.text('os.version')}",
        flavour=facts.text("module.nvidia.flavour") or "",
        driver=facts.text("module.nvidia.disk_version") or "",
        loaded=facts.text("module.nvidia.loaded_version") or "",
        manager=manager.name,
        packages=packages,
        root=_root(facts),
        kernels=_kernels(facts, signed=secure_boot is not False),
        secure_boot=secure_boot,
        enrolled=_words(facts, "secure_boot.enrolled") if secure_boot is not False else (),
        kernel_keys=_words_or_none(facts, "secure_boot.kernel_keys") if secure_boot is not False else (),
        runfile=_flag(facts, "runfile.installed"),
        offers=_offers(facts, packages),
        switches=_switches(facts),
        toolkits=_toolkits(facts, installed),
        compat=pins_from({name: version for name, version in installed.items() if _COMPAT.fullmatch(name)}),
        prebuilt=tuple(sorted(name for name in installed if _PREBUILT.fullmatch(name))),
        confidential=_flag(facts, "gpu.confidential"),
    )


def _root(facts: NodeFacts) -> str | Unknown:
    """The kind of the root file system of a node that boots from an image, empty for any that lies on a disk."""
    kind = _word(facts, "root_fs.kind")
    return kind if isinstance(kind, Unknown) or kind in IMAGE_KINDS else ""


def _word(facts: NodeFacts, path: str) -> str | Unknown:
    value = facts.value(path)
    return value if isinstance(value, str | Unknown) else Unknown("not a text")


def _flag(facts: NodeFacts, path: str) -> bool | Unknown:
    value = facts.value(path)
    return value if isinstance(value, bool | Unknown) else Unknown("not a yes or no")


def _words(facts: NodeFacts, path: str) -> tuple[str, ...] | Unknown:
    value = facts.value(path)
    return value if isinstance(value, tuple | Unknown) else Unknown("not a list")


def _kernels(facts: NodeFacts, *, signed: bool) -> tuple[Kernel, ...] | Unknown:
    """The bootable kernels. Who signed a module is told only where somebody asks: it would divide nodes that are alike."""
    names = _words(facts, "kernel.bootable")
    if isinstance(names, Unknown):
        return names
    return tuple(
        Kernel(
            name,
            _flag(facts, f"kernel[{name}].headers"),
            _word(facts, f"kernel[{name}].nvidia.signer") if signed else UNSIGNED,
        )
        for name in names
    )


def _offers(facts: NodeFacts, packages: Sequence[PackagePin]) -> Offers | Unknown:
    """What the node's package lists offer of these packages."""
    there = _flag(facts, "repository.lists")
    if isinstance(there, Unknown):
        return there
    if not there:
        return Unknown("there are no package lists on the node")
    mine = tuple(pin.name for pin in packages)
    missing = {version: _lacking(facts, version, mine) for version in sorted(facts.members("repository"), key=_order)}
    return Offers(
        whole=tuple(version for version, names in missing.items() if not names),
        partial=tuple((version, names) for version, names in missing.items() if names and len(names) < len(mine)),
        lost=tuple(pin for pin in packages if pin.version not in missing or pin.name in missing[pin.version]),
    )


def _lacking(facts: NodeFacts, version: str, mine: Sequence[str]) -> tuple[str, ...]:
    """Which of these packages are not offered in a version."""
    names = _words_or_none(facts, f"repository[{version}].missing")
    return tuple(name for name in mine if name in names) if names else ()


@lru_cache(maxsize=16384)
def _order(version: str) -> tuple[int, ...]:
    """dpkg's order of a version; lists hold hundreds, the same on every node of a fleet."""
    return deb_order_key(version)


def _words_or_none(facts: NodeFacts, path: str) -> tuple[str, ...]:
    value = facts.value(path)
    return value if isinstance(value, tuple) else ()


def _switches(facts: NodeFacts) -> Switches:
    present = _flag(facts, "fabric_manager.present")
    manager: str | Unknown = "" if present is False else _word(facts, "fabric_manager.version")
    return Switches(
        gpus=_count(facts, "gpu.count"),
        state=facts.text("gpu.fabric_state") or "",
        manager=present if isinstance(present, Unknown) else manager,
        services=_words(facts, "service.present"),
        devices=_count(facts, "pci.nvswitches"),
    )


def _count(facts: NodeFacts, path: str) -> int | Unknown:
    value = facts.value(path)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return value if isinstance(value, Unknown) else Unknown("not a number")


def _toolkits(facts: NodeFacts, installed: Iterable[str]) -> tuple[str, ...]:
    """The CUDA releases whose packages or folders are on the node, such as `12.4`."""
    folders = [facts.text(f"cuda[{path}].version") or "" for path in _words_or_none(facts, "cuda.toolkits")]
    matches = [
        *(_TOOLKIT.fullmatch(name) for name in installed),
        *(_RELEASE.match(version) for version in folders),
    ]
    found = {(int(match[1]), int(match[2])) for match in matches if match}
    return tuple(f"{major}.{minor}" for major, minor in sorted(found))


def driver_packages(installed: Mapping[str, str], *drivers: str) -> tuple[PackagePin, ...]:
    """The installed packages that carry one of `drivers`: their upstream version is the driver's, whatever the packager added after it.

    More than one where a node's parts disagree: all of them move, else the stack stays apart. So do the fabric manager and IMEX, of whatever
    version they are, where the driver itself comes by packages.
    """
    carrying = {name: version for name, version in installed.items() if any(carries(version, d) for d in drivers)}
    beside = {name: version for name, version in installed.items() if carrying and LOCKSTEP.fullmatch(name)}
    return pins_from({**beside, **carrying})


def carries(version: str, driver: str) -> bool:
    """Whether a package version carries a driver version: `580.126.20-1` and `2:580.126.20-0ubuntu1` carry `580.126.20`."""
    upstream = version.rpartition(":")[2].partition("-")[0]
    return bool(driver) and upstream == driver.partition("-")[0]
