"""The small measures people write in a policy: durations, amounts, maintenance windows.

Why it exists: each has exactly one text form and one meaning, shared by policy, command line and messages. It does not
know the clock or any time zone's rules: a window stays the local times and the zone's name that were written
(`control` turns it into UTC intervals).
"""

import re
from typing import Final

from muster.model.frozen import dataclass

MINUTES_A_DAY: Final = 24 * 60
WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DURATION_HINT: Final = "write a whole number and s, m, h or d, such as 15m"
AMOUNT_HINT: Final = "write a count such as 2 or a share such as 5%"
WINDOW_HINT: Final = 'write "Sat 02:00-08:00 Europe/Berlin", "Mon-Fri 22:00-06:00 UTC" or "daily 01:00-04:00 UTC"'

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A limit of years is a slip of the unit; nothing in a rollout is waited for longer than one.
MAX_DURATION_S: Final = 366 * 86400
_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_PERCENT = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,2}))?\s?%", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,6}", re.ASCII)
_WINDOW = re.compile(r"(\S+)\s+([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2})\s+(\S+)", re.ASCII)
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}", re.ASCII)


def parse_duration_s(text: str) -> int:
    """Seconds of `15m`, `24h`, `90s`, `7d`; raises ValueError for anything else and beyond a year."""
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is not a duration")
    seconds = int(matched[1]) * _SECONDS[matched[2]]
    if seconds > MAX_DURATION_S:
        raise ValueError(f"{text!r} is longer than a year")
    return seconds


def duration_text(seconds: int) -> str:
    """The shortest text that `parse_duration_s` reads as `seconds`."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{seconds // _SECONDS[unit]}{unit}"
    return f"{seconds}s"


@dataclass(frozen=True, slots=True)
class Amount:
    """So many, or such a share, of a group: exactly one of the two fields is positive.

    `basis_points` are hundredths of a percent, so that `0.5%` of a large fleet needs no float.
    """

    count: int = 0
    basis_points: int = 0

    def __post_init__(self) -> None:
        if (self.count > 0) == (self.basis_points > 0) or min(self.count, self.basis_points) < 0:
            raise ValueError("an amount is either a positive count or a positive share")
        if self.basis_points > 10_000:
            raise ValueError("a share is at most 100%")

    @classmethod
    def parse(cls, text: str) -> "Amount":
        """`2`, `5%` or `0.5%`; raises ValueError for anything else, for zero, and beyond 100%."""
        if _COUNT.fullmatch(text):
            if int(text) == 0:
                raise ValueError(f"{text!r} is nothing at all")
            return cls(count=int(text))
        matched = _PERCENT.fullmatch(text)
        if matched is None:
            raise ValueError(f"{text!r} is neither a count nor a share")
        basis_points = int(matched[1]) * 100 + int((matched[2] or "").ljust(2, "0"))
        if basis_points == 0:
            raise ValueError(f"{text!r} is nothing at all")
        if basis_points > 10_000:
            raise ValueError(f"{text!r} is more than all")
        return cls(basis_points=basis_points)

    @property
    def is_share(self) -> bool:
        """Whether it is a percentage."""
        return self.basis_points > 0

    def of(self, total: int) -> int:
        """How many of `total`: shares round down but give at least 1; never more than `total`; 0 of nothing."""
        if total <= 0:
            return 0
        wanted = max(1, total * self.basis_points // 10_000) if self.is_share else self.count
        return min(wanted, total)

    def __str__(self) -> str:
        if not self.is_share:
            return str(self.count)
        whole, part = divmod(self.basis_points, 100)
        return f"{whole}.{part:02}".rstrip("0") + "%" if part else f"{whole}%"


@dataclass(frozen=True, slots=True)
class Window:
    """A weekly time at which a pool may be changed, in local time of a named zone.

    `days` are 0 (Monday) to 6, ascending: the days on which it opens. Minutes count from that day's local midnight;
    `end_minute` is above 1440 when the window closes on the next day.
    """

    days: tuple[int, ...]
    start_minute: int
    end_minute: int
    zone: str

    @classmethod
    def parse(cls, text: str) -> "Window":
        """`DAYS HH:MM-HH:MM ZONE`, DAYS being `Sat`, `Mon-Fri`, `Sat,Sun` or `daily`; raises ValueError."""
        matched = _WINDOW.fullmatch(text.strip())
        if matched is None:
            raise ValueError(f"{text!r} is not a window")
        start = _minute(matched[2], matched[3])
        end = _minute(matched[4], matched[5])
        if start == MINUTES_A_DAY:
            raise ValueError("a window cannot open at 24:00; write 00:00 of the next day")
        if start == end:
            raise ValueError("it opens and closes at the same time; a whole day is 00:00-24:00")
        if not _ZONE.fullmatch(matched[6]):
            raise ValueError(f"{matched[6]!r} is not the name of a time zone")
        return cls(_days(matched[1]), start, end if end > start else end + MINUTES_A_DAY, matched[6])

    def __str__(self) -> str:
        days = "daily" if len(self.days) == 7 else ",".join(WEEKDAYS[day] for day in self.days)
        return f"{days} {_clock(self.start_minute)}-{_clock(self.end_minute)} {self.zone}"


def _minute(hour: str, minute: str) -> int:
    total = int(hour) * 60 + int(minute)
    if int(minute) > 59 or total > MINUTES_A_DAY:
        raise ValueError(f"{hour}:{minute} is not a time of day")
    return total


def _clock(minute: int) -> str:
    within = minute if minute <= MINUTES_A_DAY else minute - MINUTES_A_DAY
    return f"{within // 60:02}:{within % 60:02}"


def _days(text: str) -> tuple[int, ...]:
    if text == "daily":
        return tuple(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin = _weekday(first)
        span = (_weekday(last) - begin) % 7 if dash else 0
        found.update((begin + step) % 7 for step in range(span + 1))
    return tuple(sorted(found))


def _weekday(text: str) -> int:
    if text not in WEEKDAYS:
        raise ValueError(f"{text!r} is not a weekday: {', '.join(WEEKDAYS)} or daily")
    return WEEKDAYS.index(text)
