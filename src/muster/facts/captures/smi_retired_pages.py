"""`nvidia-smi --query-retired-pages=... --format=csv`: memory pages that boards before Ampere gave up. A row of `[N/A]` is no page."""

from collections.abc import Mapping

from muster.facts import _smi
from muster.facts.captures import _csv
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown


def sniff(head: str) -> int:
    table = _csv.split(head)
    return (
        99
        if table and any(name.startswith("retired_pages.") for name, _ in table[0]) and "pstate" not in dict(table[0])
        else 0
    )


def parse(text: str) -> Mapping[str, FactValue]:
    """Per GPU the number of retired pages, or N/A where the board keeps no such list."""
    table = _csv.split(text)
    if table is None or not any(name.startswith("retired_pages.") for name, _ in table[0]):
        return {"retired_pages.count": Unknown("the table has no header line: take it without noheader")}
    header, lines = table
    found: dict[str, FactValue] = {}
    pages: dict[str, int] = {}
    read = 0
    for row in _csv.rows(lines, header):
        read += 1
        key = _smi.plain_key(row.get("gpu_uuid") or row.get("gpu_bus_id") or "unnamed")
        pages.setdefault(key, 0)
        pages[key] += row.get("retired_pages.address", "").startswith("0x")
        for column, field in (("gpu_name", "name"), ("gpu_bus_id", "bus_id")):
            if column in row:
                found[f"gpu[{key}].{field}"] = _smi.reading(row[column])
    found |= {f"gpu[{key}].retired_pages.count": count for key, count in pages.items()}
    found |= {"report.columns": len(header), "report.rows": read}
    return found


READER = CaptureSpec("smi_retired_pages", "nvidia-smi --query-retired-pages=... --format=csv", sniff, parse)
