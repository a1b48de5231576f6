"""What nvidia-smi means by its words: a value it could not read, and something else than an answer. Pure."""

import re
from functools import lru_cache

from muster.model.fact import FactValue, Unknown

_UNREADABLE = (
    "gpu is lost",
    "unknown error",
    "err!",
    "not found",
    "insufficient permissions",
    "requested functionality has been deprecated",
)


@lru_cache(maxsize=4096)
def reading(text: str) -> FactValue:
    """One value as nvidia-smi prints it, with or without brackets. `N/A` is an answer; what it could not read is Unknown(its words)."""
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1].strip()
    return Unknown(bare) if bare.lower() in _UNREADABLE else bare


def plain_key(key: str) -> str:
    """A UUID or bus id as it may stand between the brackets of a path."""
    return re.sub(r"[^A-Za-z0-9@:._-]", "_", key)


_MESSAGES: tuple[tuple[str, str], ...] = (
    (
        "Driver/library version mismatch",
        "driver/library version mismatch: the loaded module is not of the installed library's version",
    ),
    (
        "couldn't communicate with the NVIDIA driver",
        "nvidia-smi cannot reach the driver: its kernel module is not loaded",
    ),
    ("couldn't find libnvidia-ml", "nvidia-smi finds no libnvidia-ml: the driver's library is not installed"),
    ("No devices were found", "the driver is loaded and found no usable GPU"),
    ("GPU is lost", "a GPU is lost: it has fallen off the bus"),
    ("Unable to determine the device handle", "a GPU cannot be opened: the driver lost it"),
    ("Failed to initialize NVML", "NVML could not be initialised"),
    ("not found", "nvidia-smi is not installed"),
)
"""What nvidia-smi prints instead of an answer -> what it means (samples message_01..09), the first that fits."""


def message(said: str, exit_status: int | None) -> str:
    """What it means that nvidia-smi said this instead of an answer."""
    for part, meaning in _MESSAGES:
        if part in said:
            return meaning
    first = next((line.strip() for line in said.splitlines() if line.strip()), "")
    return f"nvidia-smi gave no report (exit status {exit_status}): {first[:120]}".rstrip(": ")
