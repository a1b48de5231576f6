"""`muster watch`: looks again and again, prints what is new and what is gone, and alerts. Changes nothing on a node."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from muster.cli import declare
from muster.cli.output import AsJson, Fleet, StorePath, app, note, run, say, tell
from muster.cli.text import few_names
from muster.control.bootstrap import make_notifiers, open_site, this_clock, watch_lock
from muster.control.lock import CarrierLock
from muster.control.report import exit_code
from muster.control.site import Site
from muster.control.watch import Item, alert, look_again, read_state, write_state
from muster.model.errors import BadInput, MusterError, Refused
from muster.model.quantities import DURATION_HINT, parse_duration_s
from muster.ports import Notifier

LEAST_EVERY_S = 10
"""A look costs each node some tenths of a second of CPU; oftener than this, a training run would feel it."""

watch_app = app("Look again and again, print what is new and what is gone, and alert on it. Changes nothing on a node.")


@watch_app.command()
def watch(
    fleet: Fleet = None,
    store: StorePath = None,
    every: Annotated[str, declare.option("--every", says="From the start of a round to the next.")] = "5m",
    once: Annotated[bool, declare.option("--once", says="One round, for a timer: exits as `check` does.")] = False,
    alert_command: Annotated[
        str | None,
        declare.option(
            "--alert-command",
            metavar="CMD",
            says="Run this when something changed, with the change as JSON on its input. No shell.",
        ),
    ] = None,
    alert_webhook: Annotated[
        str | None,
        declare.option(
            "--alert-webhook", metavar="URL", envvar="MUSTER_ALERT_WEBHOOK", says="POST the change as JSON to this URL."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look again and again; print what is new and what is gone; alert on it. Ends with Ctrl-C (exit 130). A restart does not alert again."""

    async def work() -> int:
        every_s = _every_s(every)
        notifiers = make_notifiers(_argv(alert_command), alert_webhook)
        held: list[CarrierLock] = []
        try:
            return await rounds(every_s, notifiers, held)
        finally:
            for lock in held:
                lock.release()

    async def rounds(every_s: int, notifiers: Sequence[Notifier], held: list[CarrierLock]) -> int:
        clock = this_clock()
        while True:
            began = clock.monotonic()
            try:
                async with open_site(fleet, store) as site:
                    if not held:
                        held.append(_locked(site.store_path))
                        note(
                            f"{len(site.nodes)} nodes are watched"
                            + ("" if once else f", every {every}; Ctrl-C ends it")
                        )
                    code = await _round(site, notifiers, as_json=as_json)
                if once:
                    return code
            except MusterError as error:
                # What ends a first round is a fault of the command. Later it passes: a policy in the middle of an edit, a full disk.
                if once or not held:
                    raise
                tell(error, as_json=as_json)
            await clock.sleep(max(0.0, every_s - (clock.monotonic() - began)))

    run(work, as_json=as_json)


def _every_s(text: str) -> int:
    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise BadInput(f"--every: {error}", hint=DURATION_HINT) from None
    if seconds < LEAST_EVERY_S:
        raise BadInput(f"--every {text} is too often", hint=f"at least {LEAST_EVERY_S}s")
    return seconds


def _argv(text: str | None) -> tuple[str, ...]:
    """The operator's own words, split as a shell would, and given to no shell."""
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        raise BadInput(f"--alert-command {text!r}: {error}", hint="close the quotation mark") from None


def _locked(store: Path) -> CarrierLock:
    """Two watches of one store would both alert."""
    lock = watch_lock(store)
    if not lock.acquire():
        holder = lock.holder()
        who = "another process" if holder is None else f"process {holder.pid} on {holder.host} since {holder.since}"
        raise Refused(f"{who} watches {store}", hint="end it first, or give another --store")
    return lock


async def _round(site: Site, notifiers: Sequence[Notifier], *, as_json: bool) -> int:
    file = Path(f"{site.store_path}.watch")
    state = read_state(file)
    done, after = await look_again(site, state, notifiers)
    if after != state:
        write_state(file, after)
    for trouble in done.troubles:
        note(f"warning: {trouble}")
    if done.changes and as_json:
        say(alert(site.policy.fleet, done.changes, site.clock.now()).decode())
    elif done.changes:
        at = f"{site.clock.now():%Y-%m-%d %H:%M:%S}Z"
        for word, items in (("new ", done.changes.new), ("gone", done.changes.gone)):
            for item in items:
                say(f"{at}  {word}  {_words(item)}")
    return exit_code(done.findings)


def _words(item: Item) -> str:
    about = f"{item.severity.value.upper():8} {item.code}  {item.subject}"
    on = f"  [{few_names(item.nodes)}]" if item.nodes else ""
    return about + (f": {item.evidence}" if item.evidence else "") + on
