"""The command `muster`: finds the command by its first word and hands it the rest. Holds no logic of its own."""

import errno
import gc
import os
import sys
from collections.abc import Sequence

from muster import __version__
from muster.cli._lazy import COMMANDS, load, quickly
from muster.model.nearest import nearest

USAGE, BAD_INPUT, OUR_FAULT, INTERRUPTED = 2, 3, 70, 130

_EPILOGUE = """
Options of every command: --fleet FILE, --store PATH, --json. Each command has --help.
Exit codes: 0 done or clean, 1 findings or a "no", 2 usage, 3 bad input, 4 refused, 5 partial (nodes unknown or unreachable), 6 halted or
rolled back, 70 our fault, 130 interrupted.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. `argv` without the program's name; by default this process's own."""
    # A command makes many values and hardly a ring of them: looking for rings after every 700 was a tenth of its time.
    gc.set_threshold(100_000, 20, 20)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # whoever started us closed it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - until the process ends; Path is slow to load
    try:
        return _ended(argv)
    finally:
        if (
            argv is None
        ):  # the process is ours and ends: to look through all that was made for rings once more takes 30 ms
            gc.freeze()


def _ended(argv: Sequence[str] | None) -> int:
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        code = 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.stderr.write(
            f"muster: standard output: {error.strerror}\n  free some space there, or let it write to another place\n"
        )
        code = BAD_INPUT
    else:
        return code
    # What is still in the buffer must find an open door when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(help_text())
        return 0
    if words[0] == "--version":
        sys.stdout.write(f"muster {__version__}\n")
        return 0
    if words[0] not in COMMANDS:
        near = nearest(words[0], COMMANDS)
        hint = f"did you mean {' or '.join(near)}?" if near else "see: muster --help"
        sys.stderr.write(f"muster: no command is called {words[0]!r}\n  {hint}\n")
        return USAGE
    try:
        app = load(words[0])
        if not quickly(app, words[1:]):
            app(args=words[1:], prog_name=f"muster {words[0]}")
    except ImportError as error:
        sys.stderr.write(f"muster: a part of this installation is missing: {error}\n  install muster-fleet again\n")
        return OUR_FAULT
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else (0 if end.code is None else 1)
    return 0


def help_text() -> str:
    """What `muster --help` prints, from the table of commands alone."""
    lines = [
        "Usage: muster COMMAND [OPTIONS] ...",
        "",
        "Keeps the GPU drivers of a fleet known, consistent and healthy, and changes them safely.",
    ]
    for heading in dict.fromkeys(entry.heading for entry in COMMANDS.values()):
        lines += ["", f"{heading}:"]
        lines += [f"  {name:<10} {entry.help}" for name, entry in COMMANDS.items() if entry.heading == heading]
    return "\n".join(lines) + "\n" + _EPILOGUE
