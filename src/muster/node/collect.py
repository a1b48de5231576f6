"""Looking at a node: one POSIX-sh text from all facts, and the reader of what it prints.

A broken GPU hangs nvidia-smi in uninterruptible sleep for ever; that is itself a finding, and must cost neither the other facts nor a second
hung process. So each command runs in the background, its input closed and its output going to a file, never to the channel; nothing is waited
for beyond its deadline; and what did not end is written down by process id and start time, so that the next look knows that it is still there
and does not start another. Commands that ask the GPUs stand in for one another in this: one that hangs keeps all of them from being started.

A process started costs a training node more than anything else here, so the text itself starts as few as it can: the shell keeps the time and
the books, and one `cat` sends everything, packed by gzip where the node has it. Nothing is installed and nothing is changed outside the
scratch folder.

This module looks and carries; it understands no output: that is what `muster.facts` does.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from muster.node import _shell

Row = tuple[str, str, int, int]
"""A fact's (name, POSIX-sh command, deadline in seconds, cap in bytes)."""

PARALLEL = 4
"""How many commands run at one time: a node in a training run should not feel a burst of ten processes."""

MOST_BYTES = 64 * 1024 * 1024
"""What an answer may unpack to: far beyond all caps together. An answer that would be larger is no answer of ours."""

_NONCE = re.compile(r"[A-Za-z0-9]{8,64}")

_ASKS_GPUS = re.compile(r"(?<![\w.-])(?:nvidia-smi|dcgmi)(?![\w-])")


@dataclass(frozen=True)
class Frame:
    """What one command gave. `exit_status` is None when that is not known to be all; `note` then says `deadline`, `stuck` or `unwritten`.

    `stuck`: it was not started, because the same command of an earlier look, or another that asks the same device, has not ended.
    `unwritten`: it ended, and what it printed could not be written down on the node: no space, or a limit on the size of files.
    """

    exit_status: int | None
    stdout: bytes
    truncated: bool
    note: str = ""


# The lock is for the time of one look: it keeps the books of two at the same time from being mixed. No command inherits it.
_SCRATCH = r"""
usable() { # folder: exists, is no link, ours and writable
  [ ! -L "$1" ] && { [ -d "$1" ] || mkdir -p -m 700 "$1" 2>/dev/null; } && [ -O "$1" ] && [ -w "$1" ]
}
trouble() { printf '%s trouble %s\n' "$NONCE" "$1"; exit 73; }
S="$MUSTER_ROOT/run/muster"
if ! usable "$S"; then
  S="${XDG_RUNTIME_DIR:-}/muster"
  if [ "$S" = /muster ] || ! usable "$S"; then S="$MUSTER_ROOT/tmp/muster-$(id -u)"; fi
fi
if ! usable "$S"; then trouble "no scratch folder: $S"; fi
umask 077
R="$S/collect-$NONCE" H="$S/held"
if ! mkdir "$R" 2>/dev/null || ! { [ -d "$H" ] || mkdir -p "$H" 2>/dev/null; }; then trouble "cannot write in $S"; fi
for old in "$S"/collect-*; do
  if [ "$old" != "$R" ]; then find "$S" -maxdepth 1 -name 'collect-*' -mmin +60 -exec rm -rf {} + 2>/dev/null; break; fi
done
if command -v flock >/dev/null 2>&1; then
  exec 7>>"$S/look"
  tries=0
  until flock -n 7; do
    tries=$((tries + 1))
    if [ "$tries" -ge 300 ]; then rm -rf "$R"; trouble 'another look at this node has not ended for 30 s'; fi
    sleep 0.1
  done
fi
if ! mkfifo "$R/events" 2>/dev/null; then trouble "cannot make a pipe in $S"; fi
exec 8<>"$R/events"
"""

_BOOKS = r"""
LAST=0 ALL=''
row() { # name, key, deadline in seconds, cap in bytes, command
  LAST=$((LAST + 1))
  ALL="$ALL $LAST"
  eval "name_$LAST=\$1 key_$LAST=\$2 left_$LAST=\$3 cap_$LAST=\$4 command_$LAST=\$5"
}

began() { # pid: BEGAN is when it began, in clock ticks since boot, and STATE its state; false when there is no such process
  line='' BEGAN='' STATE=''
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  set -- ${line##*) }
  STATE=$1
  shift 19
  BEGAN=$1
}

alive() { # key: whether a process that was written down under it is still there
  book=''
  { read -r book <"$H/$1"; } 2>/dev/null
  for entry in $book; do
    if began "${entry%:*}" && [ "$STATE" != Z ] && [ "$BEGAN" = "${entry#*:}" ]; then return 0; fi
  done
  return 1
}

family() { # pid: FAMILY becomes `pid:began` of it and of all below it
  everyone=''
  for file in /proc/[0-9]*/stat; do
    line=''
    { read -r line <"$file"; } 2>/dev/null || continue
    child=${line%% *}
    set -- "$1" ${line##*) }
    shift 2
    above=$1
    shift 18
    everyone="$everyone $child:$above:$1"
    if [ "$child" = "$PARENT" ]; then FAMILY=" $child:$1"; fi
  done
  grown=yes
  while [ "$grown" = yes ]; do
    grown=no
    for one in $everyone; do
      child=${one%%:*} above=${one#*:}
      case $FAMILY in
        *" $child:"*) ;;
        *" ${above%:*}:"*) FAMILY="$FAMILY $child:${one##*:}" grown=yes ;;
      esac
    done
  done
}
"""

_LOOP = r"""
launch() { # index
  eval "name=\$name_$1 key=\$key_$1 cap=\$cap_$1 command=\$command_$1"
  (
    exec 7>&-
    trap "echo done $1 \$? >&8" EXIT
    ulimit -f $((cap / 512 + 2))
    eval "$command"
  ) </dev/null >"$R/$1.out" 2>/dev/null &
  began "$!"
  echo "$!:$BEGAN" >"$H/$key"
  eval "pid_$1=$!"
}

settle() { # index, status word
  eval "said_$1=\$2 key=\$key_$1"
  # The last word under an output: where it is missing, a full disk has swallowed something.
  if [ "$2" != deadline ]; then { printf '%s' "$NONCE" >>"$R/$1.out"; } 2>/dev/null; fi
  still=''
  for each in $RUNNING; do
    if [ "$each" != "$1" ]; then still="$still $each"; fi
  done
  RUNNING=$still COUNT=$((COUNT - 1))
  if [ "$2" != deadline ]; then : >"$H/$key"; fi
}

start() { # as many as may run; what has to wait stays in TODO
  wait_for='' BUSY=' '
  for i in $RUNNING; do
    eval "BUSY=\"\$BUSY\$key_$i \""
  done
  for i in $TODO; do
    eval "key=\$key_$i"
    case " $LATE " in *" $key "*) eval "said_$i=stuck"; continue ;; esac
    case $BUSY in *" $key "*) wait_for="$wait_for $i"; continue ;; esac
    if [ "$COUNT" -ge "$PARALLEL" ]; then wait_for="$wait_for $i"; continue; fi
    if alive "$key"; then LATE="$LATE $key"; eval "said_$i=stuck"; continue; fi
    launch "$i"
    RUNNING="$RUNNING $i" BUSY="$BUSY$key " COUNT=$((COUNT + 1))
  done
  TODO=$wait_for
}

tick() { # a second has passed
  for i in $RUNNING; do
    eval "left=\$left_$i pid=\$pid_$i key=\$key_$i"
    if ! began "$pid" || [ "$STATE" = Z ]; then
      # Ended, and could not say so.
      wait "$pid"
      settle "$i" "$?"
    elif [ "$left" -gt 0 ]; then eval "left_$i=$((left - 1))"
    else
      # Asked to end, with all that it started, and not waited for: what is in uninterruptible sleep ends when it can.
      PARENT=$pid FAMILY=''
      family
      echo "$FAMILY" >"$H/$key"
      for one in $FAMILY; do kill -TERM "${one%:*}" 2>/dev/null; done
      LATE="$LATE $key"
      settle "$i" deadline
    fi
  done
}

# Who writes beyond a limit is told so and not ended by a signal, which could leave a core.
trap '' XFSZ
TODO=$ALL RUNNING='' LATE='' COUNT=0
(
  exec 7>&-
  nap=''
  trap 'kill $nap; exit' TERM
  while kill -0 $$; do
    sleep 1 &
    nap=$!
    wait "$nap"
    echo tick >&8
  done
) </dev/null >/dev/null 2>&1 &
TICKER=$!
start
while [ -n "$RUNNING" ]; do
  what='' i='' status=''
  read -r what i status <&8
  case $what in
    tick) tick ;;
    done)
      case " $RUNNING " in *" $i "*) settle "$i" "$status" ;; esac ;;
  esac
  start
done
kill "$TICKER"
"""

# The sizes are taken once and by one process; an output that can still grow is cut off where it was then.
_SEND = r"""
set --
for i in $ALL; do
  eval "size_$i=0"
  if [ -s "$R/$i.out" ]; then set -- "$@" "$R/$i.out"; fi
done
if [ $# -gt 0 ]; then wc -c "$@" >"$R/sizes"; else : >"$R/sizes"; fi
while read -r size file; do
  i=${file##*/} i=${i%.out}
  case $i in *[!0-9]*) continue ;; esac
  eval "size_$i=\$size"
done <"$R/sizes"
set --
first=''
for i in $ALL; do
  eval "name=\$name_$i said=\$said_$i cap=\$cap_$i size=\$size_$i"
  cut=0
  most=$cap
  case $said in deadline | stuck) ;; *) most=$((cap + ${#NONCE})) ;; esac
  if [ "$size" -gt "$most" ]; then size=$cap cut=1; fi
  if [ "$size" -gt 0 ] && { [ "$cut" = 1 ] || [ "$said" = deadline ]; }; then
    head -c "$size" "$R/$i.out" >"$R/$i.part"
    file="$R/$i.part"
  else file="$R/$i.out"; fi
  printf '%s%s %s %s %s %s\n' "$first" "$NONCE" "$name" "$said" "$cut" "$size" >"$R/$i.head"
  set -- "$@" "$R/$i.head"
  if [ "$size" -gt 0 ]; then set -- "$@" "$file"; fi
  first='
'
done
printf '%s%s end %s\n' "$first" "$NONCE" "$LAST" >"$R/end"
set -- "$@" "$R/end"
if [ "$PACK" = yes ] && command -v gzip >/dev/null 2>&1; then
  printf '%s gzip\n' "$NONCE"
  cat "$@" | gzip -1c
else cat "$@"; fi
rm -rf "$R"
"""


def render(rows: Iterable[Row], nonce: str, *, parallel: int = PARALLEL, pack: bool = True) -> str:
    """The text that runs every row's command on a node and prints one frame each. For `sh -s`; needs no root and no Python.

    `nonce` (8 to 64 letters and digits, new at each look) marks our lines among whatever else the node prints. The text ends after the sum
    of all deadlines divided by `parallel`, rounded up to whole commands, at the worst. `pack`: the frames go through gzip where the node has
    it. Raises ValueError for a name or nonce of another form, a name that comes twice, or a NUL in a command.
    """
    if not _NONCE.fullmatch(nonce):
        raise ValueError("a nonce is 8 to 64 letters and digits")
    before, after = _halves(tuple(rows), parallel, pack)
    return before + nonce + after


@lru_cache(maxsize=8)
def _halves(rows: tuple[Row, ...], parallel: int, pack: bool) -> tuple[str, str]:  # noqa: FBT001 - a key of the cache
    """The text before and after the nonce: ten thousand nodes get the same but for this."""
    before, _, after = _shell.script(_body("NONCE=", rows, parallel, pack=pack)).partition("NONCE=")
    return before + "NONCE=", after


def render_packed(rows: Iterable[Row], nonce: str) -> tuple[tuple[str, ...], bytes]:
    """The same text for a node that has gzip, as nearly all have: what to run there, and its standard input.

    A third of the bytes, and packed once for all nodes. A node without gzip runs nothing and says so: see `wants_plain`. Raises ValueError
    as `render` does.
    """
    if not _NONCE.fullmatch(nonce):
        raise ValueError("a nonce is 8 to 64 letters and digits")
    return ("sh", "-c", _UNPACK, nonce), _packed(tuple(rows))


_UNPACK = "command -v gzip >/dev/null 2>&1 || { echo $0 plain; exit 69; }; gzip -dc | sh -s $0"
"""In words that every login shell hands on as they are."""


@lru_cache(maxsize=8)
def _packed(rows: tuple[Row, ...]) -> bytes:
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    text = _shell.script(_body("NONCE=$1", rows, PARALLEL, pack=True))
    return packer.compress(text.encode()) + packer.flush()


def wants_plain(stdout: bytes, nonce: str) -> bool:
    """Whether the node said that it cannot unpack what `render_packed` made."""
    return re.search(rb"^" + re.escape(nonce.encode()) + rb" plain$", stdout, re.MULTILINE) is not None


def render_installed(rows: Iterable[Row]) -> str:
    """The same text as a program to be installed on nodes, called with the nonce as its one argument; always the same for the same rows.

    For sites that let a look run as root by naming one program. It says by its own SHA-256 which text it is: see `installed_sha256`.
    """
    nonce = """case ${1-} in *[!A-Za-z0-9]* | '' | ?????????????????????????????????????????????????????????????????*)
echo "usage: $0 NONCE" >&2; exit 64 ;; esac
NONCE=$1
if command -v sha256sum >/dev/null 2>&1; then printf '%s script %s\\n' "$NONCE" "$(sha256sum <"$0")"; fi
"""
    return (
        "#!/bin/sh\n# muster: looks at this node and changes nothing. Written by `muster facts script --install`.\n"
        + _shell.script(_body(nonce, rows, PARALLEL, pack=True))
    )


def installed_sha256(stdout: bytes, nonce: str) -> str | None:
    """The SHA-256 of the installed program that answered, as it says itself; None when it does not say."""
    said = re.search(rb"^" + re.escape(nonce.encode()) + rb" script ([0-9a-f]{64})\b", stdout, re.MULTILINE)
    return said[1].decode() if said else None


def _body(nonce: str, rows: Iterable[Row], parallel: int, *, pack: bool) -> str:
    lines = []
    names = []
    for name, command, deadline_s, cap_bytes in rows:
        key = "gpus" if _ASKS_GPUS.search(command) else f"fact-{name}"
        lines.append(
            f"row {_shell.name('fact', name)} {key} {int(deadline_s)} {int(cap_bytes)} {_shell.quote(command.strip())}"
        )
        names.append(name)
    if len(set(names)) != len(names):
        raise ValueError("two facts have the same name")
    head = f"{nonce} PARALLEL={int(parallel)} PACK={'yes' if pack else 'no'}"
    return "\n".join((head, _lean(_SCRATCH + _BOOKS), *lines, _lean(_LOOP + _SEND)))


def _lean(text: str) -> str:
    """`text` without its comments and indents: it travels to every node, at every look."""
    lines = (re.sub(r" # .*$", "", line.strip()) for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def parse_frames(stdout: bytes, nonce: str) -> Mapping[str, Frame]:
    """The frames in what a node printed, by name. Never raises.

    Banners and noise before and between are passed over. A frame that is cut short, or whose length does not fit, is missing: what did not
    arrive whole was not seen.
    """
    stdout = _unpacked(stdout, nonce.encode())
    header = re.compile(
        rb"^" + re.escape(nonce.encode()) + rb" ([A-Za-z0-9._-]{1,128}) (\d{1,5}|deadline|stuck) ([01]) (\d{1,10})\n",
        re.MULTILINE,
    )
    frames: dict[str, Frame] = {}
    found = header.search(stdout)
    while found:
        start, end = found.end(), found.end() + int(found[4])
        if stdout[end : end + 1] == b"\n":
            frames[found[1].decode()] = _frame(
                found[2].decode(), stdout[start:end], nonce.encode(), truncated=found[3] == b"1"
            )
            start = end + 1
        found = header.search(stdout, start)
    return frames


def _frame(word: str, output: bytes, nonce: bytes, *, truncated: bool) -> Frame:
    if not word.isdigit():
        return Frame(None, output, truncated, word)
    if truncated:
        return Frame(int(word), output, truncated)
    if not output.endswith(nonce):
        return Frame(None, output, truncated, "unwritten")
    return Frame(int(word), output[: -len(nonce)], truncated)


def _unpacked(stdout: bytes, nonce: bytes) -> bytes:
    """What follows our line that says so, unpacked as far as it arrived; `stdout` itself where no such line is."""
    begun = re.search(rb"^" + re.escape(nonce) + rb" gzip\n", stdout, re.MULTILINE)
    if begun is None:
        return stdout
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(stdout[begun.end() :], MOST_BYTES)
    except zlib.error:
        return b""
