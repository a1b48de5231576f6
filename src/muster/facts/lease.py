"""Who holds the node for maintenance, as its lease file says (written by `muster.node.lease`)."""

import json
from collections.abc import Mapping

from muster.facts import _read
from muster.model.fact import FactSpec, FactValue, RawOutput, Unknown

_COMMAND = r"""
if [ -e "$MUSTER_ROOT/var/lib/muster/node/lease" ]; then cat "$MUSTER_ROOT/var/lib/muster/node/lease"; else echo none; fi
"""

_TEXTS = ("holder", "rollout_id", "plan_id", "reason", "taken_at", "boot_id")
_NUMBERS = ("number", "uptime_s", "ttl_s")
_PROVIDES = ("lease.held", *(f"lease.{field}" for field in _TEXTS + _NUMBERS))


def parse(raw: RawOutput) -> Mapping[str, FactValue]:
    """`lease.held`, and where one is held its fields. A file that cannot be read is Unknown, never "not held"."""
    why = _read.no_answer(raw, "the shell")
    if why:
        return _read.all_unknown(_PROVIDES, why)
    if raw.exit_status != 0:
        return _read.all_unknown(_PROVIDES, "the lease file could not be read (needs root?)")
    if raw.stdout.strip() == b"none":
        return {"lease.held": False}
    try:
        lease = json.loads(raw.stdout)
    except (ValueError, RecursionError):
        lease = None
    if not isinstance(lease, dict):
        return _read.all_unknown(_PROVIDES, "the lease file is damaged")
    found: dict[str, FactValue] = {"lease.held": True}
    for field in _TEXTS + _NUMBERS:
        found[f"lease.{field}"] = _field(lease, field)
    return found


def _field(lease: Mapping[str, object], field: str) -> FactValue:
    value = lease.get(field)
    if field in _TEXTS and isinstance(value, str):
        return value
    if field in _NUMBERS and isinstance(value, int) and not isinstance(value, bool):
        return value
    return Unknown("the lease file does not say it")


FACT = FactSpec("lease", _COMMAND, 5, 16384, parse, _PROVIDES)
