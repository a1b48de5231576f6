"""`/var/log/fabricmanager.log`: how many lines of each level, and each error of an NVSwitch. What an error means is not said here."""

import re
from collections.abc import Mapping

from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_LINE = re.compile(r"\[(\w{3} \d{1,2} \d{4} \d\d:\d\d:\d\d)\] \[(\w{1,10})\] \[tid \d{1,10}\] (.*)")
_SWITCH = re.compile(
    r"detected NVSwitch (non-fatal|fatal) error (\d{1,6}) on fid (\d{1,4}) on NVSwitch pci bus id ([0-9A-Fa-f:.]{7,20})"
    r" physical id (\d{1,4})(?: port (\d{1,4}))?",
    re.IGNORECASE,
)
_MOST_ERRORS = 1_000


def sniff(head: str) -> int:
    lines = [line for line in head.split("\n") if line.strip()][:200]
    rows = sum(1 for line in lines if _LINE.match(line))
    return 95 if rows * 3 > len(lines) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`switch_error[<n>].severity`, `.sxid`, `.pci`, `.port`, `.at` (the log's own time, whose zone it does not state), in order."""
    levels: dict[str, int] = {}
    found: dict[str, FactValue] = {}
    severities: dict[str, int] = {"fatal": 0, "non-fatal": 0}
    for line in text.split("\n"):
        match = _LINE.match(line)
        if match is None:
            continue
        level = match[2].lower()
        levels[level] = levels.get(level, 0) + 1
        error = _SWITCH.search(match[3])
        if error:
            severities[error[1].lower()] += 1
            number = sum(severities.values())
            if number <= _MOST_ERRORS:
                found |= _error(f"switch_error[{number:04}]", match[1], error)
        elif level == "error":
            found.setdefault("fabric_manager.first_error", match[3][:300])
    if not levels:
        return {"fabric_manager.log_lines": Unknown("no line is one of the fabric manager's log")}
    for level, count in sorted(levels.items())[:10]:
        found[f"fabric_manager.log_{re.sub('[^a-z]', '_', level)}"] = count
    found["fabric_manager.log_lines"] = sum(levels.values())
    found |= {
        "fabric_manager.fatal_errors": severities["fatal"],
        "fabric_manager.non_fatal_errors": severities["non-fatal"],
    }
    return found


def _error(name: str, at: str, error: re.Match[str]) -> Mapping[str, FactValue]:
    return {
        f"{name}.at": at,
        f"{name}.severity": error[1].lower(),
        f"{name}.sxid": int(error[2]),
        f"{name}.pci": error[4],
        f"{name}.port": int(error[6]) if error[6] else Unknown("the line names no port"),
    }


READER = CaptureSpec("fabric_manager_log", "/var/log/fabricmanager.log", sniff, parse)
