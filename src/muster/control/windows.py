"""Turns a policy's windows, which are local times, into intervals of UTC. It stands here because the rules of time zones are files."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from muster.model.plan import Span
from muster.model.policy import Policy
from muster.model.quantities import Window

HORIZON_DAYS = 90
"""How far ahead a plan knows its windows: longer than any rollout should take, and a plan that outlives it is made anew."""


def open_windows(policy: Policy, now: datetime) -> Mapping[str, tuple[Span, ...]]:
    """For each pool that has windows the times, in order and apart from each other, in which it may be changed; from `now` on."""
    return {pool.name: spans(pool.windows, now) for pool in policy.pools if pool.windows}


def spans(windows: Sequence[Window], now: datetime) -> tuple[Span, ...]:
    """These windows as UTC intervals that are not over by `now`, as far as HORIZON_DAYS. Those that meet or overlap become one."""
    found = sorted((span for window in windows for span in _spans(window, now)), key=lambda span: span.opens)
    joined: list[Span] = []
    for span in found:
        if joined and span.opens <= joined[-1].closes:
            joined[-1] = Span(joined[-1].opens, max(joined[-1].closes, span.closes))
        else:
            joined.append(span)
    return tuple(joined)


def _spans(window: Window, now: datetime) -> Iterable[Span]:
    zone = ZoneInfo(window.zone)
    today = now.astimezone(zone).date()
    # A window of yesterday may reach into today, and over a border of days between the zone and UTC into one more.
    for ahead in range(-2, HORIZON_DAYS):
        day = today + timedelta(days=ahead)
        if day.weekday() not in window.days:
            continue
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - local times get their zone below, each by its own rules
        ends = [midnight + timedelta(minutes=minute) for minute in (window.start_minute, window.end_minute)]
        opens, closes = (end.replace(tzinfo=zone).astimezone(UTC) for end in ends)
        if closes > now and closes > opens:
            yield Span(opens, closes)
