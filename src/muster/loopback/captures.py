"""Turns real nvidia-smi captures into one node's own: its serials and UUIDs put in, placeholders where the driver decides. Renders nothing."""

import hashlib
import re
from importlib.resources import files
from pathlib import Path

from muster.model.frozen import dataclass

_XML = "q-x_8x-h100-hbm3_570.86.15.xml"
_XML_DRIVER = "570.86.15"
_QUERY = "query-gpu_idle_h200_590.48.01.csv"
_APPS = "compute-apps_load_h200_590.48.01.csv"
_TABLE = "table_idle_h200_590.48.01.txt"
_VERSION = "version_h200_590.48.01.txt"
_OTHER_DRIVER = "590.48.01"

# CUDA version that nvidia-smi of a driver branch names.
_CUDA_VERSIONS = {"535": "12.2", "550": "12.4", "570": "12.8", "575": "12.9", "580": "13.0", "590": "13.1"}

# Column of --query-gpu -> tag of -q -x, where both name the same thing.
_SHARED = {
    "name": "product_name",
    "serial": "serial",
    "uuid": "uuid",
    "pci.bus_id": "pci_bus_id",
    "pci.device_id": "pci_device_id",
    "pci.sub_device_id": "pci_sub_system_id",
    "vbios_version": "vbios_version",
    "inforom.img": "img_version",
    "inforom.oem": "oem_object",
    "inforom.ecc": "ecc_object",
    "index": "minor_number",
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a loopback node as its captures show it."""

    index: int
    name: str
    serial: str
    uuid: str
    bus_id: str


def write_captures(folder: Path, node: str) -> tuple[Gpu, ...]:
    """Write the captures of `node` into `folder` and return its GPUs. The same name gives the same serials and UUIDs."""
    folder.mkdir(parents=True, exist_ok=True)
    xml = _own_xml(_read(_XML), node)
    blocks = re.findall(r"<gpu id=.*?</gpu>", xml, re.S)
    gpus = tuple(_gpu(block) for block in blocks)
    pieces = {
        "xml": xml,
        "query-gpu": _query(_read(_QUERY), blocks),
        "compute-apps": _apps(_read(_APPS), gpus),
        "table": _table(_read(_TABLE), gpus),
        "L": "".join(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})\n" for gpu in gpus),
        "version": _version(_read(_VERSION)),
        "cuda-versions": "".join(f"{branch} {cuda}\n" for branch, cuda in _CUDA_VERSIONS.items()),
        **{name: _read(name) for name in ("message_01.txt", "message_03.txt", "message_04.txt")},
    }
    for name, text in pieces.items():
        (folder / name).write_text(text, encoding="utf-8")
    return gpus


def _read(name: str) -> str:
    return files("muster.loopback").joinpath("captures", name).read_text(encoding="utf-8")


def _tag(block: str, name: str) -> str:
    found = re.search(rf"<{name}>(.*?)</{name}>", block, re.S)
    return found.group(1).strip() if found else "[N/A]"


def _gpu(block: str) -> Gpu:
    return Gpu(
        int(_tag(block, "minor_number")), *(_tag(block, t) for t in ("product_name", "serial", "uuid", "pci_bus_id"))
    )


def _own_xml(text: str, node: str) -> str:
    numbers = iter(range(text.count("</gpu>") * 2))
    text = text.replace(_XML_DRIVER, "@DRIVER@")
    text = re.sub(r"<timestamp>.*?<", "<timestamp>@STAMP@<", text)
    text = re.sub(r"<cuda_version>.*?<", "<cuda_version>@CUDA@<", text)
    text = re.sub(r"<persistence_mode>.*?<", "<persistence_mode>@PERSISTENCE@<", text)
    text = re.sub(r"<serial>\d+<", lambda _: f"<serial>{_serial(node, next(numbers))}<", text)
    text = re.sub(r"<uuid>GPU-[0-9a-f-]+<", lambda _: f"<uuid>{_uuid(node, next(numbers))}<", text)
    indexes = iter(range(text.count("</gpu>")))
    return re.sub(r"(<processes>\n)", lambda found: f"{found.group(1)}@PROCESSES {next(indexes)}@\n", text)


def _digest(node: str, number: int) -> str:
    return hashlib.sha256(f"{node}/{number}".encode()).hexdigest()


def _serial(node: str, number: int) -> str:
    return f"16{int(_digest(node, number)[:12], 16) % 10**11:011d}"


def _uuid(node: str, number: int) -> str:
    h = _digest(node, number)
    return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:32]}"


def _query(text: str, blocks: list[str]) -> str:
    heading, row = text.splitlines()[:2]
    names = [name.split(" [")[0] for name in heading.split(", ")]
    rows = []
    for block in blocks:
        cells = dict(zip(names, row.replace(_OTHER_DRIVER, "@DRIVER@").split(", "), strict=True))
        cells |= {column: _tag(block, tag) for column, tag in _SHARED.items()}
        for column in ("pci.device_id", "pci.sub_device_id"):
            cells[column] = "0x" + cells[column]
        cells |= {
            "timestamp": "@CSV_STAMP@",
            "count": str(len(blocks)),
            "pci.bus": "0x" + _tag(block, "pci_bus"),
            "persistence_mode": "@PERSISTENCE@",
        }
        memory = _tag(block, "fb_memory_usage")
        cells |= {f"memory.{part}": _tag(memory, part) for part in ("total", "reserved", "used", "free")}
        rows.append(", ".join(cells.values()))
    return "\n".join([heading, *rows]) + "\n"


def _apps(text: str, gpus: tuple[Gpu, ...]) -> str:
    rows = (
        f"{g.index}\t@CSV_STAMP@, {g.name}, {g.bus_id}, {g.serial}, {g.uuid}, @PID@, @NAME@, @USED@ MiB\n" for g in gpus
    )
    return text.splitlines()[0] + "\n" + "".join(rows)


def _table(text: str, gpus: tuple[Gpu, ...]) -> str:
    lines = text.splitlines()
    lines[0] = "@STAMP@"
    lines[2] = "| NVIDIA-SMI @WIDE_DRIVER@         Driver Version: @WIDE_DRIVER@ CUDA Version: @WIDE_CUDA@|"
    first = next(i for i, line in enumerate(lines) if "NVIDIA H200" in line)
    rows, rule = lines[first : first + 3], lines[first + 3]
    own = []
    for gpu in gpus:
        own += [
            f"| {gpu.index:3d}  {gpu.name:<31}@PM@ |   {gpu.bus_id} Off |                    0 |",
            rows[1].replace("143771MiB", " 81559MiB"),
            rows[2],
            rule,
        ]
    out = [*lines[:first], *own, *lines[first + 4 :]]
    return "\n".join("@PROCESSES@" if "No running processes" in line else line for line in out) + "\n"


def _version(text: str) -> str:
    return text.replace(_OTHER_DRIVER, "@DRIVER@").replace("590.48", "@SHORT@").replace("13.1", "@CUDA@")
