"""A Kubernetes node's labels as `kubectl get node -o json` or its `.metadata.labels` alone give them, and what NVIDIA's label of GPUs. Pure."""

import json
from collections.abc import Mapping

from muster.model.errors import BadInput
from muster.model.frozen import dataclass

PREFIX = "nvidia.com/"


@dataclass(frozen=True, slots=True)
class GpuLabels:
    """What GPU feature discovery says of a node; None where it says nothing. Labels are as old as its last run: facts count before them."""

    gpus: int | None
    memory_mib: int | None
    machine: str | None
    product: str | None
    driver: str | None


def labels(content: bytes, name: str) -> Mapping[str, str]:
    """All labels of one node. Raises BadInput for anything else."""
    try:
        root = json.loads(content.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{name}:{error.lineno}: not JSON: {error.msg}", hint="was it cut short?") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{name}:1: not JSON that anybody wrote: a number or a nesting without end") from None
    if isinstance(root, dict) and isinstance(root.get("metadata"), dict):
        root = root["metadata"].get("labels")
    if not isinstance(root, dict) or not all(isinstance(value, str) for value in root.values()):
        raise BadInput(
            f"{name}:1: not the labels of a node", hint="kubectl get node NAME -o jsonpath='{.metadata.labels}'"
        )
    return root


def gpu_labels(found: Mapping[str, str]) -> GpuLabels:
    """The labels of GPUs among them. Never raises."""

    def number(key: str) -> int | None:
        text = found.get(PREFIX + key, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None

    def text(key: str) -> str | None:
        return found.get(PREFIX + key) or None

    driver = text("cuda.driver-version.full")
    return GpuLabels(number("gpu.count"), number("gpu.memory"), text("gpu.machine"), text("gpu.product"), driver)
