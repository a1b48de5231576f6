"""Named, detached tasks on a node: started once, whoever asks and however often; their end is written down where a power cut finds it.

The node's disk is the truth. `tasks/<task_id>/` holds the script (`command`), `record.json`, and what it printed (`out`, `err`). A task runs
in its own session (as its own systemd unit where systemd runs), so neither the end of the SSH connection nor of the control process ends it.
While anything of a task lives it holds a lock; a task without lock and without result is *lost*, or *interrupted* when the node has booted
since: never *running*.

This module makes texts and reads answers. It runs nothing, and it does not judge: what a lost or interrupted task means is the executor's.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from muster.node import _shell

KIND = "muster-task/1"

TAIL_BYTES = 16384
"""How much of each of a task's outputs an answer carries: enough for the last words, and for what a validation measured on sixteen GPUs."""

_FENCE = re.compile(r"(\d{1,18})\.(\d{1,18})")


@dataclass(frozen=True)
class TaskAnswer:
    """What a node says of a task.

    `state`: `absent`, `running`, `done`, `interrupted` (another boot since), `lost` (its processes are gone, no result), `refused` (fence
    or lease; nothing was started), `failed` (the node could not do its part; nothing was started) or `unknown` (no whole answer).
    `started` is True when this very request started it. `exit_status` is set when done (124: ended by its deadline). `boot_id` is the one
    it began under, `now_boot_id` the node's present one. `out` and `err` are the last TAIL_BYTES of `out_size` and `err_size` bytes.
    """

    state: str
    why: str = ""
    started: bool = False
    exit_status: int | None = None
    boot_id: str = ""
    now_boot_id: str = ""
    fence: str = ""
    script_sha256: str = ""
    started_at: str = ""
    ended_at: str = ""
    out: bytes = b""
    err: bytes = b""
    out_size: int = 0
    err_size: int = 0


_COMMON = r"""
field() { # key: a value of the record, which is one line that we wrote ourselves
  sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p' "$T/record.json"
}

lock_is_free() { ( exec 8>>"$T/lock" && flock -n 8 ) 2>/dev/null; }

mark_lost() {
  (
    exec 8>>"$T/lock" && flock -n 8 && [ "$(field state)" = claimed ] || exit 1
    record=$(cat "$T/record.json")
    printf '%s,"state":"lost","pid":0,"exit_status":null,"ended_at":""}\n' "${record%%,\"state\":*}" | put "$T/record.json"
  ) 2>/dev/null
}

tail_of() { # name
  size=0
  if [ -f "$T/$1" ]; then size=$(($(wc -c <"$T/$1"))); fi
  part=$size
  if [ "$part" -gt @TAIL@ ]; then part=@TAIL@; fi
  printf '%s_size %s\n@%s %s\n' "$1" "$size" "$1" "$part"
  if [ "$part" -gt 0 ]; then tail -c "$part" "$T/$1"; fi
  printf '\n'
}

show() { # started: yes or no
  state=$(field state)
  case $state in
    claimed)
      # Claimed, and no wrapper has the lock: that word is written down first, so that a wrapper which comes late runs nothing.
      if [ "$(field boot_id)" != "$BOOT" ]; then state=interrupted
      elif mark_lost; then state=lost
      else state=running
      fi ;;
    running)
      if [ "$(field boot_id)" != "$BOOT" ]; then state=interrupted
      elif lock_is_free; then
        # It may have ended between the two looks: the record is written before the lock goes.
        if [ "$(field state)" = 'done' ]; then state='done'; else state=lost; fi
      else state=running
      fi ;;
    done|lost) ;;
    *) fail "the record $T/record.json cannot be read" ;;
  esac
  begin "$state"
  printf 'started %s\n' "$1"
  printf 'record %s\n' "$(cat "$T/record.json")"
  tail_of out
  tail_of err
  finish 0
}
""".replace("@TAIL@", str(TAIL_BYTES))

_POLL = r"""
T="$D/tasks/$ID"
if [ -e "$D" ] && { [ ! -x "$D" ] || { [ -e "$D/tasks" ] && [ ! -x "$D/tasks" ]; }; }; then
  fail "cannot look into $D/tasks: this needs root (sudo)"
fi
if [ ! -e "$T/record.json" ]; then begin absent; finish 0; fi
open_state
show no
"""

_WRAPPER = r"""# Runs one Muster task: the lock says that it lives, the record says how it ended.
umask 077
T=$1 DEADLINE=$2
put() {
  if dd of="$1.new" bs=65536 conv=fsync 2>/dev/null && mv -f "$1.new" "$1"; then
    sync "${1%/*}" 2>/dev/null || sync
    return 0
  fi
  rm -f "$1.new"
  return 1
}
exec 8>>"$T/lock"
flock -n 8 || exit 0
RECORD=$(cat "$T/record.json")
case $RECORD in *'"state":"claimed"'*) ;; *) exit 0 ;; esac
HEAD=${RECORD%%,\"state\":*}
printf '%s,"state":"running","pid":%s,"exit_status":null,"ended_at":""}\n' "$HEAD" "$$" | put "$T/record.json" || exit 0
printf '%s\n' "$$" >"$T/pid"
exec 9>&-
LIMIT=''
if [ "$DEADLINE" != 0 ] && command -v timeout >/dev/null 2>&1; then LIMIT="timeout -k 30 $DEADLINE"; fi
( umask 022; cd "${MUSTER_ROOT:-/}" && exec $LIMIT sh "$T/command" ) </dev/null >>"$T/out" 2>>"$T/err"
STATUS=$?
# The space kept back at the start: a disk that the task filled must not eat its result.
rm -f "$T/reserve"
ENDED=$(date -u +%Y-%m-%dT%H:%M:%S.000Z)
printf '%s,"state":"done","pid":%s,"exit_status":%s,"ended_at":"%s"}\n' "$HEAD" "$$" "$STATUS" "$ENDED" | put "$T/record.json"
exit 0
"""

KEPT_NEWEST = 40
KEPT_MOST = 200
KEPT_DAYS = 30
"""How many ended tasks a node keeps: the newest 40 (a change has about ten) for ever, up to 200 for 30 days. One without an end stays: it is
evidence."""

_PRUNE = (
    r"""
prune() {
  number=0
  for old in $(ls -t "$D/tasks" 2>/dev/null); do
    number=$((number + 1))
    if [ "$number" -le 40 ] || [ "$old" = "$ID" ]; then continue; fi
    if [ "$number" -le @MOST@ ] && [ -z "$(find "$D/tasks/$old/record.json" -mtime +@DAYS@ 2>/dev/null)" ]; then continue; fi
    if grep -q '"state":"done"' "$D/tasks/$old/record.json" 2>/dev/null; then rm -rf "${D:?}/tasks/$old"; fi
  done
}
""".replace("40", str(KEPT_NEWEST))
    .replace("@MOST@", str(KEPT_MOST))
    .replace("@DAYS@", str(KEPT_DAYS))
)

_START = r"""
T="$D/tasks/$ID"
N="$D/tasks/.new"
open_state
if [ -e "$T/record.json" ]; then show no; fi
# Not at each start: a look at two hundred folders costs a tenth of a second.
if [ "$(($(ls "$D/tasks" | wc -l)))" -gt 40 ]; then prune; fi
rm -rf "$T" "$N"

if [ "$READS_ONLY" = no ]; then
  if ! load_lease; then refuse 'no lease is held on this node; a change needs one'; fi
  load_counter
  if [ "$L_NUMBER" != "$F_LEASE" ]; then
    refuse "the node is held under lease $L_NUMBER by $L_ROLLOUT; this request comes with lease $F_LEASE"
  fi
  SEEN=''
  { read -r SEEN <"$D/fence"; } 2>/dev/null
  case $SEEN in '') SEEN=0.0 ;; *[!0-9.]*|.*|*.) fail "the fence file $D/fence cannot be read" ;; esac
  S_LEASE=${SEEN%%.*}; S_CLAIM=${SEEN#*.}
  if [ "$F_LEASE" -lt "$S_LEASE" ] || { [ "$F_LEASE" -eq "$S_LEASE" ] && [ "$F_CLAIM" -lt "$S_CLAIM" ]; }; then
    refuse "fence $F_LEASE.$F_CLAIM is lower than $SEEN, the highest seen here: another process carries this run"
  fi
fi

give_up() { # why
  rm -rf "$N"
  cannot_write "$1" "$D/tasks"
}

if ! mkdir -m 700 "$N" 2>/dev/null; then cannot_write "$D/tasks" "$D/tasks"; fi
umask 077
put "$N/command" <<'@COMMAND_END@' || give_up "the task's script"
@COMMAND@@COMMAND_END@
put "$N/wrapper" <<'@WRAPPER_END@' || give_up "the task's wrapper"
@WRAPPER@@WRAPPER_END@
SUM=$(sha256sum <"$N/command" 2>/dev/null)
if [ "$(($(wc -c <"$N/command")))" != "$BYTES" ] || [ "${SUM%% *}" != "$SHA" ]; then
  rm -rf "$N"
  fail "the script did not arrive as it was sent; nothing was started"
fi
dd if=/dev/zero of="$N/reserve" bs=4096 count=2 conv=fsync 2>/dev/null || give_up "the space kept for the task's result"
HEAD='{"schema":"muster.task/1","task_id":"'$ID'","fence":"'$F_LEASE.$F_CLAIM'","script_sha256":"'$SHA'","boot_id":"'$BOOT'"'
HEAD=$HEAD',"started_at":"'$(now)'"'
printf '%s,"state":"claimed","pid":0,"exit_status":null,"ended_at":""}\n' "$HEAD" | put "$N/record.json" || give_up "the task's record"
if [ "$READS_ONLY" = no ]; then
  printf '%s.%s\n' "$F_LEASE" "$F_CLAIM" | put "$D/fence" || give_up "the fence"
fi
mv "$N" "$T" || give_up "$T"
sync "$D/tasks" 2>/dev/null || sync

if [ -z "$MUSTER_ROOT" ] && [ -d "$MUSTER_ROOT/run/systemd/system" ] && [ "$(id -u)" = 0 ] && command -v systemd-run >/dev/null; then
  # KillMode=process: when the wrapper is killed, what it ran (dpkg in the middle of a package) goes on to its end.
  systemd-run --quiet --unit="muster-$ID" --description="Muster task $ID" --property=KillMode=process \
    --setenv=PATH="$PATH" --setenv=LC_ALL=C --setenv=MUSTER_ROOT= \
    "$(command -v sh)" "$T/wrapper" "$T" "$DEADLINE" >/dev/null 2>"$T/err"
elif command -v setsid >/dev/null 2>&1; then
  setsid sh "$T/wrapper" "$T" "$DEADLINE" </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- &
else
  printf 'the program setsid is missing (package util-linux)\n' >"$T/err"
fi

# The node's lock is kept (the wrapper inherits it, should this shell die) until the wrapper has taken the task's own: nobody can take it
# for lost meanwhile.
tries=0
until [ -s "$T/pid" ]; do
  tries=$((tries + 1))
  if [ "$tries" -ge 300 ]; then
    # It did not come in 15 s: `show` finds out whether it is late or lost.
    show no
  fi
  sleep 0.05
done
# Many tasks end at once. Waiting for that a moment costs everybody less than another question over the network.
tries=0
while [ -e "$T/reserve" ] && [ "$tries" -lt 10 ]; do
  tries=$((tries + 1))
  sleep 0.05
done
if [ ! -e "$T/reserve" ]; then sleep 0.02; fi
show yes
"""


def task_start(task_id: str, fence: str, script: str, *, deadline_s: int = 0, reads_only: bool = False) -> str:
    """The text that starts `script` detached under `task_id`, or answers what became of it if the id is known. For `sh -s` on the node.

    `fence` is `lease.claim`. A change is refused without the node's lease under that number, and when a higher fence was seen; a known id
    is answered, never run again, whatever the fence. `reads_only` is for scripts that change nothing (a preflight comes before the
    lease): lease and fence are not looked at. `deadline_s` ends the script (TERM, 30 s later KILL; exit status 124); 0 never does, and is
    right for package transactions, which must not be cut. Exit status 0 with an answer, 75 refused, 73 could not.

    Raises ValueError for an id or fence of another form, or a NUL in the script.
    """
    match = _FENCE.fullmatch(fence)
    if match is None:
        raise ValueError(f"fence {fence!r} is not lease.claim")
    if "\0" in script:
        raise ValueError("a shell text cannot hold a NUL")
    if not script.endswith("\n"):
        script += "\n"
    raw = script.encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(raw).hexdigest()
    # A delimiter that holds the script's own hash cannot stand inside the script.
    body = _START.replace("@COMMAND_END@", f"MUSTER_COMMAND_{digest}").replace(
        "@WRAPPER_END@", f"MUSTER_WRAPPER_{digest}"
    )
    body = body.replace("@WRAPPER@", _WRAPPER).replace("@COMMAND@", script)
    settings = {
        "ID": _shell.name("task id", task_id), "F_LEASE": str(int(match[1])), "F_CLAIM": str(int(match[2])), "SHA": digest,
        "BYTES": str(len(raw)), "DEADLINE": str(int(deadline_s)), "READS_ONLY": "yes" if reads_only else "no",
    }  # fmt: skip
    return _shell.answering(KIND, _assign(settings) + _COMMON + _PRUNE + body)


def task_poll(task_id: str) -> str:
    """The text that asks what became of `task_id`. It starts and changes nothing. For `sh -s` on the node."""
    return _shell.answering(KIND, _assign({"ID": _shell.name("task id", task_id)}) + _COMMON + _POLL)


def _assign(settings: dict[str, str]) -> str:
    return "".join(f"{key}='{value}'\n" for key, value in settings.items())


def parse_answer(stdout: bytes) -> TaskAnswer:
    """What a node said of a task, from anything it printed. Never raises; without a whole answer the state is `unknown`."""
    fields = _shell.read_answer(KIND, stdout)
    if fields is None:
        return TaskAnswer("unknown", why="the node gave no whole answer")
    state, now_boot_id = _shell.words(fields.get("state")), _shell.words(fields.get("now_boot_id"))
    if "record" not in fields:
        return TaskAnswer(state, why=_shell.words(fields.get("why")), now_boot_id=now_boot_id)
    try:
        record = json.loads(fields["record"])
    except ValueError:
        record = None
    if not isinstance(record, dict):
        return TaskAnswer("unknown", why="the task's record on the node cannot be read", now_boot_id=now_boot_id)
    exit_status = record.get("exit_status")
    return TaskAnswer(
        state=state,
        started=fields.get("started") == b"yes",
        exit_status=exit_status if isinstance(exit_status, int) and state == "done" else None,
        boot_id=str(record.get("boot_id", "")),
        now_boot_id=now_boot_id,
        fence=str(record.get("fence", "")),
        script_sha256=str(record.get("script_sha256", "")),
        started_at=str(record.get("started_at", "")),
        ended_at=str(record.get("ended_at", "")),
        out=fields.get("out", b""),
        err=fields.get("err", b""),
        out_size=_number(fields.get("out_size")),
        err_size=_number(fields.get("err_size")),
    )


def _number(value: bytes | None) -> int:
    return int(value) if value and value.isdigit() and len(value) < 19 else 0
