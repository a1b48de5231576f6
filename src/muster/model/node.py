"""A node as the inventory names it: who it is and how it is reached. What it runs is facts."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from muster.model.frozen import dataclass

LOCAL_ADDRESS: Final = "local:"
FILES_PREFIX: Final = "files:"


class Via(StrEnum):
    """How a node is reached: over SSH, as the machine Muster itself runs on, or not at all: outputs carried here as files are all there is."""

    SSH = "ssh"
    LOCAL = "local"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class Node:
    """One machine with GPUs. `address` is what the SSH client is asked for (a name ssh_config may know).

    `local:` as address is this machine itself, `files:FOLDER` a folder of carried outputs; neither can be the name of a host.
    `source` says which inventory source named it, with file and line.
    """

    name: str
    address: str
    port: int | None
    user: str | None
    labels: Mapping[str, str]
    source: str

    @property
    def in_slurm(self) -> bool:
        """Whether Slurm is one of the sources that listed it."""
        return any(key.startswith("slurm.") for key in self.labels)

    @property
    def via(self) -> Via:
        """How it is reached."""
        if self.address == LOCAL_ADDRESS:
            return Via.LOCAL
        return Via.FILES if self.address.startswith(FILES_PREFIX) else Via.SSH
