"""A large fleet in memory, for benchmarks: real recorded outputs, with ids of their own on each node. No file, no network, no chance."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.harness import CommandFailedError, Sample, installed_environment
from muster.backends.store.sqlite import open_store
from muster.control.bootstrap import fact_specs
from muster.model.fact import BySource, FactSpec, NodeFacts, RawOutput, Told

NODES = 10_000
T0 = datetime.now(UTC)
"""When the first looks were: now, so that no command calls them stale."""

_FIXTURES = Path(__file__).resolve().parents[1] / "tests/fixtures/facts"
_RECORDED = {
    "compute_apps": "idle.csv", "container": "loopback.txt", "disk": "debian12.txt", "dkms": "two_kernels.txt", "dpkg": "debian12_held.txt",
    "fabric": "hgx.txt", "gpu": "q-x_8x-h100-hbm3_570.86.15.xml", "kernels": "grub_debian_default.txt", "lease": "none.txt",
    "library": "one.txt", "machine": "debian12.txt", "module": "on-disk_610.57.04.txt", "nouveau": "no_image.txt",
    "repository": "two_versions.txt", "runfile": "loopback.txt", "secure_boot": "disabled.txt", "system": "debian12.txt",
    "transactions": "unattended.txt", "cuda": "two_toolkits.txt", "hardware": "hgx_h100.txt", "initramfs": "debian_zstd.txt",
    "kernel_log": "nothing.txt", "workload": "loopback.txt", "upgrades": "ubuntu_on.txt", "uptime": "debian12.txt",
}  # fmt: skip
"""Source -> the recorded output that stands for it; a source that is not here has none, and its facts are Unknown."""

_VERSION = "580.126.20"
_STACK = (
    "nvidia-driver", "nvidia-driver-bin", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-kernel-support", "nvidia-modprobe",
    "nvidia-persistenced", "nvidia-smi", "nvidia-vdpau-driver", "nvidia-opencl-icd", "nvidia-settings", "libcuda1", "libcudadebugger1",
    "libnvcuvid1", "libnvidia-cfg1", "libnvidia-egl-gbm1", "libnvidia-eglcore", "libnvidia-encode1", "libnvidia-fbc1",
    "libnvidia-glcore", "libnvidia-glvkspirv", "libnvidia-ml1", "libnvidia-nvvm4", "libnvidia-opticalflow1", "libnvidia-ptxjitcompiler1",
    "libnvidia-rtcore", "firmware-nvidia-gsp", "nvidia-fabricmanager",
)  # fmt: skip
_DPKG = "".join(f"{name}\t{_VERSION}-1\thold\tinstalled\tamd64\n" for name in _STACK)
_DPKG += "dpkg\t1.21.22\tinstall\tinstalled\tamd64\n"


_MODULE = (_FIXTURES / "module" / "loaded-open_550.78.txt").read_text(encoding="utf-8").replace("550.78", _VERSION)
_POLICY = f"""
schema: 1
fleet: bench
inventory:
  - ansible: hosts.ini
pools:
  train: {{match: {{label.role: train}}, driver: {{want: {_VERSION}}}}}
"""


def outputs(number: int, at: int = 0) -> Mapping[str, RawOutput]:
    """What node `number` prints at look `at`: its own ids, its own momentary values, and what all nodes share."""
    base = _base()
    told = {name: RawOutput(0, text) for name, text in base.items()}
    gpu = base["gpu"].replace(b"GPU-", b"GPU-%04x" % (number & 0xFFFF))
    gpu = gpu.replace(b"<serial>", b"<serial>%05d" % number)
    # Four kinds of chassis, each with its own places on the PCI bus; and what is another number on each GPU at each look.
    gpu = gpu.replace(b"00000000:0", b"0000000%d:0" % (number // 64 % 4))
    told["gpu"] = RawOutput(0, _PASSING.sub(_Passing(7 * number + at), gpu))
    told["machine"] = RawOutput(0, b"%032x\n" % (number + 1))
    told["system"] = RawOutput(0, base["system"].replace(b"5f0c3b5e", b"%08x" % number))
    # Each rack was installed at its own minute; its logs say so.
    minute = b" 10:%02d:%02d" % (number // 32 % 60, number // 32 // 60)
    told["transactions"] = RawOutput(0, base["transactions"].replace(b" 10:12:07", minute))
    told["uptime"] = RawOutput(0, b"%d.20 9.1\nutc %d\n" % (1000 + number + 3600 * at, T0.timestamp() + 3600 * at))
    return told


_PASSING = re.compile(
    rb"(<(?:gpu_temp|memory_temp|gpu_util|tx_util|rx_util|power_draw|used)>|<clocks>\s*<graphics_clock>)([0-9]+)"
)


class _Passing:
    """Momentary numbers, each a little more than the recorded one: for `re.sub`."""

    def __init__(self, seed: int) -> None:
        self._next = seed

    def __call__(self, found: re.Match[bytes]) -> bytes:
        self._next += 5
        return b"%s%d" % (found[1], int(found[2]) + self._next % 23)


@cache
def _base() -> Mapping[str, bytes]:
    texts = {name: (_FIXTURES / name / file).read_bytes() for name, file in _RECORDED.items()}
    return {**texts, "dpkg": _DPKG.encode(), "module": _MODULE.encode()}


def looked(number: int, told: Mapping[str, RawOutput], at: int = 0) -> NodeFacts:
    """The facts in these outputs, as a collect makes them."""
    now = T0 + timedelta(hours=at, milliseconds=number)
    return NodeFacts(
        name(number),
        now,
        BySource(
            Told(spec.name, now, spec.read(told[spec.name]), spec.momentary) for spec in _specs() if spec.name in told
        ),
    )


@cache
def _specs() -> tuple[FactSpec, ...]:
    return fact_specs()


def name(number: int) -> str:
    """The name of a node."""
    return f"gpu{number:05d}"


def cpu_sample(work: Callable[[], object]) -> Sample:
    """One run of `work` in this process; the value is its CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    used = time.process_time() - cpu
    return Sample(value=used, wall_s=time.perf_counter() - wall, cpu_s=used)


def command_sample(argv: Sequence[str], env: Mapping[str, str], ends: Container[int]) -> Sample:
    """One run of a command that may end with one of `ends`; the value is its CPU seconds."""
    began = time.perf_counter()
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**installed_environment(), **env},
    ) as child:
        _pid, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in ends:
        raise CommandFailedError(f"exit {child.returncode}: {' '.join(argv)}")
    cpu_s = used.ru_utime + used.ru_stime
    return Sample(value=cpu_s, wall_s=time.perf_counter() - began, cpu_s=cpu_s)


@cache
def filled(nodes: int = NODES, look: Callable[[int], NodeFacts] | None = None) -> Mapping[str, str]:
    """A site of `nodes` nodes whose looks are stored: the environment of a command that works on it. It goes with this process.

    `look` makes the look at a node, from its number; without one it is what `outputs` holds.
    """
    folder = Path(_kept(TemporaryDirectory(prefix="muster-bench-")).name)
    names = "".join(f"{name(number)} role=train rack=r{number // 32}\n" for number in range(nodes))
    (folder / "hosts.ini").write_text(f"[train]\n{names}", encoding="utf-8")
    (folder / "fleet.yaml").write_text(_POLICY, encoding="utf-8")
    store = open_store(str(folder / "muster.db"))
    for start in range(0, nodes, 1000):  # a thousand at a time: what they print would be a gigabyte
        numbers = range(start, min(start + 1000, nodes))
        asyncio.run(store.save_facts([looked(n, outputs(n)) if look is None else look(n) for n in numbers]))
    asyncio.run(store.close())
    return {"MUSTER_FLEET": str(folder / "fleet.yaml"), "MUSTER_STORE": str(folder / "muster.db")}


_FOLDERS: list[TemporaryDirectory[str]] = []


def _kept(folder: TemporaryDirectory[str]) -> TemporaryDirectory[str]:
    _FOLDERS.append(folder)
    return folder
