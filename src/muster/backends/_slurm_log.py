"""Lines of slurmd's and slurmctld's logs that tell what is wrong with a node's GPUs. Pure; what it does not know it passes over."""

import re
from typing import Final

from muster.model.frozen import dataclass

_NO_DEVICE = re.compile(r"can't stat gres\.conf file (/\S{1,200}): No such file", re.ASCII)
_FEWER = re.compile(r"gres/gpu count reported lower than configured \((\d{1,6}) < (\d{1,6})\)", re.ASCII)
_NODE = re.compile(r"\bnode[= ]([A-Za-z0-9][\w.-]{0,200})", re.ASCII)

MOST_LINES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Complaint:
    """What Slurm complains of: `finding` in our words; a device, a node and counts where it names them."""

    finding: str
    node: str = ""
    device: str = ""
    reported: int | None = None
    configured: int | None = None


def complaints(content: bytes) -> tuple[Complaint, ...]:
    """The complaints in a log, in its order. Never raises."""
    found = []
    for line in content.decode("utf-8", "replace").split("\n")[:MOST_LINES]:
        at = _NODE.search(line)
        node = at[1] if at is not None else ""
        if matched := _NO_DEVICE.search(line):
            found.append(
                Complaint(
                    "device node missing: driver not loaded before slurmd (order it after nvidia-persistenced / nvidia-modprobe)",
                    node,
                    device=matched[1],
                )
            )
        elif matched := _FEWER.search(line):
            found.append(
                Complaint(
                    "Slurm configuration does not match the new MIG layout; no GPU fault",
                    node,
                    reported=int(matched[1]),
                    configured=int(matched[2]),
                )
            )
    return tuple(found)
