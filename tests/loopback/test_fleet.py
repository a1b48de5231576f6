"""Laws of the fleet's own life: made once, stopped without leftovers, started again on the same ports."""

import subprocess
from pathlib import Path

import yaml

from muster.loopback.fleet import KNOBS, LoopbackFleet
from muster.loopback.nodes import processes_under


def test_a_stopped_fleet_leaves_no_process_and_starts_again_where_it_was(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "a fleet", nodes=1)
    fleet.start()
    config = fleet.layout.ssh_config.read_text(encoding="utf-8")
    fleet.start_job("j1", ["gpu01"], 3600)
    fleet.stop()
    assert processes_under(fleet.layout.nodes) == []
    assert fleet.server_pid() is None
    fleet.start()
    assert fleet.layout.ssh_config.read_text(encoding="utf-8") == config
    shell = subprocess.run(
        [
            "/bin/sh",
            "-c",
            'ssh -F "$0" gpu01 "apt-get update -q >/dev/null && nvidia-smi -L | wc -l"',
            fleet.layout.ssh_config,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    fleet.stop()
    assert shell.returncode == 127 or shell.stdout == "4\n", shell.stderr


def test_twelve_nodes_are_a_mixed_fleet_of_two_pools(tmp_path: Path) -> None:
    fleet = LoopbackFleet.create(tmp_path / "fleet")
    assert [member.role for member in fleet.members] == ["train"] * 8 + ["inference"] * 4
    assert sorted({truth.loaded for truth in fleet.truth()}) == ["570.195.03", "580.95.05"]
    assert not any(truth.broken or truth.run_twice or truth.lease for truth in fleet.truth())


def test_the_policy_wants_the_newest_driver_that_builds(fleet: LoopbackFleet) -> None:
    policy = yaml.load(fleet.layout.policy.read_text(encoding="utf-8"), yaml.BaseLoader)
    assert policy["schema"] == "1"
    assert {pool["driver"]["want"] for pool in policy["pools"].values()} == {"580.126.20"}


def test_the_documents_list_every_knob() -> None:
    page = Path(__file__).parents[2] / "docs/reference/loopback-fleet.md"
    listed = [
        line.split("`")[1]
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `") and "`" in line
    ]
    assert [name for name in listed if name in KNOBS] == list(KNOBS)
