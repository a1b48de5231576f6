"""The set of packages that moves as one unit: the driver stack of a node."""

from collections.abc import Mapping

from muster.model.frozen import dataclass

BROKEN_STATES = ("half-installed", "half-configured", "unpacked", "triggers-awaited", "triggers-pending")
"""dpkg's words for a package that is neither installed nor gone."""

IMAGE_KINDS = ("tmpfs", "overlay", "nfs", "nfs4", "squashfs", "ramfs")
"""Kinds of root file system of nodes that are booted from an image: what is changed there is gone after a restart."""


@dataclass(frozen=True, slots=True, order=True)
class PackagePin:
    """One package at one exact version, as the package manager writes it."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}={self.version}"


@dataclass(frozen=True, slots=True)
class Stack:
    """A driver stack: the driver version, the module flavour (`open` or `proprietary`), and its packages."""

    driver: str
    flavour: str
    packages: tuple[PackagePin, ...]


def pins_from(value: Mapping[str, str]) -> tuple[PackagePin, ...]:
    """Pins from name -> version, sorted by name."""
    return tuple(PackagePin(name, value[name]) for name in sorted(value))
