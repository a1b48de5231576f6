"""The claim on a node that lives on the node: who works here, for which rollout and plan, under which number.

The number goes up by one at every take and outlives the release, so that a holder who lost the node without knowing it can be told from the
present one (see `node.task`). Expiry is judged by the node's own uptime, after another boot counted from that boot. An expired lease is
never taken away silently: the answer says `expired`, and the next take must name it, because expiry hands over the duty to recover.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from muster.node import _shell

KIND = "muster-lease/1"


@dataclass(frozen=True)
class LeaseAnswer:
    """What a node says of its lease.

    `state`: `taken` (ours now), `held` (by the one named), `expired` (held, its time is over), `free`, `released`, `refused` (held by the
    one named, `expired` tells whether its time is over), `failed` (the node could not do its part) or `unknown` (no whole answer).
    """

    state: str
    why: str = ""
    number: int = 0
    rollout_id: str = ""
    plan_id: str = ""
    holder: str = ""
    reason: str = ""
    taken_at: str = ""
    boot_id: str = ""
    uptime_s: int = 0
    ttl_s: int = 0
    expired: bool = False
    now_boot_id: str = ""
    now_uptime_s: int = 0


_ANSWER = r"""
answer() { # state, exit status, why
  begin "$1"
  printf 'expired %s\n' "$L_EXPIRED"
  if [ -n "$3" ]; then printf 'why %s\n' "$3"; fi
  if [ -e "$D/lease" ]; then printf 'lease %s\n' "$(cat "$D/lease")"; fi
  finish "$2"
}
"""

_SHOW = r"""
if ! load_lease; then answer free 0 ''; fi
if [ "$L_EXPIRED" = yes ]; then answer expired 0 ''; fi
answer held 0 ''
"""

_TAKE = r"""
open_state
NUMBER=''
TAKEN_AT=$(now)
if load_lease; then
  if [ "$L_ROLLOUT" = "$ROLLOUT" ]; then
    NUMBER=$L_NUMBER
    TAKEN_AT=$(sed -n 's/^{"number".*,"ttl_s":[0-9]*,"taken_at":"\([0-9TZ:.-]*\)",.*/\1/p' "$D/lease")
  elif [ "$L_EXPIRED" = no ]; then answer refused 75 'another rollout has this node'
  elif [ "$L_NUMBER" != "$OVER" ]; then answer refused 75 'another rollout had this node and its time is over; whoever takes it must recover it'
  fi
fi
load_counter
if [ -z "$NUMBER" ]; then
  NUMBER=$((COUNTER + 1))
  # The counter first: a number that may have been given is never given again.
  printf '%s\n' "$NUMBER" | put "$D/lease.number" || cannot_write "$D/lease.number" "$D"
fi
printf '{"number":%s,"rollout_id":"%s","boot_id":"%s","uptime_s":%s,"ttl_s":%s,"taken_at":"%s",%s\n' \
  "$NUMBER" "$ROLLOUT" "$BOOT" "$UPTIME" "$TTL" "$TAKEN_AT" "$REST" | put "$D/lease" || cannot_write "$D/lease" "$D"
load_lease
answer taken 0 ''
"""

_RELEASE = r"""
if [ ! -e "$D/lease" ]; then load_lease; answer free 0 ''; fi
open_state
if ! load_lease; then answer free 0 ''; fi
if [ "$L_ROLLOUT" != "$ROLLOUT" ]; then answer refused 75 'another rollout has this node'; fi
rm -f "$D/lease" || cannot_write "$D/lease" "$D"
sync "$D" 2>/dev/null || sync
answer released 0 ''
"""


def lease_take(*, holder: str, rollout_id: str, plan_id: str, reason: str, ttl_s: int, over: int = 0) -> str:
    """The text that claims the node for a rollout. For `sh -s` on the node, as root.

    Taking again for the same rollout keeps the number and `taken_at` and begins `ttl_s` anew. Another rollout's lease refuses (exit status
    75, the answer names it); when that one has expired, `over` = its number takes the node, with the duty to recover it.
    Raises ValueError for a rollout id that is no name.
    """
    rest = json.dumps({"holder": holder, "plan_id": plan_id, "reason": reason}, separators=(",", ":"))[1:]
    settings = (
        f"ROLLOUT={_shell.quote(_shell.name('rollout id', rollout_id))}\nTTL='{int(ttl_s)}'\nOVER='{int(over)}'\n"
        f"REST={_shell.quote(rest)}\n"
    )
    return _shell.answering(KIND, settings + _ANSWER + _TAKE)


def lease_release(*, rollout_id: str) -> str:
    """The text that gives the node back. Another rollout's lease stays (exit status 75); none at all is no fault (`free`)."""
    settings = f"ROLLOUT={_shell.quote(_shell.name('rollout id', rollout_id))}\n"
    return _shell.answering(KIND, settings + _ANSWER + _RELEASE)


def lease_show() -> str:
    """The text that asks who holds the node. Changes nothing and needs no root."""
    return _shell.answering(KIND, _ANSWER + _SHOW)


def parse_lease_answer(stdout: bytes) -> LeaseAnswer:
    """What a node said of its lease, from anything it printed. Never raises; without a whole answer the state is `unknown`."""
    fields = _shell.read_answer(KIND, stdout)
    if fields is None:
        return LeaseAnswer("unknown", why="the node gave no whole answer")
    try:
        lease = json.loads(fields.get("lease", b"{}"))
    except ValueError:
        lease = None
    if not isinstance(lease, dict):
        return LeaseAnswer("unknown", why="the lease on the node cannot be read")
    return LeaseAnswer(
        state=_shell.words(fields.get("state")),
        why=_shell.words(fields.get("why")),
        number=_number(lease.get("number")),
        rollout_id=str(lease.get("rollout_id", "")),
        plan_id=str(lease.get("plan_id", "")),
        holder=str(lease.get("holder", "")),
        reason=str(lease.get("reason", "")),
        taken_at=str(lease.get("taken_at", "")),
        boot_id=str(lease.get("boot_id", "")),
        uptime_s=_number(lease.get("uptime_s")),
        ttl_s=_number(lease.get("ttl_s")),
        expired=fields.get("expired") == b"yes",
        now_boot_id=_shell.words(fields.get("now_boot_id")),
        now_uptime_s=_number(_shell.words(fields.get("now_uptime_s"))),
    )


def _number(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) else 0
