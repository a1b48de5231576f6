"""Finds and reads the fleet's policy file.

Why it exists: it is the one place that knows where a `fleet.yaml` may lie, and that asks the machine which time zones
there are and the knowledge base which GPU families. What the text means is `planner.policy`'s. It reads no inventory.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from muster.documents import MAX_BYTES, Fault, did_you_mean, refused
from muster.knowledge.loader import load
from muster.knowledge.query import families
from muster.model.policy import Policy
from muster.planner.policy import policy_from_document
from muster.planner.policy_pools import Checks

POLICY_VARIABLE: Final = "MUSTER_FLEET"
SYSTEM_POLICY: Final = Path("/etc/muster/fleet.yaml")


def find_policy(given: str | None, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Path:
    """Where the policy lies: `given` (--fleet), $MUSTER_FLEET, ./fleet.yaml, /etc/muster/fleet.yaml; first one named.

    The first two are taken at their word; the answer need not exist.
    """
    named = given or (os.environ if environ is None else environ).get(POLICY_VARIABLE)
    if named:
        return Path(named)
    here = (folder or Path()) / "fleet.yaml"
    return here if here.exists() or not SYSTEM_POLICY.exists() else SYSTEM_POLICY


def read_policy(path: Path) -> Policy:
    """The checked policy in `path`; raises DocumentFaults with every fault, also when the file cannot be read."""
    name = str(path)
    try:
        with path.open("rb") as file:
            # Bounded, so that a device or an endless pipe given by mistake is refused and not read for ever.
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        hint = "name the policy with --fleet FILE or $MUSTER_FLEET; docs/reference/fleet-yaml.md has one to begin with"
        raise refused(name, (Fault(1, 1, f"cannot be read: {error.strerror}", hint),)) from None
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise refused(name, (Fault(line, 1, "the file is not text in UTF-8", "save it as UTF-8"),)) from None
    own = _OwnKnowledge(path.parent)
    return policy_from_document(text, name, Checks(check_zone, own.check_gpu, own.check_folder))


class _OwnKnowledge:
    """The folder of the site's knowledge, once the policy has named it: a family may be known there alone."""

    def __init__(self, beside: Path) -> None:
        self._beside = beside
        self._site: Path | None = None

    def check_folder(self, text: str) -> None:
        folder = self._beside / text
        if not folder.is_dir():
            raise ValueError(f"there is no folder {text!r} beside this file")
        self._site = folder

    def check_gpu(self, family: str) -> None:
        check_gpu(family, self._site)


def check_zone(zone: str) -> None:
    """Raises ValueError, naming the nearest known, when this machine knows no such time zone."""
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        near = did_you_mean(zone, available_timezones())
        close = f"; {near}" if near.startswith("did you mean") else ""
        raise ValueError(f"time zone {zone!r} is not known{close}") from None


def check_gpu(family: str, site: Path | None = None) -> None:
    """Raises ValueError, naming the nearest known, when the knowledge base has no such GPU family."""
    known = families(load(site))
    if family not in known:
        near = did_you_mean(family, known)
        close = f"; {near}" if near.startswith("did you mean") else ""
        raise ValueError(f"{family!r} is no GPU family of the knowledge base{close}")
