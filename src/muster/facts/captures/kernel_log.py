"""A kernel log, in any of its forms: Xid, SXid, PCIe, NIC and driver messages as events, and their counts. A single line is a log too.

What an Xid means is not said here. An event's key is the number of its line.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping

from muster.facts.captures import _kernel_line, _text
from muster.facts.captures._kernel_line import Event, Line
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

MOST_EVENTS = 1_000
"""Of more events the first and the last half are kept; the counts are of all."""
_MOST_XIDS = 1_000
_MOST_JOINED = 12

_OF_INTEREST = re.compile(
    r"NVRM|nvidia|Xid|mlx5_core|nv_peer_mem|10de:|AER|PCIe |[Mm]emory: Kill|oom|Linux version|Comm:|Hardware name|DMI:"
)
"""Most lines of a log are of none of this, and are passed over for the cost of one search."""
_BARE = re.compile(
    r"(?:NVRM: |nvidia-nvswitch\d{1,3}: |mlx5_core [0-9a-f]{4}:|nvidia(?!-smi)[\w-]{0,30}(?: [0-9a-f]{4}:[\w:.]{1,20})?: |nv_peer_mem: )"
)
_SWITCH = re.compile(r"pci (\S{1,20}): \[10de:[0-9a-f]{4}\] type \S{1,4} class 0x068000")
_KERNEL = re.compile(
    r"Linux version (\S{1,120})|CPU: \d{1,5} PID: \d{1,10} Comm: .{1,200}? (\d{1,3}\.\d{1,4}\.\d{1,6}\S{0,100}) #"
)
_HARDWARE = re.compile(r"(?:Hardware name|DMI): (.{1,200})")
_CRASH = re.compile(r"^(?:dmesg-\w{1,20}-\d{1,30}:|(Panic|Oops|Emergency)#\d{1,4} Part\d{1,4})", re.MULTILINE)


def sniff(head: str) -> int:
    lines = [line for line in head.split("\n") if line.strip()][:200]
    stamped = sum(1 for line in lines if _kernel_line.line(line).stamped)
    known = sum(
        1
        for line in lines
        if _BARE.match(_kernel_line.line(line).message) or _kernel_line.event(_kernel_line.line(line).message)
    )
    if not lines or _CRASH.match(head):
        return 95 if lines else 0
    return 90 if known * 2 > len(lines) or stamped * 2 > len(lines) else 40 if known else 0


class _Log:
    """What is counted while a log is read once."""

    def __init__(self) -> None:
        self.first: dict[str, FactValue] = {}
        self.last: deque[Mapping[str, FactValue]] = deque(maxlen=MOST_EVENTS // 2)
        self.kinds: Counter[str] = Counter()
        self.xids: dict[str, dict[str, FactValue]] = {}
        self.driver: Event | None = None

    def take(self, number: int, line: Line, event: Event) -> None:
        self.kinds[event.kind] += 1
        facts = _facts(number, line, event)
        if self.kinds.total() <= MOST_EVENTS // 2:
            self.first |= facts
        else:
            self.last.append(facts)
        if event.kind == "xid":
            self._count(event, line)
        if event.kind == "driver-loading":
            self.driver = event

    def _count(self, event: Event, line: Line) -> None:
        key = f"xid[{event.values['pci']}/{event.values['xid']}]"
        seen = self.xids.get(key)
        when = line.at or line.ktime_s or Unknown("the line has no time")
        if seen is None:
            if len(self.xids) < _MOST_XIDS:
                self.xids[key] = {"count": 1, "first": when, "last": when}
        elif isinstance(seen["count"], int):
            seen |= {"count": seen["count"] + 1, "last": when}


def parse(text: str) -> Mapping[str, FactValue]:
    """`event[<line>].kind` with what it holds; `xid[<pci>/<number>].count`, `.first`, `.last`; `kernel_log.count[<kind>]` of every kind
    that came, and of `xid`, `sxid` and `nic` even where none did; the driver that was loading, NVSwitches found at boot.
    """
    log = _Log()
    switches: set[str] = set()
    about: dict[str, FactValue] = {}
    for number, line in _lines(text):
        event = _kernel_line.event(line.message)
        if event is not None:
            log.take(number, line, event)
        else:
            _beside(line.message, switches, about)
    found = {**log.first, **{path: value for facts in log.last for path, value in facts.items()}}
    found |= {f"{key}.{field}": value for key, counted in log.xids.items() for field, value in counted.items()}
    kinds = {"xid": 0, "sxid": 0} | dict(log.kinds)
    kinds["nic"] = sum(count for kind, count in log.kinds.items() if kind.startswith("nic-"))
    found |= {f"kernel_log.count[{kind}]": count for kind, count in kinds.items()}
    found |= about
    found["kernel_log.events"] = log.kinds.total()
    found["kernel_log.lines"] = text.rstrip("\n").count("\n") + 1
    found["kernel_log.nvswitches"] = len(switches)
    driver = log.driver.values if log.driver else {}
    found["kernel_log.driver_loaded"] = driver.get("driver", Unknown("no line says that a driver was loading"))
    found["kernel_log.driver_flavour"] = driver.get("flavour", Unknown("no line says that a driver was loading"))
    if _CRASH.search(text[:4096]):
        found["kernel_log.crash_record"] = True
    return found


def _facts(number: int, line: Line, event: Event) -> Mapping[str, FactValue]:
    values: dict[str, FactValue] = {
        "kind": event.kind,
        "text": _text.bounded(line.message, _kernel_line.MOST_TEXT),
        **event.values,
    }
    if line.at:
        values["at"] = line.at
    if line.ktime_s:
        values["ktime_s"] = line.ktime_s
    return {f"event[{number:07}].{field}": value for field, value in values.items()}


def _lines(text: str) -> Iterator[tuple[int, Line]]:
    """Each message with the number of its line; what the driver says over several lines is one, as long as nothing else comes between."""
    held: tuple[int, Line] | None = None
    joined = 0
    for number, raw in enumerate(text.split("\n"), 1):
        if not _OF_INTEREST.search(raw, 0, 4096):
            if held:
                yield held
                held = None
            continue
        line = _kernel_line.line(raw)
        if (
            held
            and joined < _MOST_JOINED
            and not _kernel_line.goes_on(line.message)
            and _kernel_line.continues(line.message)
        ):
            message = f"{held[1].message} {line.message.removeprefix('NVRM:').strip()}"
            held = (held[0], Line(message, held[1].at, held[1].ktime_s, held[1].level, held[1].stamped))
            joined += 1
            continue
        if held:
            yield held
            held = None
        if _kernel_line.goes_on(line.message):
            held, joined = (number, line), 0
        else:
            yield number, line
    if held:
        yield held


def _beside(message: str, switches: set[str], about: dict[str, FactValue]) -> None:
    """What a log says of the machine itself."""
    if "[10de:" in message and len(switches) < 64:
        switch = _SWITCH.match(message)
        if switch:
            switches.add(switch[1])
    if "Linux version" in message or "Comm:" in message:
        kernel = _KERNEL.search(message)
        if kernel:
            about.setdefault("kernel_log.kernel", kernel[1] or kernel[2])
    if "Hardware name" in message or "DMI:" in message:
        hardware = _HARDWARE.match(message)
        if hardware:
            about.setdefault("kernel_log.hardware", hardware[1])


READER = CaptureSpec("kernel_log", "dmesg, journalctl -k, /dev/kmsg, /sys/fs/pstore, or lines of them", sniff, parse)
