"""What every node-side text shares: where state lives, durable writes, one lock, and the framed answer with its reader.

The texts are POSIX sh for dash, bash and busybox; they need coreutils-like tools, `flock` and `setsid`, and no Python. Every text is one
function that is called on its last line, so that a text cut short on its way runs nothing. This module imports nothing of ours: it also
serves the agent, which runs on Python 3.9.
"""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What an id may be made of: it becomes a file name, a unit name and a JSON string without escapes."""

REFUSED_STATUS = 75
"""Exit status of a refusal (EX_TEMPFAIL): somebody else has the node, or has moved on."""

FAILED_STATUS = 73
"""Exit status when the node could not do its part (EX_CANTCREAT): no permission, no space, no tool."""

_GROUND = r"""
LC_ALL=C; export LC_ALL
umask 022
PATH="${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin"; export PATH
MUSTER_ROOT=${MUSTER_ROOT-}; export MUSTER_ROOT
"""

_STATE = r"""
D="$MUSTER_ROOT/var/lib/muster/node"

BOOT=''
{ read -r BOOT <"$MUSTER_ROOT/proc/sys/kernel/random/boot_id"; } 2>/dev/null
case $BOOT in ''|*[!A-Za-z0-9-]*) BOOT=unknown ;; esac
UPTIME=''
{ read -r UPTIME _ <"$MUSTER_ROOT/proc/uptime"; } 2>/dev/null
UPTIME=${UPTIME%%.*}
case $UPTIME in ''|*[!0-9]*) UPTIME=0 ;; esac

now() { date -u +%Y-%m-%dT%H:%M:%S.000Z; }

begin() {
  printf '%s begin\nstate %s\nnow_boot_id %s\nnow_uptime_s %s\n' "$KIND" "$1" "$BOOT" "$UPTIME"
}

finish() { # exit status
  printf '%s end\n' "$KIND"
  exit "$1"
}

fail() { # why
  begin failed
  printf 'why %s\n' "$1"
  finish 73
}

refuse() { # why
  begin refused
  printf 'why %s\n' "$1"
  finish 75
}

cannot_write() { # what
  if [ "$(id -u)" != 0 ] && [ ! -w "$2" ]; then fail "cannot write $1: this needs root (sudo)"; fi
  fail "cannot write $1: no space left, or a read-only file system"
}

# put FILE: standard input becomes FILE, whole and on the disk, or FILE stays as it was.
put() {
  if dd of="$1.new" bs=65536 conv=fsync 2>/dev/null && mv -f "$1.new" "$1"; then
    sync "${1%/*}" 2>/dev/null || sync
    return 0
  fi
  rm -f "$1.new"
  return 1
}

# open_state: the node's state folder exists and is ours alone until this shell ends.
open_state() {
  if ! command -v flock >/dev/null 2>&1; then fail 'the program flock is missing (package util-linux)'; fi
  if ! mkdir -p "$D" 2>/dev/null || ! { mkdir -m 700 "$D/tasks" 2>/dev/null || [ -d "$D/tasks" ]; }; then
    up=$D
    while [ ! -e "$up" ]; do up=${up%/*}; done
    cannot_write "$D" "${up:-/}"
  fi
  if ! ( : >>"$D/lock" ) 2>/dev/null; then cannot_write "$D/lock" "$D"; fi
  exec 9>>"$D/lock"
  tries=0
  until flock -n 9; do
    tries=$((tries + 1))
    if [ "$tries" -ge 300 ]; then fail "another command has held $D/lock for 30 s"; fi
    sleep 0.1
  done
}

# load_lease: true when a lease is there; sets L_NUMBER L_ROLLOUT L_BOOT L_UPTIME L_TTL L_EXPIRED. A damaged file is a failure, never "free".
load_lease() {
  L_NUMBER=0; L_ROLLOUT=''; L_EXPIRED=no
  [ -e "$D/lease" ] || return 1
  lease_line='s/^{"number":\([0-9][0-9]*\),"rollout_id":"\([A-Za-z0-9._-]*\)","boot_id":"\([A-Za-z0-9-]*\)",'
  lease_line=$lease_line'"uptime_s":\([0-9]*\),"ttl_s":\([0-9]*\),.*}$/\1 \2 \3 \4 \5/p'
  set -- $(sed -n "$lease_line" "$D/lease" 2>/dev/null)
  if [ $# != 5 ]; then fail "the lease file $D/lease cannot be read; look at it, and remove it by hand when nobody works here"; fi
  L_NUMBER=$1; L_ROLLOUT=$2; L_BOOT=$3; L_UPTIME=$4; L_TTL=$5
  held_s=$UPTIME
  if [ "$L_BOOT" = "$BOOT" ]; then held_s=$((UPTIME - L_UPTIME)); fi
  if [ "$held_s" -ge "$L_TTL" ]; then L_EXPIRED=yes; fi
  return 0
}

# load_counter: sets COUNTER, the highest lease number this node ever gave.
load_counter() {
  COUNTER=''
  { read -r COUNTER <"$D/lease.number"; } 2>/dev/null
  case $COUNTER in
    '') COUNTER=0 ;;
    *[!0-9]*) fail "the lease counter $D/lease.number cannot be read" ;;
  esac
  if [ "$L_NUMBER" -gt "$COUNTER" ]; then COUNTER=$L_NUMBER; fi
}
"""


def script(body: str) -> str:
    """The whole text for `sh -s`: `body` in one function, called at the very end with standard input closed off.

    Closed off for good, and not only for the call: a shell keeps what it will need again open, and hands it to what it starts in the
    background; sshd would then wait for the other end of it as long as that runs.
    """
    return f'muster_main() {{\n{_GROUND}{body}\n}}\n{{ exec </dev/null; muster_main "$@"; exit; }}\n'


def answering(kind: str, body: str) -> str:
    """Like `script`, for a `body` that works on the node's state and answers in frames of `kind`."""
    return script(f"KIND='{kind}'\n{_STATE}\n{body}")


def name(what: str, value: str) -> str:
    """`value` if it can be an id (see NAME). Raises ValueError: an id of another form is our own fault."""
    if not NAME.fullmatch(value):
        raise ValueError(f"{what} {value!r} is not made of letters, digits, '.', '_' and '-'")
    return value


def quote(value: str) -> str:
    """`value` as one sh word. Raises ValueError for a NUL, which no sh text can hold."""
    if "\0" in value:
        raise ValueError("a shell text cannot hold a NUL")
    return "'" + value.replace("'", "'\\''") + "'"


def read_answer(kind: str, stdout: bytes) -> dict[str, bytes] | None:
    """The fields of the answer of `kind` in what a node printed; None when it is not there whole. Never raises.

    What stands before (banner, profile noise) and after is ignored. A line is `key value`; `@key length` announces that many bytes.
    """
    head, tail = f"{kind} begin\n".encode(), f"{kind} end".encode()
    at = stdout.find(head)
    if at < 0:
        return None
    at += len(head)
    fields: dict[str, bytes] = {}
    while True:
        end = stdout.find(b"\n", at)
        if end < 0:
            return None
        line, at = stdout[at:end], end + 1
        if line == tail:
            return fields
        key, _, value = line.partition(b" ")
        if key.startswith(b"@"):
            if not value.isdigit() or len(value) > 9 or at + int(value) > len(stdout):
                return None
            key, value, at = key[1:], stdout[at : at + int(value)], at + int(value) + 1
        fields[key.decode("ascii", "replace")] = value


def words(value: bytes | None) -> str:
    """A field as text; undecodable bytes are replaced."""
    return (value or b"").decode("utf-8", "replace")
