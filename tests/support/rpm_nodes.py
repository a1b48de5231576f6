"""Nodes that dnf and rpm change, on one machine: roots of their own over this machine's programs. Needs root and Linux.

Each node is an overlay above this machine's root with an empty rpm database, its own dnf settings and repository files, and writes into memory
alone. dpkg-query is taken away, so that a node is rpm's for the facts as well. All of them live in the name spaces of one process, and are gone
with it. No distribution's dnf is meant: these are Debian's builds of dnf 4 and rpm.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("dnf", "rpm", "rpmkeys", "unshare", "nsenter")
LIMIT_S = 300.0
"""For every wait: a busy machine is not a fault."""

BELOW = os.environ.get("MUSTER_RPM_ROOT", "/")
"""Whose programs nodes have. Another root than this machine's has another dnf and rpm; needed: dnf, dnf-plugins-core, rpm, python3, procps."""

_KEEPER = r"""
set -eu
place=$1
mount --make-rprivate /
mount -t tmpfs -o mode=755 rpmnodes "$place"
echo ready
read -r _ || :
"""

_OVER = r"""
set -eu
place=$1 name=$2 lower=$3
mkdir -p "$place/$name/up" "$place/$name/work" "$place/$name/root"
mount -t overlay -o "lowerdir=$lower,upperdir=$place/$name/up,workdir=$place/$name/work" node "$place/$name/root"
cd "$place/$name/root"
mount --rbind /dev dev
mount -t proc proc proc
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
"""

_TEMPLATE = r"""
set -eu
rm -f /usr/bin/dpkg-query
rm -rf /var/lib/rpm /usr/lib/sysimage/rpm /var/lib/dnf /var/cache/dnf /var/log/dnf* /var/log/hawkey* /etc/yum.repos.d /etc/dnf/modules.d /etc/apt
rm -rf /etc/dnf/aliases.d /var/lib/muster /var/tmp /etc/modprobe.d /etc/modules-load.d /etc/nvidia
mkdir -p /var/lib/rpm /etc/yum.repos.d /etc/dnf/vars /etc/dnf/modules.d /etc/modprobe.d /var/tmp
for plugin in /usr/lib/python3/dist-packages/dnf-plugins/*.py; do
  case $plugin in */versionlock.py | */download.py | */generate_completion_cache.py) continue ;; esac
  rm -f "$plugin" "/etc/dnf/plugins/$(basename "$plugin" .py).conf"
done
: >/etc/dnf/plugins/versionlock.list
printf '[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\nskip_if_unavailable=False\n' >/etc/dnf/dnf.conf
echo 9 >/etc/dnf/vars/releasever
# Debian keeps root's own RPMs at home; a node of rpm's keeps the machine's.
rm -rf /root/.rpmdb
mkdir -p /etc/rpm
echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros
printf 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\nPLATFORM_ID="platform:el9"\n' >/etc/os-release
"""


@dataclass(frozen=True)
class Said:
    """What a command said, and how it ended."""

    exit_status: int
    stdout: str
    stderr: str


class RpmNodes:
    """The nodes of one keeper. A node begins as `template` is at that moment; make all that is the same for many there."""

    def __init__(self, place: Path, keeper: "subprocess.Popen[str]", below: str) -> None:
        self._place = place
        self._below = below
        self._keeper = keeper
        (self._child,) = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()

    @property
    def place(self) -> Path:
        """The folder of all nodes, as this process reaches it."""
        return Path(f"/proc/{self._child}/root{self._place}")

    def root(self, node: str) -> Path:
        return self.place / node / "root"

    def template(self, text: str) -> None:
        """Make the template, on which `text` is run; once."""
        self._mount("template", self._below)
        for each in (_TEMPLATE, text):
            said = self.run("template", each)
            assert said.exit_status == 0, said.stdout + said.stderr
        self._inside(["umount", "-R", str(self._place / "template/root")])

    def add(self, name: str) -> None:
        self._mount(name, f"{self._place}/template/up:{self._below}")

    def run(self, node: str, text: str) -> Said:
        """Root's `sh -s` on the node, with nothing of this process's environment but where programs are."""
        argv = [
            "chroot",
            str(self._place / node / "root"),
            "env",
            "-i",
            "HOME=/root",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "MUSTER_ROOT=",
            "sh",
            "-s",
        ]
        done = self._enter(argv, text)
        return Said(done.returncode, done.stdout, done.stderr)

    def begin(self, node: str, argv: Iterable[str]) -> "subprocess.Popen[str]":
        """A program on the node that goes on meanwhile. Its process here is nsenter's."""
        chroot = ["chroot", str(self._place / node / "root"), *argv]
        return subprocess.Popen(self._argv(chroot), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _mount(self, name: str, lower: str) -> None:
        self._inside(["sh", "-c", _OVER, "over", str(self._place), name, lower])

    def _inside(self, argv: list[str]) -> None:
        done = self._enter(argv, "")
        assert done.returncode == 0, done.stderr

    def _enter(self, argv: list[str], stdin: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._argv(argv), input=stdin, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def _argv(self, argv: list[str]) -> list[str]:
        return ["nsenter", "-t", self._child, "-m", "-p", *argv]


@contextmanager
def rpm_nodes(place: Path, below: str = BELOW) -> Iterator[RpmNodes]:
    """A keeper of nodes in the empty folder `place`, above the root `below`; all of it is gone afterwards."""
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _KEEPER, "keeper", str(place)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None and keeper.stdin is not None
        assert keeper.stdout.readline() == "ready\n"
        try:
            yield RpmNodes(place, keeper, below)
        finally:
            keeper.stdin.close()
            keeper.kill()
