"""`rpm -qa`: packages with version, release and architecture."""

import re
from collections.abc import Mapping

from muster.facts.captures import _text
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_ROW = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9_+.-]{0,120}?)-([0-9A-Za-z_.+~^:]{1,60})-([0-9A-Za-z_.+~^]{1,60})"
    r"\.(x86_64|aarch64|noarch|i[3-6]86|ppc64le|src)"
)
_KEY = re.compile(r"gpg-pubkey-[0-9a-f]{8,40}-[0-9a-f]{8}(?:\.\(none\))?")
_MODULES = re.compile(r"kmod-nvidia(-open|-latest|-\d+)?|nvidia-(open-)?(dkms|kmod)|dkms-nvidia|kmod-nvidia-\S+")
_OPEN = re.compile(r"kmod-nvidia-open|nvidia-open|open-dkms|kmod-\S*-open")
_MOST_ROWS = 20_000


def sniff(head: str) -> int:
    lines = [line.strip() for line in head.split("\n") if line.strip()][:400]
    rows = sum(1 for line in lines if _ROW.fullmatch(line) or _KEY.fullmatch(line))
    return 95 if rows and rows * 2 > len(lines) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`package[<name>].version` (with release), `.arch`; a name that is there twice has its later version in the key. What of the driver's
    kernel module is there: `packages.driver_versions`, `packages.flavours` (a package list does not say which one is in use).
    """
    found: dict[str, FactValue] = {"packages.manager": "rpm"}
    versions, flavours = set(), set()
    for line in text.split("\n")[:_MOST_ROWS]:
        row = _ROW.fullmatch(line.strip())
        if row is None:
            continue
        version = f"{row[2]}-{row[3]}"
        key = row[1] if f"package[{row[1]}].version" not in found else _text.key(f"{row[1]}@{version}.{row[4]}")
        found[f"package[{key}].version"], found[f"package[{key}].arch"] = version, row[4]
        if _MODULES.fullmatch(row[1]):
            versions.add(row[2])
            flavours.add("open" if _OPEN.search(row[1]) else "proprietary")
    if len(found) == 1:
        return {"packages.manager": Unknown("no line is a package as rpm writes it")}
    found["packages.driver_versions"] = _text.distinct(versions)
    found["packages.flavours"] = _text.distinct(flavours)
    return found


READER = CaptureSpec("rpm_list", "rpm -qa", sniff, parse)
