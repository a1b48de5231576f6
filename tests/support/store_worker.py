"""A process of its own that writes into a store: `python -m tests.support.store_worker PATH RUN_ID COUNT`, or `PATH hold`.

After each commit it says so on its standard output: what was said must be found later, whatever became of the process.
"""

import sqlite3
import sys
from dataclasses import replace

from muster.backends.store.sqlite import open_store
from tests.support.values import inline, record


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main(path: str, run_id: str, count: str = "0") -> None:
    # How long one may have to wait is not what is asked here: on a slow disk the others have much to write.
    store = open_store(path, busy_s=300)
    say("open")
    if run_id == "hold":
        # As a process would that was stopped in the middle of its transaction.
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        say("held")
        sys.stdin.read()
        return
    if not int(count):
        return
    claim = inline(store.claim(run_id))
    for _ in range(int(count)):
        run = replace(inline(store.run(run_id)), claim=claim)
        inline(
            store.record(replace(run, attempt=run.attempt + 1), [record("step", of=run_id, attempt=run.attempt + 1)])
        )
        say(str(run.attempt + 1))
    inline(store.close())


if __name__ == "__main__":
    main(*sys.argv[1:])
