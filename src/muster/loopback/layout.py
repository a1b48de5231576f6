"""Where things lie in a loopback fleet's folder, and the text files that describe the fleet to others. Starts nothing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """One node of the fleet as its inventory shows it."""

    name: str
    role: str
    rack: str
    driver: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The places in a fleet's folder; all absolute."""

    folder: Path

    @property
    def shims(self) -> Path:
        return self.folder / "shims"

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    @property
    def nodes(self) -> Path:
        return self.folder / "nodes"

    @property
    def client_key(self) -> Path:
        return self.folder / "keys/client"

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.ini"

    @property
    def policy(self) -> Path:
        return self.folder / "fleet.yaml"

    @property
    def members(self) -> Path:
        return self.folder / "members.json"

    @property
    def pid(self) -> Path:
        """The server's process id, for people; whether it runs is what `lock` says."""
        return self.folder / "server.pid"

    @property
    def lock(self) -> Path:
        """Locked (fcntl) by the server for as long as it lives."""
        return self.folder / "server.lock"

    @property
    def ready(self) -> Path:
        """Written by the server when every node listens: name -> port."""
        return self.folder / "server.ready"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def node(self, name: str) -> Path:
        return self.nodes / name

    def host_key(self, name: str) -> Path:
        return self.folder / "keys/host" / name

    @property
    def wrong_host_key(self) -> Path:
        """A key that no known_hosts names, for nodes whose knob `wrong-host-key` is set."""
        return self.folder / "keys/wrong-host"


def read_members(layout: Layout) -> tuple[Member, ...]:
    """The nodes of the fleet, by name."""
    return tuple(Member(**entry) for entry in json.loads(layout.members.read_text(encoding="utf-8")))


def write_members(layout: Layout, members: Sequence[Member]) -> None:
    """Keep the nodes of the fleet."""
    entries = [{"name": m.name, "role": m.role, "rack": m.rack, "driver": m.driver} for m in members]
    layout.members.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def inventory_text(members: Sequence[Member], ports: Mapping[str, int]) -> str:
    """An Ansible inventory in INI form: one group per role and per rack, which are host variables too."""
    lines = ["# Written by the loopback fleet; the ports change when it is started again.", "[all]"]
    lines += [
        f"{m.name} ansible_host=127.0.0.1 ansible_port={ports[m.name]} role={m.role} rack={m.rack}" for m in members
    ]
    for group in sorted({m.role for m in members} | {m.rack for m in members}):
        lines += ["", f"[{group}]", *(m.name for m in members if group in (m.role, m.rack))]
    return "\n".join(lines) + "\n"


def ssh_config_text(layout: Layout, members: Sequence[Member], ports: Mapping[str, int]) -> str:
    """An OpenSSH client configuration that reaches every node by name and accepts its own host key only."""
    blocks = [
        f"Host {m.name}\n  HostName 127.0.0.1\n  Port {ports[m.name]}\n  HostKeyAlias {m.name}\n" for m in members
    ]
    common = (
        f'Host {" ".join(m.name for m in members)} 127.0.0.1\n  User muster\n  IdentityFile "{layout.client_key}"\n  IdentitiesOnly yes\n'
        f'  UserKnownHostsFile "{layout.known_hosts}"\n  StrictHostKeyChecking yes\n'
        "  Ciphers aes128-gcm@openssh.com\n"  # the cheapest one where both ends are Python
    )
    return "\n".join([*blocks, common])


def known_hosts_text(layout: Layout, members: Sequence[Member], ports: Mapping[str, int]) -> str:
    """The host keys, each under the node's name and under its address and port."""
    lines = []
    for m in members:
        key = layout.host_key(m.name).with_suffix(".pub").read_text(encoding="ascii").split()
        lines.append(f"{m.name},[127.0.0.1]:{ports[m.name]} {key[0]} {key[1]}\n")
    return "".join(lines)


def policy_text(want: str) -> str:
    """A commented fleet.yaml for the fleet, which wants driver `want` in both pools."""
    return _POLICY.replace("@WANT@", want)


_POLICY = """\
# The policy of a fleet of twelve pretended nodes on this machine: what you want, and how carefully to get there.
schema: 1
fleet: loopback

inventory:
  - ansible: inventory.ini            # groups and host variables become labels

ssh:
  config: ssh_config                  # names, ports, keys; next to this file
  sudo: false                         # loopback nodes belong to you
  concurrency: 12

pools:
  train:                              # eight nodes that run gang jobs
    match: {label.role: train}
    tier: critical
    driver: {want: @WANT@, flavour: open}
    drain: {policy: wait, limit: 5m}  # never cut a running job short
    max_unavailable: {pool: 50%}
  inference:                          # four nodes
    match: {label.role: inference}
    tier: standard
    driver: {want: @WANT@, flavour: open}
    drain: {policy: wait, limit: 5m}
    max_unavailable: {pool: 50%}

rollout:
  stages: [canary, 50%, 100%]         # one node first, then half, then all
  soak: {canary: 1s, later: 0s}       # a real fleet waits hours here
  approvals: 1

holds: {driver: true}                 # nothing but a rollout moves the driver
"""
