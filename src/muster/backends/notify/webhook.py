"""Tells people by an HTTP POST of the alert as JSON. Retries what may pass by itself, a bounded number of times."""

import asyncio
import http.client
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import muster
from muster.ports import Clock, Notifier

TIMEOUT_S = 10.0
TRIES = 3
PAUSE_S = 1.0
"""Before the second try; twice that before the third. What is down for longer is tried again at the next round of the watch."""

_LATER = (408, 425, 429)
"""Answers below 500 that say "try again" (RFC 9110 15.5.9, RFC 8470 5.2, RFC 6585 4)."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    # urllib would turn the POST into a GET without its body, whose 200 would look like a delivery.
    def redirect_request(self, *_: object) -> None:
        return None


class WebhookNotifier:
    """Posts to `url` (http or https; the proxies of the environment are used)."""

    def __init__(self, url: str, clock: Clock, *, timeout_s: float = TIMEOUT_S, tries: int = TRIES) -> None:
        # The path of a webhook is often its secret: only the host is ever said.
        self.name = f"the webhook at {urlsplit(url).hostname}"
        self._url = url
        self._clock = clock
        self._timeout_s = timeout_s
        self._tries = tries
        self._opener = urllib.request.build_opener(_NoRedirect)

    async def send(self, body: bytes) -> str:
        """See `ports.Notifier`. Delivered means an answer of 2xx."""
        why = ""
        for at in range(self._tries):
            if at:
                await self._clock.sleep(PAUSE_S * 2 ** (at - 1))
            try:
                # The opener's own limit is for each read: one that drips is ended here.
                why, again = await asyncio.wait_for(asyncio.to_thread(self._post, body), 2 * self._timeout_s)
            except TimeoutError:
                why, again = f"no answer within {2 * self._timeout_s:g} s", True
            if not why or not again:
                break
        return why

    def _post(self, body: bytes) -> tuple[str, bool]:
        """Why it was not delivered (empty: it was), and whether another try may help."""
        headers = {"Content-Type": "application/json", "User-Agent": f"muster/{muster.__version__}"}
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return ("", False) if 200 <= answer.status < 300 else (f"HTTP {answer.status}", False)
        except urllib.error.HTTPError as error:
            error.close()
            return f"HTTP {error.code}", error.code >= 500 or error.code in _LATER
        except urllib.error.URLError as error:
            return str(error.reason), True
        except (OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}", True


BACKEND: type[Notifier] = WebhookNotifier
