"""`scripts/lab`: the laboratory by hand."""

import argparse
import os
import sys
from pathlib import Path

from lab.base import base
from lab.fleet import Lab
from lab.guest import Guest
from lab.guest_packages import GUEST_RELEASES
from lab.packages import OPEN, PROPRIETARY, RELEASES


def main() -> int:
    """See `scripts/lab --help`."""
    parser = argparse.ArgumentParser(prog="scripts/lab", description="Real machines in containers (needs root).")
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("MUSTER_LAB_FOLDER", "/var/tmp/muster-lab")))
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="make and boot the nodes, with a driver installed")
    up.add_argument("--nodes", type=int, default=1)
    up.add_argument("--driver", default="580.126.20", choices=[each.version for each in RELEASES if each.builds])
    up.add_argument("--flavour", default=OPEN, choices=[OPEN, PROPRIETARY])
    verbs.add_parser("base", help="make the base that nodes are copied from, if it is not there")
    verbs.add_parser("down", help="end everything and remove the folder")
    verbs.add_parser("status", help="what each node is")
    shell = verbs.add_parser("shell", help="a root shell in a node")
    shell.add_argument("node", nargs="?", default="gpu01")
    machine = verbs.add_parser(
        "machine", help="one node as a virtual machine with a kernel of its own (slow: QEMU's emulation)"
    )
    machine.add_argument("what", choices=["up", "down", "shell"])
    machine.add_argument("--driver", default="580.126.20", choices=[each.version for each in GUEST_RELEASES])
    given = parser.parse_args()
    try:
        return _do(given)
    except RuntimeError as error:
        print(f"scripts/lab: {error}", file=sys.stderr)
        return 1


def _machine(given: argparse.Namespace) -> int:
    folder = given.folder.with_name(f"{given.folder.name}-machine")
    if given.what == "up":
        Guest.up(folder, given.driver)
        print(f"up: gpu01 in {folder}; try:  cd {folder} && muster collect && muster status")
        return 0
    if not (folder / "guest.json").exists():
        print(f"scripts/lab: no machine is up in {folder}", file=sys.stderr)
        return 1
    if given.what == "down":
        Guest(folder).down()
    else:
        os.execvp("ssh", ["ssh", "-F", str(folder / "ssh_config"), "gpu01"])
    return 0


def _do(given: argparse.Namespace) -> int:
    if given.verb == "machine":
        return _machine(given)
    if given.verb == "up":
        lab = Lab.up(given.folder, nodes=given.nodes)
        for node in lab.nodes:
            lab.install(node, given.driver, given.flavour)
        print(
            f"up: {len(lab.nodes)} node(s) in {given.folder}; try:  cd {given.folder} && muster collect && muster status"
        )
        return 0
    if given.verb == "base":
        print(base())
        return 0
    if not (given.folder / "lab.json").exists():
        print(f"scripts/lab: nothing is up in {given.folder}", file=sys.stderr)
        return 1
    lab = Lab(given.folder)
    if given.verb == "down":
        lab.down()
    elif given.verb == "status":
        for node in lab.nodes:
            known = node.truth() if node.leader() else {}
            words = " ".join(f"{key}={known.get(key, '')}" for key in ("loaded", "library", "disk", "lease", "audit"))
            print(f"{node.name} {node.address} {'up' if known else 'down'} {words}".rstrip())
    else:
        leader = next((each.leader() for each in lab.nodes if each.name == given.node), None)
        if leader is None:
            print(f"scripts/lab: {given.node} is not up", file=sys.stderr)
            return 1
        os.execvp("nsenter", ["nsenter", "-t", str(leader), "-a", "bash", "-l"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
