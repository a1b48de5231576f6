"""Looking at a node: one POSIX-sh text from all facts, and the reader of what it prints.

A broken GPU hangs nvidia-smi in uninterruptible sleep for ever; that is itself a finding, and must cost neither the other facts nor a second
hung process. So each command runs in the background in its own session, its input closed and its output going to a file, never to the
channel; the text polls and does not wait beyond a deadline; and while a command runs it holds a lock by which the next collect knows that
the last one is still stuck. Nothing is installed and nothing is changed outside the scratch folder.

This module looks and carries; it understands no output: that is what `muster.facts` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.node import _shell

Row = tuple[str, str, int, int]
"""A fact's (name, POSIX-sh command, deadline in seconds, cap in bytes)."""

PARALLEL = 4
"""How many commands run at one time: a node in a training run should not feel a burst of ten processes."""

_NONCE = re.compile(r"[A-Za-z0-9]{8,64}")


@dataclass(frozen=True)
class Frame:
    """What one command gave. `exit_status` is None when it did not end by itself; `note` then says `deadline` or `stuck`.

    `stuck`: the same command of an earlier collect has still not ended, so that none was started.
    """

    exit_status: int | None
    stdout: bytes
    truncated: bool
    note: str = ""


_SCRATCH = r"""
usable() { # folder: exists, is no link, ours and writable
  [ ! -L "$1" ] && { [ -d "$1" ] || mkdir -p "$1" 2>/dev/null; } && [ -O "$1" ] && [ -w "$1" ] && chmod 700 "$1" 2>/dev/null
}
S="$MUSTER_ROOT/run/muster"
if ! usable "$S"; then
  S="${XDG_RUNTIME_DIR:-}/muster"
  if [ "$S" = /muster ] || ! usable "$S"; then S="$MUSTER_ROOT/tmp/muster-$(id -u)"; fi
fi
if ! usable "$S"; then printf '%s trouble no scratch folder: %s\n' "$NONCE" "$S"; exit 73; fi
umask 077
R="$S/collect-$NONCE"
find "$S" -maxdepth 1 -name 'collect-*' -mmin +60 -exec rm -rf {} + 2>/dev/null
if ! mkdir "$R" 2>/dev/null || ! mkdir -p "$S/lock" 2>/dev/null; then printf '%s trouble cannot write in %s\n' "$NONCE" "$S"; exit 73; fi
"""

# $1 command, $2 path of its files, $3 cap + 1, $4 lock, $5 tries (tenths of a second) for the lock. The lock is handed down to the command
# itself: it is free again only when the command's last process has ended, and no pid can be mistaken for it.
_RUNNER = r"""
if command -v flock >/dev/null 2>&1; then
  exec 7>>"$4"
  until flock -n 7; do
    if [ -e "$4.late" ] || [ "$5" -le 0 ]; then echo stuck >"$2.st"; exit; fi
    set -- "$1" "$2" "$3" "$4" "$(($5 - 1))"
    sleep 0.1
  done
  rm -f "$4.late"
fi
: >"$2.run"
{ (eval "$1"); echo "$?" >"$2.rc"; } </dev/null 2>/dev/null | head -c "$3" >"$2.out"
echo done >"$2.st"
"""

_LOOP = r"""
SETSID=''
if command -v setsid >/dev/null 2>&1; then SETSID=setsid; fi

launch() { # index
  eval "name=\$name_$1 command=\$command_$1 cap=\$cap_$1 ticks=\$left_$1"
  $SETSID sh -c "$RUNNER" muster-fact "$command" "$R/$1" "$((cap + 1))" "$S/lock/$name" "$ticks" </dev/null >/dev/null 2>&1 &
  eval "pid_$1=$!"
}

emit() { # index, status word
  eval "name=\$name_$1 cap=\$cap_$1"
  size=0 cut=0
  if [ -f "$R/$1.out" ]; then size=$(($(wc -c <"$R/$1.out"))); fi
  if [ "$size" -gt "$cap" ]; then size=$cap cut=1; fi
  printf '%s %s %s %s %s\n' "$NONCE" "$name" "$2" "$cut" "$size"
  if [ "$size" -gt 0 ]; then head -c "$size" "$R/$1.out"; fi
  printf '\n'
}

settle() { # index: true when it has come to an end, of one sort or another
  if [ -s "$R/$1.st" ]; then
    { read -r word <"$R/$1.st"; read -r status <"$R/$1.rc"; } 2>/dev/null
    if [ "$word" = stuck ]; then emit "$1" stuck; else emit "$1" "${status:-deadline}"; fi
    return 0
  fi
  eval "left=\$left_$1 pid=\$pid_$1 name=\$name_$1"
  if [ "$left" -gt 0 ]; then eval "left_$1=$((left - tick))"; return 1; fi
  # Its time is over. Asked to end, not waited for: a process in uninterruptible sleep ends when it can.
  if [ -e "$R/$1.run" ]; then : >"$S/lock/$name.late"; word=deadline; else word=stuck; fi
  kill -TERM "-$pid" 2>/dev/null || kill -TERM "$pid" 2>/dev/null
  emit "$1" "$word"
  return 0
}

# The first naps are short and not counted: most commands end at once, and the look should not last longer than they do.
next=1 running='' count=0 naps=0 tick=0
while :; do
  still='' count=0 status=''
  for i in $running; do
    status=''
    if ! settle "$i"; then still="$still $i" count=$((count + 1)); fi
  done
  running=$still
  while [ "$count" -lt "$PARALLEL" ] && [ "$next" -le "$LAST" ]; do
    launch "$next"
    running="$running $next" count=$((count + 1)) next=$((next + 1))
  done
  if [ -z "$running" ]; then break; fi
  naps=$((naps + 1))
  if [ "$naps" -gt 20 ]; then tick=1; sleep 0.1; else sleep 0.02; fi
done
rm -rf "$R"
printf '%s end %s\n' "$NONCE" "$LAST"
"""


def render(rows: Iterable[Row], nonce: str, *, parallel: int = PARALLEL) -> str:
    """The text that runs every row's command on a node and prints one frame each. For `sh -s`; needs no root and no Python.

    `nonce` (8 to 64 letters and digits, new at each collect) marks our lines among whatever else the node prints. The text ends after the
    sum of all deadlines divided by `parallel`, rounded up to whole commands, at the worst. Raises ValueError for a name or nonce of another
    form, a name that comes twice, or a NUL in a command.
    """
    if not _NONCE.fullmatch(nonce):
        raise ValueError("a nonce is 8 to 64 letters and digits")
    lines = [f"NONCE={nonce} PARALLEL={int(parallel)} RUNNER={_shell.quote(_RUNNER)}"]
    names = []
    for index, (name, command, deadline_s, cap_bytes) in enumerate(rows, start=1):
        lines.append(
            f"name_{index}={_shell.name('fact', name)} left_{index}={int(deadline_s * 10)} cap_{index}={int(cap_bytes)} "
            f"command_{index}={_shell.quote(command)}"
        )
        names.append(name)
    if len(set(names)) != len(names):
        raise ValueError("two facts have the same name")
    lines.append(f"LAST={len(names)}")
    return _shell.script("\n".join(lines) + _SCRATCH + _LOOP)


def parse_frames(stdout: bytes, nonce: str) -> Mapping[str, Frame]:
    """The frames in what a node printed, by name. Never raises.

    Banners and noise before and between are passed over. A frame that is cut short, or whose length does not fit, is missing: what did not
    arrive whole was not seen.
    """
    header = re.compile(
        rb"^" + re.escape(nonce.encode()) + rb" ([A-Za-z0-9._-]{1,128}) (\d{1,5}|deadline|stuck) ([01]) (\d{1,10})\n",
        re.MULTILINE,
    )
    frames: dict[str, Frame] = {}
    found = header.search(stdout)
    while found:
        start, end = found.end(), found.end() + int(found[4])
        if stdout[end : end + 1] == b"\n":
            word = found[2].decode()
            status = int(word) if word.isdigit() else None
            frames[found[1].decode()] = Frame(
                status, stdout[start:end], found[3] == b"1", "" if word.isdigit() else word
            )
            start = end + 1
        found = header.search(stdout, start)
    return frames
