"""The contract of `ports.Notifier`: what is sent arrives byte for byte, once, and what does not is said, within a bound."""

import asyncio
import contextlib
import json
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from muster.backends.notify.command import CommandNotifier
from muster.backends.notify.webhook import PAUSE_S, WebhookNotifier
from muster.backends.transport.local import LocalTransport
from muster.discovery import discover
from muster.ports import Notifier
from tests.support.time import StillClock

BODY = json.dumps({"odd": "$(touch /tmp/never) ; é \" '"}).encode()


class Receiver:
    """An HTTP server that answers with these statuses, the last one again and again, and keeps what came."""

    def __init__(self, statuses: Sequence[int]) -> None:
        self.bodies: list[bytes] = []
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = statuses[min(outer.asked, len(statuses) - 1)]
                outer.asked += 1
                if 200 <= status < 300:
                    outer.bodies.append(body)
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/secret-path"


@contextlib.contextmanager
def receiver(*statuses: int) -> Iterator[Receiver]:
    made = Receiver(statuses)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()


Opened = tuple[Notifier, Callable[[], list[bytes]]]


def script(folder: Path, text: str) -> Path:
    file = folder / "tell it"
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


@contextlib.contextmanager
def _command(folder: Path, *, works: bool) -> Iterator[Opened]:
    log = folder / "log"
    file = script(folder, f"cat >>{log}; echo >>{log}" if works else "echo no network >&2; exit 3")
    yield (
        CommandNotifier((str(file),), LocalTransport()),
        lambda: log.read_bytes().splitlines() if log.exists() else [],
    )


@contextlib.contextmanager
def _webhook(_: Path, *, works: bool) -> Iterator[Opened]:
    with receiver(204 if works else 403) as made:
        yield WebhookNotifier(made.url, StillClock()), lambda: made.bodies


MAKERS = {"command": _command, "webhook": _webhook}


@pytest.fixture(params=sorted(MAKERS))
def kind(request: pytest.FixtureRequest, covers: Callable[[str, str], None]) -> str:
    covers("Notifier", request.param)
    return str(request.param)


def test_every_notifier_that_can_be_found_is_under_contract() -> None:
    assert set(discover("muster.backends.notify", "BACKEND")) == set(MAKERS)


def test_what_is_sent_arrives_byte_for_byte_and_once(kind: str, tmp_path: Path) -> None:
    with MAKERS[kind](tmp_path, works=True) as (notifier, received):
        assert asyncio.run(notifier.send(BODY)) == ""
        assert received() == [BODY]


def test_what_does_not_arrive_is_said(kind: str, tmp_path: Path) -> None:
    with MAKERS[kind](tmp_path, works=False) as (notifier, received):
        assert asyncio.run(notifier.send(BODY)) in ("exit 3: no network", "HTTP 403")
        assert received() == []


def test_a_program_that_hangs_is_ended() -> None:
    hangs = CommandNotifier((sys.executable, "-c", "import time; time.sleep(600)"), LocalTransport(), limit_s=0.2)
    assert "within 0.2 s" in asyncio.run(hangs.send(BODY))


def test_a_program_that_reads_nothing_is_served_too() -> None:
    assert asyncio.run(CommandNotifier(("true",), LocalTransport()).send(b"x" * 1_000_000)) == ""


def test_a_webhook_that_is_down_for_a_moment_is_tried_again_and_told_once() -> None:
    clock = StillClock()
    with receiver(503, 429, 200) as made:
        assert asyncio.run(WebhookNotifier(made.url, clock).send(BODY)) == ""
        assert made.bodies == [BODY]
    assert clock.monotonic() == PAUSE_S * 3


def test_a_webhook_that_stays_down_is_given_up_after_three_tries() -> None:
    with receiver(500) as made:
        assert asyncio.run(WebhookNotifier(made.url, StillClock()).send(BODY)) == "HTTP 500"
        assert made.asked == 3


def test_a_redirect_is_no_delivery() -> None:
    with receiver(302, 200) as made:
        assert asyncio.run(WebhookNotifier(made.url, StillClock()).send(BODY)) == "HTTP 302"
        assert made.bodies == []


def test_a_webhook_whose_port_is_closed_is_said_and_its_secret_is_not() -> None:
    with receiver(200) as made:
        url = made.url
    notifier = WebhookNotifier(url, StillClock(), tries=2)
    said = notifier.name + asyncio.run(notifier.send(BODY))
    assert "refused" in said
    assert "secret" not in said
