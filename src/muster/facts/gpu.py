"""The GPUs as nvidia-smi reports them (`-q -x`), and what it means when it reports something else.

A value the tool gives as `N/A` is an answer (this board has no such thing) and stays a text; what it could not read is Unknown.
"""

import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from muster.facts import _gpu_blocks, _read, _smi
from muster.facts._gpu_blocks import Gpu
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "name": ("product_name",),
    "brand": ("product_brand",),
    "architecture": ("product_architecture",),
    "serial": ("serial",),
    "vbios": ("vbios_version",),
    "bus_id": ("pci/pci_bus_id",),
    "pci_device_id": ("pci/pci_device_id",),
    "minor": ("minor_number",),
    "board_part": ("board_part_number",),
    "gsp_firmware": ("gsp_firmware_version",),
    "memory": ("fb_memory_usage/total",),
    "persistence": ("persistence_mode",),
    "addressing_mode": ("addressing_mode",),
    "mig.mode": ("mig_mode/current_mig",),
    "mig.pending": ("mig_mode/pending_mig",),
    "ecc.mode": ("ecc_mode/current_ecc",),
    "ecc.pending": ("ecc_mode/pending_ecc",),
    "compute_mode": ("compute_mode",),
    "power_limit": (
        "gpu_power_readings/current_power_limit",
        "gpu_power_readings/power_limit",
        "power_readings/power_limit",
    ),
    "clocks.graphics": ("applications_clocks/graphics_clock",),
    "virtualization": ("gpu_virtualization_mode/virtualization_mode",),
    "driver_model": ("driver_model/current_dm",),
    "recovery_action": ("gpu_recovery_action",),
    "fabric.state": ("fabric/state",),
    "fabric.status": ("fabric/status",),
    "row_remap.pending": ("remapped_rows/remapped_row_pending",),
    "row_remap.failure": ("remapped_rows/remapped_row_failure",),
}
"""Fact (under `gpu[<uuid>].`) -> where its text stands in a <gpu> element."""

_SETTINGS: Mapping[str, str] = {
    "mig": "mig.mode", "ecc": "ecc.mode", "persistence": "persistence", "compute_mode": "compute_mode", "power_limit": "power_limit",
    "clocks": "clocks.graphics",
}  # fmt: skip
"""Setting of the node -> the fact of each GPU that it sums up."""

_PROVIDES = (
    "gpu.count",
    "gpu.attached",
    "gpu.driver_version",
    "gpu.cuda_version",
    "gpu.product",
    *(f"settings.{name}" for name in _SETTINGS),
    "settings.mig_devices",
    "gpu.fabric_state",
    "gpu.confidential",
    "gpu.vbios",
    "gpu.nvlink_domain",
    *(f"gpu[*].{field}" for field in _FIELDS),
)

_DEPRECATED = "requested functionality has been deprecated"
"""What newer drivers say of a setting that is no more: an answer, not a fault."""

MOST_GPUS = 256
"""More than any node has (16, times MIG's 7, with room): a report beyond it is broken, and reading it would take long."""

_CLUSTER = "fabric/clusterUuid"
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
_SUMS = (
    "gpu", "mig_devices", "mig_device", "uuid", "clusterUuid", "attached_gpus", "driver_version", "kmd_version", "cuda_version",
    "cuda_umd_version",
    "cc_protected_memory_usage",
)  # fmt: skip
_READ = sorted(
    {"nvidia_smi_log", *_SUMS, *(part for places in _FIELDS.values() for place in places for part in place.split("/"))}
)
"""Every element that is read or leads to one that is."""

_MEMORY = "cc_protected_memory_usage/total"
_LEAVES = frozenset(("uuid", _CLUSTER, _MEMORY, *(place for places in _FIELDS.values() for place in places)))
_BLOCKS = frozenset(place[:at] for place in _LEAVES for at, letter in enumerate(place) if letter == "/")

_KEEPS = "+" if sys.version_info >= (3, 11, 5) else ""
"""A repeat that gives nothing back. Before 3.11.5 (Debian 12 has 3.11.2) Python matched such a repeat of groups wrongly; without it the texts
below match the same, and take longer."""

_TEXT = r"[\t\n\r -%'-;=?-~]*+"
_GAP = r"[\t\n\r ]*+"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*+"
_CLOCKS = re.compile(
    rf"{_GAP}(?:<supported_mem_clock>{_GAP}<value>{_TEXT}</value>{_GAP}"
    rf"(?:<supported_graphics_clock>{_TEXT}</supported_graphics_clock>{_GAP})*{_KEEPS}</supported_mem_clock>{_GAP})*{_KEEPS}"
)
"""What stands in <supported_clocks>: half of a report, and the same for all boards of a model."""


def _inside(depth: int) -> str:
    # Each repeat begins with a `<` that no text holds, and gives nothing back: one way to match, in one pass.
    if depth == _DEEPEST:
        return _TEXT
    return rf"{_TEXT}(?:<({_NAME})>{_inside(depth + 1)}</\{depth + 1}>{_TEXT})*{_KEEPS}"


_DEEPEST = 5
_UNREAD = re.compile(rf"(?:<(?!(?:{'|'.join(_READ)})>)({_NAME})>{_inside(1)}</\1>{_GAP})+{_KEEPS}")
"""Whole elements, without attributes or entities, that are not read, nor lead to one that is. Nothing is lost by leaving them out: nine tenths
of a report, whose tree costs more than all else that is done with a node's answer."""


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """All GPUs by UUID, and the node's sums over them; Unknown with a telling reason when there is no whole report."""
    why = _read.no_answer(raw, "nvidia-smi")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    report = _report(raw)
    if isinstance(report, Unknown):
        return _read.all_unknown(_PROVIDES, report.why)
    log, gpus = report
    if len(gpus) > MOST_GPUS:
        return _read.all_unknown(_PROVIDES, f"nvidia-smi reports {len(gpus)} GPUs, which no node has")
    found: dict[str, FactValue] = {}
    set_to: dict[str, list[FactValue]] = {field: [] for field in _SETTINGS.values()}
    taken: set[str] = set()
    for gpu in gpus:
        texts = gpu.texts
        key = _key(texts.get("uuid", ""), texts.get("pci/pci_bus_id") or gpu.id, taken)
        for field, places in _FIELDS.items():
            value = _value(texts, places)
            if value is not None:
                found[f"gpu[{key}].{field}"] = value
                if field in set_to:
                    set_to[field].append(value)
        if gpu.id:
            found.setdefault(f"gpu[{key}].bus_id", gpu.id)
    names = [gpu.texts.get("product_name", "") for gpu in gpus]
    found |= {f"settings.{name}": _set_to(set_to[field]) for name, field in _SETTINGS.items()}
    found["settings.mig_devices"] = _counted([str(gpu.slices) for gpu in gpus])
    found["gpu.count"] = len(names)
    found["gpu.attached"] = _read.whole_number(
        _text(log, "attached_gpus"), "the report does not say how many GPUs are attached"
    )
    found["gpu.product"] = _read.text_or(", ".join(sorted(set(names) - {""})), "no GPU reports a name")
    versions = {value for path, value in found.items() if path.endswith("].vbios") and isinstance(value, str)}
    found["gpu.vbios"] = tuple(sorted(versions)) or Unknown("no GPU reports its VBIOS")
    # A node joins others to one NVLink domain; without a fabric, or with one of its own, all of a cluster's UUID is zero or not there.
    clusters = {gpu.texts.get(_CLUSTER, "") for gpu in gpus} - {"", _NO_CLUSTER, "N/A"}
    found["gpu.nvlink_domain"] = "+".join(sorted(clusters)) or "none"
    # From 610 on the plain names carry "Deprecated, see ..." and the versions stand under new ones.
    found["gpu.driver_version"] = _read.text_or(
        _version(log, "driver_version", "kmd_version"), "the report states no driver version"
    )
    found["gpu.cuda_version"] = _read.text_or(
        _version(log, "cuda_version", "cuda_umd_version"), "the report states no CUDA version"
    )
    found["gpu.fabric_state"] = _fabric(gpus)
    found["gpu.confidential"] = _confidential(gpus)
    return found


def _set_to(values: Sequence[FactValue]) -> FactValue:
    """What the GPUs of the node are set to, in one text: `Enabled`, or `6 Enabled, 2 Disabled` where they differ."""
    if values and values[0].__class__ is str and values.count(values[0]) == len(values):  # as nearly always
        return values[0]
    lost = next((each for each in values if isinstance(each, Unknown) and each.why.lower() != _DEPRECATED), None)
    return lost or _counted(["N/A" if isinstance(value, Unknown) else str(value) for value in values])


def _counted(texts: Sequence[str]) -> str:
    counts = Counter(texts or ["N/A"])
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {text}" for text, count in sorted(counts.items()))


def _fabric(gpus: Sequence[Gpu]) -> FactValue:
    """The state that all GPUs give of their NVLink fabric; where they differ, each state once."""
    states = sorted({gpu.texts.get("fabric/state", "") for gpu in gpus} - {""})
    return _read.text_or(", ".join(states)[:200], "the report states none")


def _confidential(gpus: Sequence[Gpu]) -> FactValue:
    """Whether some GPU has memory set aside for confidential computing."""
    sizes = [text for gpu in gpus if (text := gpu.texts.get(_MEMORY))]
    return any(size[0] in "123456789" for size in sizes) if sizes else Unknown("the report does not say it")


def _report(raw: RawOutput) -> tuple[ET.Element, Sequence[Gpu]] | Unknown:
    """The report's root and its GPUs; without a whole report, what the tool said instead."""
    body = _body(raw)
    if isinstance(body, str):
        quick = _gpu_blocks.read(body, _understood)
        if quick is not None:
            return quick
    log = document(raw, only_read=True)
    return log if isinstance(log, Unknown) else (log, [_understood(gpu) for gpu in log.findall("gpu")])


def _understood(gpu: ET.Element) -> Gpu:
    return Gpu(_leaves(gpu), len(gpu.findall("mig_devices/mig_device")), gpu.get("id", ""))


def document(raw: RawOutput, *, only_read: bool = False) -> ET.Element | Unknown:
    """The report's root element, with `only_read` without most of what no fact is read from. Without a whole one: what the tool said instead."""
    body = _body(raw)
    if isinstance(body, Unknown):
        return body
    if only_read and "<!" not in body:  # in a comment or CDATA section an element is a text
        body = _UNREAD.sub(
            "<_/>", _without_clocks(body)
        )  # not nothing: what stands on both sides must not become one text
    try:
        return ET.fromstring(body)
    except (ET.ParseError, ValueError):
        return Unknown("nvidia-smi's report is not well-formed XML")


def _body(raw: RawOutput) -> str | Unknown:
    """The text of the report's root element."""
    start, end = raw.stdout.find(b"<nvidia_smi_log"), raw.stdout.rfind(b"</nvidia_smi_log>")
    if start < 0:
        return Unknown(_smi.message(_read.text(raw), raw.exit_status))
    if raw.truncated or end < start:
        return Unknown(f"nvidia-smi's report is cut off after {len(raw.stdout)} bytes")
    # Only the element itself is read: no DOCTYPE, so no entity can be declared.
    return raw.stdout[start : end + len(b"</nvidia_smi_log>")].decode("utf-8", "replace")


def _without_clocks(body: str) -> str:
    """The report without its lists of clocks, where every one of them is nothing else."""
    first, *others = body.split("<supported_clocks>")
    kept = [first]
    for each in others:
        clocks, end, after = each.partition("</supported_clocks>")
        if not end or not _is_clocks(clocks):
            return body
        kept.append(after)
    return "<_/>".join(kept)


@lru_cache(maxsize=32)
def _is_clocks(text: str) -> bool:
    return _CLOCKS.fullmatch(text) is not None


def by_key(log: ET.Element) -> Iterator[tuple[str, ET.Element]]:
    """The report's GPUs, at most `MOST_GPUS`, each with the key that its paths have."""
    taken: set[str] = set()
    for gpu in log.findall("gpu")[:MOST_GPUS]:
        yield _key(_text(gpu, "uuid"), _text(gpu, "pci/pci_bus_id") or gpu.get("id", ""), taken), gpu


def _key(uuid: str, bus: str, taken: set[str]) -> str:
    """The GPU's UUID; its bus id where it has none, both where a UUID comes twice. No key holds a bracket. It is then among those `taken`."""
    key = _smi.plain_key(uuid or bus or "unnamed")
    key = _smi.plain_key(f"{key}@{bus}") if key in taken else key
    taken.add(key)
    return key


def _leaves(gpu: ET.Element) -> Mapping[str, str]:
    """What stands at each place that some fact is read from: the first of each, as `_text` would find it. One pass for all of them."""
    found: dict[str, str] = {}
    blocks = [("", gpu)]
    for prefix, block in blocks:
        for child in block:
            place = prefix + child.tag
            if place in _LEAVES and place not in found:
                found[place] = (child.text or "").strip()
            if place in _BLOCKS:
                blocks.append((f"{place}/", child))
    return found


def _text(element: ET.Element, place: str) -> str:
    block, _, name = place.rpartition("/")
    # ElementTree is ten times slower for a path than for a name.
    for each in element.findall(block) if block else (element,):
        text = each.findtext(name)
        if text is not None:
            return text.strip()
    return ""


def _value(texts: Mapping[str, str], places: Iterable[str]) -> FactValue | None:
    for place in places:
        text = texts.get(place)
        if text:
            return _smi.reading(text)
    return None


def _version(log: ET.Element, *places: str) -> str | None:
    return next((text for place in places if (text := _text(log, place)) and text[0].isdigit()), None)


FACT = FactSpec("gpu", "nvidia-smi -q -x 2>&1", 20, 2097152, parse, _PROVIDES)
