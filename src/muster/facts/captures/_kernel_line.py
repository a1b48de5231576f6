"""One message of the kernel: the stamps before it, and which of the messages that matter for GPUs it is. Pure.

What a message is and holds, not what it means: the meaning of an Xid, and what to do, is added where health is judged.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from muster.model.fact import FactValue, Unknown
from muster.model.frozen import dataclass

MOST_TEXT = 400

_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_WORD = "(?:[^\\W\\d_]|\ufffd){1,16}\\.?"
_MONTH = rf"(?:\d{{1,2}})?{_WORD}"
"""dmesg and journalctl write names of days and months in the language of who asked: `Sa Mär`, `月 11月`, `mer. déc.`; in
an encoding of their own where it is an old one, of which only marks are left."""
_CTIME = rf"{_WORD} {_MONTH} [ \d]\d \d\d:\d\d:\d\d \d{{4}}"
_STAMPS = re.compile(
    r"(?:\d{1,3},\d{1,12},(?P<usec>\d{1,18}),[^;]{0,60};)?"  # a record of /dev/kmsg
    r"(?:<\d{1,3}>)?"  # pstore, dmesg -r
    r"(?:(?:kern|user|daemon|syslog) *: *(?P<level>[a-z]{1,7}) *: *)?"  # dmesg --decode
    rf"(?:(?P<iso>{_ISO}) (?:(?P<host>\S{{1,255}}) kernel: )?)?"  # dmesg --time-format=iso, journalctl -o short-iso
    rf"(?:(?P<syslog>{_MONTH} [ \d]\d \d\d:\d\d:\d\d) (?P<host2>\S{{1,255}}) (?=kernel: ))?"
    r"(?:kernel: )?"
    rf"(?:\[(?:(?P<ctime>{_CTIME})|[ \d]{{0,12}}?(?P<ktime>\d{{1,12}}\.\d{{1,9}}))\] ?)?"
)


@dataclass(frozen=True, slots=True)
class Line:
    """A message without its stamps. `at` is the wall time as it was written (it may lack year and zone), `ktime_s` the seconds since boot."""

    message: str
    at: str = ""
    ktime_s: str = ""
    level: str = ""
    stamped: bool = False


def line(text: str) -> Line:
    """The parts of one line of dmesg (any form), journalctl, syslog, /dev/kmsg or pstore; a bare message is one too."""
    stamps = _STAMPS.match(text)
    if stamps is None or stamps.end() == 0:
        return Line(text)
    usec = stamps["usec"]
    ktime = stamps["ktime"] or (f"{int(usec) // 1_000_000}.{int(usec) % 1_000_000:06}" if usec else "")
    at = stamps["iso"] or stamps["ctime"] or stamps["syslog"] or ""
    return Line(text[stamps.end() :], at, ktime, stamps["level"] or "", stamped=True)


@dataclass(frozen=True, slots=True)
class Event:
    """A message that is known: of which kind, and what it holds."""

    kind: str
    values: Mapping[str, FactValue]


_PCI = r"[0-9A-Fa-f]{2,8}:[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2})?(?:\.[0-9A-Fa-f])?"
_XID = re.compile(rf"NVRM: Xid \(?(?:PCI:)?(?P<pci>{_PCI})\)?: (?P<xid>\d{{1,6}})\b,? ?(?P<rest>.*)", re.DOTALL)
_SXID = re.compile(
    rf"nvidia-nvswitch(?P<switch>\d{{1,3}}): SXid \(PCI:(?P<pci>{_PCI})\): (?P<sxid>\d{{1,6}}),? ?"
    r"(?:(?P<severity>Fatal|Non-fatal), )?(?P<rest>.*)",
    re.DOTALL,
)
_PID = re.compile(r"pid=(?:(?P<pid>\d{1,10})|'?<unknown>'?)(?:, name=(?P<name>[^,]{1,60}))?,? ?")
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_/]{1,60}) +(?P<severity>Fatal|Nonfatal) +XC(?P<xc>\d{1,2}) +i(?P<i>\d{1,2}) +Link +(?P<link>-?\d{1,4})"
    r"(?: \((?P<info>0x[0-9a-fA-F]{1,16})(?: (?P<status>0x[0-9a-fA-F]{1,16}))?)?"
)
_RECOVERY = re.compile(
    r"GPU recovery action changed from 0x[0-9a-f]+ \((?P<old>[^)]{1,60})\) to 0x[0-9a-f]+ \((?P<new>[^)]{1,60})\)"
)
_ROOT = re.compile(r"caused by previous Xid (\d{1,6})")
_GPU_N = re.compile(r"from (GPU\d{1,3}) GSP")
_LINK = re.compile(r"Link (\d{1,3})\b")


def _xid(match: re.Match[str]) -> Event:
    values: dict[str, FactValue] = {"xid": int(match["xid"]), "pci": match["pci"]}
    rest = match["rest"]
    process = _PID.match(rest)
    if process:
        rest = rest[process.end() :]
        values["pid"] = int(process["pid"]) if process["pid"] else Unknown("the driver does not know it")
        if process["name"]:
            values["process"] = (
                Unknown("the driver does not know it") if process["name"] == "<unknown>" else process["name"]
            )
    nvlink, recovery, root, gpu = (sign.search(rest) for sign in (_NVLINK5, _RECOVERY, _ROOT, _GPU_N))
    if nvlink:
        values |= {"unit": nvlink["unit"], "severity": nvlink["severity"], "link": int(nvlink["link"])}
        values["intr_info"] = nvlink["info"] or Unknown("the line was cut before it")
        values["error_status"] = nvlink["status"] or Unknown("the line was cut before it")
    if recovery:
        values |= {"recovery_from": recovery["old"], "recovery_to": recovery["new"]}
    if root:
        values["root_xid"] = int(root[1])
    if gpu:
        values["gpu"] = gpu[1]
    return Event("xid", values)


def _sxid(match: re.Match[str]) -> Event:
    values: dict[str, FactValue] = {"sxid": int(match["sxid"]), "switch": int(match["switch"]), "pci": match["pci"]}
    values["severity"] = match["severity"] or Unknown("not given in this line")
    link = _LINK.match(match["rest"])
    if link:
        values["link"] = int(link[1])
    return Event("sxid", values)


_Maker: TypeAlias = Callable[[re.Match[str]], Event]


def _plain(kind: str) -> _Maker:
    """An event that holds what the named groups of its pattern hold; a group that found nothing is left out."""
    return lambda match: Event(kind, {name: value for name, value in match.groupdict().items() if value})


_ERRNO = {"2": "ENOENT", "4": "EINTR", "5": "EIO", "12": "ENOMEM", "22": "EINVAL"}


def _firmware(match: re.Match[str]) -> Event:
    values: dict[str, FactValue] = {"driver": match["driver"], "file": match["file"]}
    if match["pci"]:
        values["pci"] = match["pci"]
    values["errno"] = _ERRNO.get(match["error"], match["error"])
    return Event("firmware-load-failed", values)


_NIC = rf"mlx5_core (?P<nic_pci>{_PCI})(?: (?P<interface>[\w.-]{{1,32}}))?: "
_MODULE = r"(?P<module>nvidia[\w-]{0,30}|nv_peer_mem): "
_SYMBOL = r"(?P<symbol>\w{1,120})"

_MESSAGES: tuple[tuple[str, re.Pattern[str], _Maker], ...] = tuple(
    (word, re.compile(pattern, re.DOTALL), maker)
    for word, pattern, maker in (
        ("Xid ", _XID.pattern, _xid),
        ("SXid ", _SXID.pattern, _sxid),
        ("GPU-", rf"NVRM: GPU at PCI:(?P<pci>{_PCI}): (?P<uuid>GPU-[\w-]{{1,60}})", _plain("gpu-identity")),
        ("Serial", r"NVRM: GPU Board Serial Number: (?P<serial>\S{1,40})", _plain("board-serial")),
        ("fallen off", rf"NVRM: (?:The NVIDIA )?GPU (?P<pci>{_PCI}):? (?:GPU )?has fallen off the bus", _plain("gpu-off-bus")),
        ("fallen off", rf"NVRM: The NVIDIA GPU (?P<pci>{_PCI}) fallen off the bus", _plain("gpu-off-bus")),
        (
            "RmInitAdapter", rf"NVRM: GPU (?P<pci>{_PCI}): RmInitAdapter failed! \((?P<rm_init_failed>[0-9a-fx:]{{3,40}})\)",
            _plain("rm-init-failed"),
        ),
        ("RxDet", r"NVRM: knvlink\w{1,80}: .*?ostRxDet|NVRM: knvlink\w{1,80}: Failed to update Rx Detect", _plain("nvlink-discovery-failed")),
        ("knvlink", r"NVRM: knvlink\w{1,80}: .*?Rx Detect", _plain("nvlink-discovery-failed")),
        ("NV_ERR_RESET_REQUIRED", r"NVRM: .{0,400}?\[(?P<error>NV_ERR_RESET_REQUIRED)\]", _plain("reset-required")),
        ("status=0x00000062", r"NVRM: .{0,400}?\bstatus=0x00000062", lambda _: Event("reset-required", {"error": "NV_ERR_RESET_REQUIRED"})),
        ("FailedNoLog", r"NVRM: nv(?:Check|Assert)\w{1,40}: .{0,200}?\[(?P<error>NV_ERR_\w{1,60})\]", _plain("check-failed")),
        ("overridden", r"NVRM: (?P<from>[A-Z_]{1,40}) overridden to (?P<to>[A-Z_]{1,40})", _plain("recovery-overridden")),
        ("vfio-pci", rf"NVRM: GPU (?P<pci>{_PCI}) is already bound to vfio-pci", _plain("bound-to-vfio")),
        (
            "supported by", rf"NVRM: The NVIDIA GPU (?P<pci>{_PCI}) \(PCI ID: (?P<pci_id>[0-9a-f:]{{9}})\).{{0,80}}?not supported by open",
            lambda match: Event("not-supported-by-open", {**match.groupdict(), "need": "proprietary module"}),
        ),
        (
            "supported by",
            (rf"NVRM: The NVIDIA GPU (?P<pci>{_PCI}) \(PCI ID: (?P<pci_id>[0-9a-f:]{{9}})\).{{0,80}}?not supported by the"
            r" NVIDIA (?P<driver>\d[\d.]{1,20}) driver release"),
            _plain("not-supported-by-release"),
        ),
        (
            "Legacy drivers", (r"NVRM: The NVIDIA (?P<product>.{1,80}?) GPU installed in this system is\s+supported through the NVIDIA "
            r"(?P<legacy_branch>\d{3})\.xx Legacy drivers.*?The (?P<driver>\d[\d.]{1,20}) NVIDIA driver will ignore"), _plain("legacy-driver"),
        ),
        (
            "NVIDIA UNIX", r"NVRM: loading NVIDIA UNIX (?P<open>Open )?.{0,60}?Kernel Module(?: for \S{1,20})?\s+(?P<driver>\d[\w.]{0,30})",
            lambda match: Event("driver-loading", {"driver": match["driver"], "flavour": "open" if match["open"] else "proprietary"}),
        ),
        ("Rate limiting", rf"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:(?P<pci>{_PCI})", _plain("gsp-errors-limited")),
        ("NVRM:", r"NVRM: ", _plain("nvrm")),
        ("insufficient power", _NIC + r".{0,80}?Detected insufficient power on the PCIe slot", _plain("nic-slot-power")),
        ("ACCESS_REG", _NIC + r".{0,80}?ACCESS_REG\(0x[0-9a-f]+\).{0,80}?failed", _plain("nic-register-refused")),
        ("TX timeout", _NIC + r"TX timeout", _plain("nic-tx-timeout")),
        ("NETDEV WATCHDOG", _NIC + r"NETDEV WATCHDOG", _plain("nic-tx-timeout")),
        ("High Temperature", _NIC + r"Port module event.{0,80}?High Temperature", _plain("nic-module-hot")),
        ("Cable unplugged", _NIC + r"Port module event.{0,80}?Cable unplugged", _plain("nic-cable-unplugged")),
        ("command resource", _NIC + r".{0,80}?timeout\. Will cause a leak of a command resource", _plain("nic-firmware-timeout")),
        ("mlx5_core", _NIC + r"(?=.{0,300}(?:[Ff]ail|[Ee]rror|timed? ?out|fatal|health))", _plain("nic-trouble")),
        ("nvswitch", r"nvidia-nvswitch(?P<switch>\d{1,3}): (?:open|close|release)", _plain("nvswitch-notice")),
        (
            "gsp", (rf"nvidia (?P<pci>{_PCI}): (?:Direct firmware load for |loading /lib/firmware/)"
            r"(?P<file>nvidia/(?P<driver>[\d.]{3,20})/gsp\w{0,30}\.bin) failed with error -(?P<error>\d{1,4})"), _firmware,
        ),
        (
            "version magic", _MODULE + r"version magic '(?P<built_for>[^ ']{1,120})[^']*' should be '(?P<running>[^ ']{1,120})",
            _plain("vermagic-mismatch"),
        ),
        ("disagrees", _MODULE + "disagrees about version of symbol " + _SYMBOL, _plain("symbol-version-mismatch")),
        ("Unknown symbol", _MODULE + "Unknown symbol " + _SYMBOL + r" \(err (?P<error>-?\d{1,4})\)", _plain("unknown-symbol")),
        ("verification failed", _MODULE + r"module verification failed: signature", _plain("module-unsigned")),
        ("taints", _MODULE + r"(?:loading out-of-tree module|module license '(?P<license>[^']{1,40})') taints kernel", _plain("module-taint")),
        (
            "PCIe bandwidth", (rf"(?P<bus_driver>\w{{1,30}}) (?P<pci>{_PCI}): [\d.]{{1,12}} Gb/s available PCIe bandwidth, limited by "
            rf"(?P<limited_to>[\d.]{{1,6}} GT/s PCIe x\d{{1,2}}) link at (?P<at_pci>{_PCI}) \(capable of [\d.]{{1,12}} Gb/s with "
            r"(?P<capable_of>[\d.]{1,6} GT/s PCIe x\d{1,2})"), _plain("pcie-link-limited"),
        ),
        ("AER", rf"(?P<bus_driver>\w{{1,30}}) (?P<pci>{_PCI}): (?:AER|PCIe Bus Error): ?(?=.{{0,200}}(?:error|Error))", _plain("aer")),
        (
            "PCIe Bus Error", (rf"(?P<bus_driver>\w{{1,30}}) (?P<pci>{_PCI}): PCIe Bus Error: severity=(?P<severity>[\w ()-]{{1,40}}?),"
            r" (?:type=(?P<type>[\w ]{1,40}))?"), _plain("aer"),
        ),
        ("Out of memory", r"(?:Memory cgroup o|O)ut of memory: Kill", _plain("oom")),
        ("oom", r"oom-kill:|oom_reaper:", _plain("oom")),
    )
)  # fmt: skip
"""(a word that must stand in the message, its form, what it becomes): the first form that fits counts."""


def event(message: str) -> Event | None:
    """What the message is; None for the great many that say nothing of GPUs, their switches, links and modules."""
    if len(message) > 4096:
        message = message[:4096]
    for word, pattern, maker in _MESSAGES:
        if word in message:
            match = pattern.match(message)
            if match:
                return maker(match)
    return None


def goes_on(message: str) -> bool:
    """Whether the driver says this over several lines, each with its `NVRM:`."""
    return message.startswith("NVRM: The NVIDIA ") and "fallen off" not in message


def continues(message: str) -> bool:
    """Whether this may be a further line of such a message, not one of its own."""
    return message.startswith("NVRM: ") and (found := event(message)) is not None and found.kind == "nvrm"
