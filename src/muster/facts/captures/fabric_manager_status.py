"""`nv-fabricmanager --version` and `systemctl status nvidia-fabricmanager`, one of them or both: version, running or not, nvlsm beside it."""

import re
from collections.abc import Mapping

from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_VERSION = re.compile(r"^Fabric Manager version is : (\d[\w.]{0,30})", re.MULTILINE)
_UNIT = re.compile(r"nvidia-fabricmanager\.service")
_ACTIVE = re.compile(r"^\s*Active: (\w{1,20})(?: \((.{1,40}?)\))?", re.MULTILINE)
_LOADED = re.compile(r"^\s*Loaded: \w{1,20} \([^;]{1,200}; (\w{1,20})", re.MULTILINE)
_NVLSM = re.compile(r"\d{1,10} \S{0,200}/nvlsm\s")
_BRANCH = re.compile(r"Build Info - Branch: (\S{1,120}),")


def sniff(head: str) -> int:
    return 95 if _VERSION.search(head) or (_UNIT.search(head) and _ACTIVE.search(head)) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    version, active, loaded, branch = (sign.search(text) for sign in (_VERSION, _ACTIVE, _LOADED, _BRANCH))
    found: dict[str, FactValue] = {
        "fabric_manager.version": version[1] if version else Unknown("the text does not state it"),
        "fabric_manager.active": active[1] == "active" if active else Unknown("the text holds no unit's state"),
        "fabric_manager.enabled": loaded[1] == "enabled" if loaded else Unknown("the text holds no unit's state"),
        "nvlsm.running": _NVLSM.search(text) is not None if active else Unknown("the text holds no unit's processes"),
    }
    if active and active[2]:
        found["fabric_manager.state"] = active[2]
    if branch:
        found["fabric_manager.build_branch"] = branch[1]
    return found


READER = CaptureSpec(
    "fabric_manager_status", "nv-fabricmanager --version; systemctl status nvidia-fabricmanager", sniff, parse
)
