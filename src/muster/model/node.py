"""A node as the inventory names it: who it is and how it is reached. What it runs is facts."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """One machine with GPUs. `address` is what the SSH client is asked for (a name ssh_config may know).

    `source` says which inventory source named it, with file and line.
    """

    name: str
    address: str
    port: int | None
    user: str | None
    labels: Mapping[str, str]
    source: str
