"""A machine that has never had a driver gets its first by Muster, from the policy's repository, and is bare again where that fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.fleet import Lab
from lab.node import LabNode
from lab.tools import PROGRAMS
from tests.support.desk import Desk

NEW, BAD = "595.71.05", "595.58.03"
BROUGHT = ("etc/apt/sources.list.d/muster.list", "etc/apt/keyrings/muster.asc", "etc/modprobe.d/muster-nouveau.conf")
INITRAMFS = '#!/bin/sh\necho "$*" >>/loopback/initramfs.log\n'

pytestmark = [pytest.mark.slow, pytest.mark.lab(*PROGRAMS), pytest.mark.xdist_group("nspawn")]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Desk]]:
    """A node without a driver and without its repository, on which nouveau has the GPUs."""
    place = tmp_path_factory.mktemp("bare")
    lab = Lab.up(place / "lab")
    try:
        node = lab.nodes[0]
        for name in ("etc/apt/sources.list.d/nvidia.list", "usr/share/keyrings/lab.gpg"):
            (node.root / name).unlink()
        tool = node.root / "usr/local/sbin/update-initramfs"
        tool.write_text(INITRAMFS, encoding="ascii")
        tool.chmod(0o755)
        policy = lab.folder / "fleet.yaml"
        rules = f'packages: {{repository: {{source: "deb {lab.url} ./", key: apt/lab.asc}}}}\n'
        policy.write_text(policy.read_text(encoding="utf-8") + rules, encoding="utf-8")
        node.ok("mkdir /sys/module/nouveau")
        yield lab, Desk(lab.folder, place / "muster.db")
    finally:
        lab.down()


def packages(node: LabNode) -> str:
    return node.ok("dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'")


def there(node: LabNode) -> list[str]:
    return [name for name in BROUGHT if Path(node.root / name).exists()]


def test_a_first_driver_that_does_not_build_leaves_the_node_as_bare_as_it_was(bare: tuple[Lab, Desk]) -> None:
    lab, desk = bare
    node = lab.nodes[0]
    before = packages(node)
    said = desk.muster("nodes", "install", node.name, "--driver", BAD, "--yes")
    assert said.exit_code == 6, said.out + said.err
    assert desk.phases() == {node.name: "rolled-back"}, said.out
    assert packages(node) == before
    assert there(node) == []
    assert node.ok("dpkg --audit; ls -A /var/lib/muster/node/lease 2>/dev/null || true") == ""


def test_a_dry_run_says_everything_that_comes_onto_the_node_and_brings_nothing(bare: tuple[Lab, Desk]) -> None:
    lab, desk = bare
    node = lab.nodes[0]
    before = packages(node)
    said = desk.ok("nodes", "install", node.name)
    for words in (
        f"installs: {NEW} (open) on a node without a driver", f"the source deb {lab.url} ./", "signed by the key of the policy",
        "nouveau out of the module loader", "nouveau has the GPUs now: the node restarts", f"installs: nvidia-dkms-open={NEW}-1ubuntu1",
    ):  # fmt: skip
        assert words in said.out, said.out
    assert (packages(node), there(node)) == (before, [])


def test_a_bare_node_gets_its_first_driver_validated_and_held(bare: tuple[Lab, Desk]) -> None:
    lab, desk = bare
    node = lab.nodes[0]
    said = desk.muster("nodes", "install", node.name, "--yes")
    assert said.exit_code == 0, said.out + said.err
    truth = node.truth()
    assert {truth["loaded"], truth["library"], truth["disk"]} == {NEW}
    assert (truth["audit"], truth["lease"]) == ("", "")
    wanted = {pin.partition("=")[0] for pin in truth["packages"].split()}
    assert (
        {"nvidia-dkms-open", "libnvidia-compute", "nvidia-firmware", "nvidia-persistenced"}
        <= wanted
        <= set(truth["holds"].split())
    )
    assert there(node) == list(BROUGHT)
    assert not (node.root / "sys/module/nouveau").exists()
    assert "-u" in (node.root / "loopback/initramfs.log").read_text(encoding="ascii")
    again = desk.muster("nodes", "install", node.name)
    assert again.exit_code == 1, again.out + again.err
    assert "has a driver already" in again.out
