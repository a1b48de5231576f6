"""A laboratory in one folder: its repository served over HTTP, its network, its nodes, and the files with which Muster reaches them."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lab import repository
from lab.base import image
from lab.node import LabNode, until
from lab.packages import OPEN, RELEASES, Release, names
from lab.tools import cache_folder, obstacle, run
from muster.loopback.tools import spawn_detached

NETWORK = "10.88"
_LABS = 250

DISK_MIB = 640
"""A node's disk; the base and two drivers need half of it."""


class Lab:
    """The laboratory in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        about = json.loads((self.folder / "lab.json").read_text(encoding="utf-8"))
        self.number = int(about["number"])
        self.nodes = tuple(self._node(index, name) for index, name in enumerate(about["nodes"]))

    @classmethod
    def up(
        cls, folder: Path, *, nodes: int = 1, releases: Sequence[Release] = RELEASES, disk_mib: int = DISK_MIB
    ) -> "Lab":
        """Make a laboratory in `folder`, which must be absent or empty, and boot its nodes. Raises RuntimeError where it cannot be."""
        why = obstacle()
        if why:
            raise RuntimeError(why)
        if folder.exists() and any(folder.iterdir()):
            raise RuntimeError(f"{folder} is not empty")
        folder.mkdir(parents=True, exist_ok=True)
        number = _take_bridge()
        described = {"number": number, "nodes": [f"gpu{index + 1:02d}" for index in range(nodes)]}
        (folder / "lab.json").write_text(json.dumps(described), encoding="utf-8")
        lab = cls(folder)
        try:
            lab._make(image(disk_mib), releases)
        except BaseException:
            lab.down()
            raise
        return lab

    def _make(self, disk: Path, releases: Sequence[Release]) -> None:
        repository.build(self.folder / "apt", os.uname().release, releases)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "id")])
        self.serve()
        for index, node in enumerate(self.nodes):
            self._connect(index, node)
            public_key = (self.folder / "id.pub").read_text(encoding="ascii")
            node.make(disk, self.url, self.folder / "apt/lab.gpg", public_key)
        self._write_files()
        for node in self.nodes:
            node.start()

    @property
    def url(self) -> str:
        """Where the nodes find the repository."""
        return f"http://{NETWORK}.{self.number}.1:8080"

    def install(self, node: LabNode, driver: str, flavour: str = OPEN, *, hold: bool = True) -> None:
        """Install a driver as an administrator would, by apt, and hold it; load it by a restart."""
        release = next(each for each in RELEASES if each.version == driver)
        wanted = names(release, flavour).all
        pins = " ".join(f"{name}={release.package_version}" for name in wanted)
        node.ok("apt-get -q update")
        node.ok(f"DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends {pins}")
        node.ok("apt-get clean")
        if hold:
            node.ok(f"apt-mark hold {' '.join(wanted)}")
        node.reboot()

    def serve(self) -> None:
        """Serve the repository; does nothing where it is served."""
        if self._server() is not None:
            return
        pid, served = self.folder / "http.pid", self.folder / "apt"
        script = 'echo $$ >"$1"; exec "$2" -m http.server --bind "$3" --directory "$4" 8080'
        argv = ["sh", "-c", script, "sh", str(pid), sys.executable, f"{NETWORK}.{self.number}.1", str(served)]
        spawn_detached(argv, dict(os.environ), self.folder / "http.log")
        probe = ["bash", "-c", f"exec 3<>/dev/tcp/{NETWORK}.{self.number}.1/8080"]
        until(
            lambda: subprocess.run(probe, capture_output=True, check=False).returncode == 0,
            "the repository's server",
            60,
        )

    def unserve(self) -> None:
        """The repository is gone."""
        pid = self._server()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            until(lambda: self._server() is None, "the end of the repository's server", 30)

    def _server(self) -> int | None:
        try:
            pid = int((self.folder / "http.pid").read_text())
            return pid if b"http.server" in Path(f"/proc/{pid}/cmdline").read_bytes() else None
        except (OSError, ValueError):
            return None

    def down(self) -> None:
        """End everything and take the folder away."""
        for node in self.nodes:
            if node.folder.exists():
                node.stop()
            with suppress(RuntimeError):
                run(["ip", "netns", "del", node.namespace])
        self.unserve()
        with suppress(RuntimeError):
            run(["ip", "link", "del", f"mlab{self.number}"])
        shutil.rmtree(self.folder, ignore_errors=True)

    def _node(self, index: int, name: str) -> LabNode:
        return LabNode(
            self.folder / "nodes" / name, f"{NETWORK}.{self.number}.{index + 10}", f"mlab{self.number}-{name}"
        )

    def _connect(self, index: int, node: LabNode) -> None:
        here, bridge = f"ml{self.number}v{index}", f"mlab{self.number}"
        run(["ip", "netns", "add", node.namespace])
        run(["ip", "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", node.namespace])
        run(["ip", "link", "set", here, "master", bridge, "up"])
        run(["ip", "-n", node.namespace, "addr", "add", f"{node.address}/24", "dev", "eth0"])
        for device in ("lo", "eth0"):
            run(["ip", "-n", node.namespace, "link", "set", device, "up"])

    def _write_files(self) -> None:
        hosts, known, config = [], [], []
        for node in self.nodes:
            key = (node.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text(encoding="ascii").split()
            known.append(f"{node.name},{node.address} {key[0]} {key[1]}\n")
            config.append(f"Host {node.name}\n  HostName {node.address}\n  HostKeyAlias {node.name}\n\n")
            hosts.append(f"{node.name}\n")
        every = " ".join(node.name for node in self.nodes)
        config.append(
            f'Host {every} {NETWORK}.*\n  User root\n  IdentityFile "{self.folder / "id"}"\n  IdentitiesOnly yes\n'
            f'  UserKnownHostsFile "{self.folder / "known_hosts"}"\n  StrictHostKeyChecking yes\n'
        )
        (self.folder / "known_hosts").write_text("".join(known), encoding="ascii")
        (self.folder / "ssh_config").write_text("".join(config), encoding="utf-8")
        (self.folder / "hosts").write_text("".join(hosts), encoding="ascii")
        (self.folder / "fleet.yaml").write_text(POLICY, encoding="utf-8")


def _take_bridge() -> int:
    """A network of our own that nobody on this machine has yet."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "network.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for number in range(1, _LABS):
            if not Path(f"/sys/class/net/mlab{number}").exists():
                run(["ip", "link", "add", f"mlab{number}", "type", "bridge"])
                run(["ip", "addr", "add", f"{NETWORK}.{number}.1/24", "dev", f"mlab{number}"])
                run(["ip", "link", "set", f"mlab{number}", "up"])
                return number
    raise RuntimeError(f"all {_LABS} networks of the laboratory are taken: ip link show type bridge")


POLICY = """\
# The policy of a laboratory of containers: one pool, changed one node at a time.
schema: 1
fleet: lab

inventory:
  - hosts: hosts

ssh:
  config: ssh_config
  sudo: false

pools:
  all:
    match: {gpu: H100}
    tier: development
    driver: {want: 595.71.05, flavour: open}
    drain: {policy: wait, limit: 5m}
    max_unavailable: {pool: 100%}

rollout:
  stages: [canary, 100%]
  soak: {canary: 0s, later: 0s}
  approvals: 1

holds: {driver: true}
"""
