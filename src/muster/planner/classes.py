"""Groups nodes by the facts that matter to their driver, so that thousands of nodes become a few questions. Pure."""

from collections.abc import Iterable, Mapping

from muster.model.fact import NodeFacts
from muster.model.stack import PackagePin, pins_from
from muster.ports import PackageManager
from muster.solver.problem import NodeClass

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
    return NodeClass(
        product=facts.text("gpu.product") or "",
        kernel=facts.text("kernel.running") or "",
        arch=facts.text("arch") or "",
        os=f"{facts.text('os.id')} {facts.text('os.version')}",
        flavour=facts.text("module.nvidia.flavour") or "",
        driver=facts.text("module.nvidia.disk_version") or "",
        loaded=facts.text("module.nvidia.loaded_version") or "",
        manager=manager.name,
        packages=driver_packages(
            manager.installed(facts),
            facts.text("module.nvidia.disk_version") or "",
            facts.text("library.libcuda.version") or "",
        ),
    )


def driver_packages(installed: Mapping[str, str], *drivers: str) -> tuple[PackagePin, ...]:
    """The installed packages that carry one of `drivers`: their upstream version is the driver's, whatever the packager added after it.

    More than one where a node's parts disagree: all of them move, else the stack stays apart.
    """
    return pins_from(
        {name: version for name, version in installed.items() if any(carries(version, driver) for driver in drivers)}
    )


def carries(version: str, driver: str) -> bool:
    """Whether a package version carries a driver version: `580.126.20-1` and `2:580.126.20-0ubuntu1` carry `580.126.20`."""
    upstream = version.rpartition(":")[2].partition("-")[0]
    return bool(driver) and upstream == driver.partition("-")[0]
